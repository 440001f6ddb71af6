/* SPDX-License-Identifier: MIT */
/* Threads and time as the library uses them. */
#pragma once

#include <pthread.h>
#include <stdint.h>
#include <time.h>

#include "weft.h"

/* Starts a thread that blocks all signals, so that the program's handlers run on its own
 * threads. */
weft_result weft__thread_start(pthread_t *thread, void *(*function)(void *argument),
                               void *argument);

/* Nanoseconds on the monotonic clock. */
int64_t weft__now_ns(void);
struct timespec weft__timespec(int64_t ns);
/* For poll(): milliseconds until deadline_ns, rounded up, 0..INT_MAX; -1 (forever) for
 * INT64_MAX. */
int weft__poll_timeout_ms(int64_t deadline_ns);

#define WEFT__NS_PER_MS INT64_C(1000000)
