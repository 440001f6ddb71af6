/* SPDX-License-Identifier: MIT */
#include "machine/cpu/pending.h"

#include <pthread.h>
#include <stdatomic.h>

/* One for the process, since nobody may touch a communicator after its last launch. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t one_is_done = PTHREAD_COND_INITIALIZER;
static _Atomic int num_waiters;

void weft__cpu_launch_is_queued(weft_comm *comm)
{
    atomic_fetch_add_explicit(&comm->num_launches, 1, memory_order_relaxed);
}

/* Either the waiter sees the new count, or the one that counts sees the waiter: both are
 * sequentially consistent. */
void weft__cpu_launch_is_done(weft_comm *comm)
{
    const int is_last = atomic_fetch_sub(&comm->num_launches, 1) == 1;
    if (!is_last || atomic_load(&num_waiters) == 0)
        return;
    pthread_mutex_lock(&mutex);
    pthread_cond_broadcast(&one_is_done);
    pthread_mutex_unlock(&mutex);
}

void weft__cpu_wait_launches(weft_comm *comm)
{
    pthread_mutex_lock(&mutex);
    atomic_fetch_add(&num_waiters, 1);
    while (atomic_load(&comm->num_launches) > 0)
        pthread_cond_wait(&one_is_done, &mutex);
    atomic_fetch_sub(&num_waiters, 1);
    pthread_mutex_unlock(&mutex);
}
