/* SPDX-License-Identifier: MIT */
/* The processes of a test program's ranks, kept from one run to the next, since a process that is
 * to use a GPU takes more than a second to begin. The test's process forks them, and itself uses
 * neither weft's communicators nor threads. A worker does one task after another, each in a thread
 * of its own, and then is as it was: with the environment and memory (harness/memory.h) that the
 * test has now. One that is not, since the task failed or left something of the process changed, is
 * replaced before the next run, as is one that died. */
#pragma once

#include <stdint.h>

enum { POOL_MAX_PLACES = 80 };

struct pool_task {
    /* In the worker. Returns 0 if another task may follow. */
    int (*function)(void *common, int32_t index);
    void *common; /* of memory_alloc_common */
    int32_t index;
};

enum pool_state { POOL_BUSY, POOL_DONE, POOL_DEAD };

/* Sees to it that the place has a worker. Before the first task of a run, so that workers have no
 * descriptors of runs. -1: none could be forked. */
int pool_fill(int32_t place);
void pool_give(int32_t place, const struct pool_task *task);
/* Whether the place's worker still has a task; SIGCHLD comes when that changes. A worker that has
 * died, or that ended after its task, has left its wait status; for others *status is 0. */
enum pool_state pool_look(int32_t place, int *status);
void pool_kill(int32_t place);
