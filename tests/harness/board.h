/* SPDX-License-Identifier: MIT */
/* What the test, its ranks and the process of their rendezvous share during a run
 * (harness/ranks.h). */
#pragma once

#include <semaphore.h>
#include <stdatomic.h>

#include "harness/ranks.h"

struct rank_slot {
    _Atomic int finished;
    int result;
    char failure[1024];
};

struct board {
    struct ranks_options options;
    rank_function function;
    sem_t id_made; /* posted once per rank */
    sem_t host_may_leave;
    int id_result;
    char id_failure[512];
    weft_unique_id id;
    uint32_t num_ranks;
    _Atomic uint32_t num_arrived, num_gone, barrier_round;
    struct rank_slot slots[RANKS_MAX];
    _Alignas(64) char shared[];
};

/* Tasks of harness/pool.h: a rank that is a process, all ranks that are threads, and the process
 * that makes the id where no rank does. */
int board_be_process(void *common, int32_t rank);
int board_be_threads(void *common, int32_t unused);
int board_be_host(void *common, int32_t unused);
