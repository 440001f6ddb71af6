/* SPDX-License-Identifier: MIT */
/* A library that has a thread before main begins, which blocks no signals; for LD_PRELOAD. */
#include <pthread.h>
#include <unistd.h>

static void *sleep_for_ever(void *unused)
{
    while (pause() != 0)
        ;
    return unused;
}

__attribute__((constructor)) static void start(void)
{
    pthread_t thread;
    (void)pthread_create(&thread, NULL, sleep_for_ever, NULL);
}
