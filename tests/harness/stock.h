/* SPDX-License-Identifier: MIT */
/* What a process holds of the system, for tests of what is left behind. */
#pragma once

#include "harness/ranks.h"

struct stock {
    int num_fds;       /* without those that are the CUDA driver's by their name */
    char targets[400]; /* what they are open to, for messages */
    int num_heap_mappings;
};

struct stock stock_take(void);
/* Fails unless both are as much. */
int stock_check(struct stock before, struct stock now);
