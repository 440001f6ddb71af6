/* SPDX-License-Identifier: MIT */
/* What a worker of the pool does, and what it looks after between two tasks. */
#pragma once

#include <stdatomic.h>

#include "harness/pool.h"

/* In memory that worker and test have in common. */
struct worker_card {
    _Atomic uint32_t num_done;
    _Atomic int is_spent; /* the worker ends by itself, once its socket is closed */
};

/* What comes through the socket. */
struct worker_order {
    struct pool_task task;
    const char *environment; /* of worker_environment */
};

/* The environment of this process as one block of tests_alloc. */
char *worker_environment(void);

/* Serves until the socket is closed, then leaves through exit(), so that leak checkers look too. */
_Noreturn void worker_serve(struct worker_card *card, int orders_fd);
