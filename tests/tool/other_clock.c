/* SPDX-License-Identifier: MIT */
/* Another clock for a process, for LD_PRELOAD. With CLOCK_SLOW each look at it takes 1 ms: whoever
 * comes to an operation looks at the clock, so the process comes late to all of them. With
 * CLOCK_AHEAD=S the wall clock is S seconds ahead. */
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    const char *ahead = getenv("CLOCK_AHEAD");
    if (getenv("CLOCK_SLOW") != NULL)
        syscall(SYS_nanosleep, &pause, NULL);
    const int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (ahead != NULL && clock == CLOCK_REALTIME)
        now->tv_sec += atoi(ahead);
    return result;
}
