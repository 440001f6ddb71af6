/* SPDX-License-Identifier: MIT */
/* Makes a process slow, for LD_PRELOAD: each look at the clock takes 1 ms. Whoever comes to an
 * operation looks at the clock, so this process comes late to all of them. */
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    syscall(SYS_nanosleep, &pause, NULL);
    return (int)syscall(SYS_clock_gettime, clock, now);
}
