/* SPDX-License-Identifier: MIT */
#include "comm/thread.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>

#include "comm/error.h"

static const int64_t second_ns = 1000000000;

weft_result weft__thread_start(pthread_t *thread, void *(*function)(void *argument), void *argument)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    errno = pthread_create(thread, NULL, function, argument);
    int failed = errno != 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed ? weft__system_error("cannot start a thread") : WEFT_OK;
}

int64_t weft__now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * second_ns + now.tv_nsec;
}

struct timespec weft__timespec(int64_t ns)
{
    return (struct timespec){.tv_sec = ns / second_ns, .tv_nsec = ns % second_ns};
}

int weft__poll_timeout_ms(int64_t deadline_ns)
{
    if (deadline_ns == INT64_MAX)
        return -1;
    int64_t left_ns = deadline_ns - weft__now_ns();
    if (left_ns <= 0)
        return 0;
    int64_t left_ms = (left_ns + WEFT__NS_PER_MS - 1) / WEFT__NS_PER_MS;
    return left_ms > INT_MAX ? INT_MAX : (int)left_ms;
}
