/* SPDX-License-Identifier: MIT */
/* Included before net/progress.c where it runs on the sim: what it asks of the system, by the
 * schedule. */
#pragma once

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "comm/host/thread.h"

weft_result progress_os_start(void *(*run)(void *argument), void *argument);
int progress_os_join(void);
int progress_os_lock(pthread_mutex_t *mutex);
int progress_os_try_lock(pthread_mutex_t *mutex);
int progress_os_unlock(pthread_mutex_t *mutex);
int progress_os_sleep(struct pollfd *set, unsigned num_descriptors);
ssize_t progress_os_wake(void);
ssize_t progress_os_take_wakes(void);
int progress_os_yield(void);

#ifndef WEFT_TESTS_SIM_PROGRESS_OS_HERE
#define weft__thread_start(thread, run, argument)                                                  \
    ((void)*(thread), progress_os_start(run, argument))
#define pthread_join(thread, value)  ((void)(thread), progress_os_join())
#define pthread_mutex_lock(mutex)    progress_os_lock(mutex)
#define pthread_mutex_trylock(mutex) progress_os_try_lock(mutex)
#define pthread_mutex_unlock(mutex)  progress_os_unlock(mutex)
#define ppoll(set, num_descriptors, timeout, signals)                                              \
    ((void)(timeout), progress_os_sleep(set, num_descriptors))
#define write(fd, bytes, num_bytes) ((void)(fd), (void)(bytes), progress_os_wake())
#define read(fd, bytes, num_bytes)  ((void)(fd), (void)(bytes), progress_os_take_wakes())
#define sched_yield()               progress_os_yield()
#endif
