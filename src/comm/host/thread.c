/* SPDX-License-Identifier: MIT */
#include "comm/host/thread.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>

#include "comm/host/error.h"

static const int64_t second_ns = 1000000000;

/* The default is the limit on the program's stack (RLIMIT_STACK), which may be too small here. */
enum { LEAST_STACK_BYTES = 256 << 10 };

weft_result weft__thread_start(pthread_t *thread, void *(*function)(void *argument), void *argument)
{
    sigset_t all, before;
    pthread_attr_t attributes;
    size_t stack_bytes = 0;
    errno = pthread_attr_init(&attributes);
    if (errno != 0)
        return weft__system_error("cannot start a thread");
    pthread_attr_getstacksize(&attributes, &stack_bytes);
    if (stack_bytes < LEAST_STACK_BYTES)
        stack_bytes = LEAST_STACK_BYTES;
    pthread_attr_setstacksize(&attributes, stack_bytes);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    errno = pthread_create(thread, &attributes, function, argument);
    const int reason = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    errno = reason;
    return reason == 0
               ? WEFT_OK
               : weft__system_error(
                     "cannot start a thread with a stack of %zu bytes (limits: ulimit -u, -v, -d)",
                     stack_bytes);
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
