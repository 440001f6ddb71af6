/* SPDX-License-Identifier: MIT */
/* Several processes that share out the same work. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { PROCESSES_MAX = 1024 };

struct processes {
    int32_t count;
    int (*work)(void *argument, int32_t number); /* in process 0..count-1: 0, or -1 */
    /* Process `number` was killed by a signal. Returns whether another one goes on for it. */
    int (*go_on)(void *argument, int32_t number);
    void (*idle)(void *argument); /* ten times a second, here */
    void *argument;
};

/* As many as the processors that this process may use. */
int32_t processes_default(void);

/* Memory that this process and those that it starts see; NULL: there is none. */
void *processes_alloc(size_t num_bytes);
void processes_free(void *memory, size_t num_bytes);

/* Returns once all have ended: 0, or -1 if one could not be started or has returned -1. They end
 * with this process. */
int processes_run(const struct processes *processes);
