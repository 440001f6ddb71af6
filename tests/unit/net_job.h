/* SPDX-License-Identifier: MIT */
/* A job whose ranks are in one process, each with a progress thread and memory that the others
 * reach. */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/failure/status.h"
#include "net/progress.h"

enum {
    NUM_RANKS = 3,
    NUM_POSTERS = 2, /* of a rank */
    NUM_PUTS = 150,  /* of a poster to each other rank */
    SLOT_BYTES = 12000,
    FIRST_CREDIT_WORD = NUM_RANKS * NUM_POSTERS,
    NUM_WORDS = 2 * FIRST_CREDIT_WORD + 1,
    DONE_WORD = NUM_WORDS - 1,
    NUM_QUEUE_SLOTS = 16,
    DEADLINE_MS = 20000,
    POST_TIMEOUT_MS = 3000
};

struct rank {
    struct job *job;
    int32_t rank;
    struct weft__progress *progress;
    struct weft__work_queue *device_queue; /* or NULL */
    _Atomic uint64_t words[NUM_WORDS];
    /* heap: a slot per put of each poster of each rank. staging: likewise for each target. */
    unsigned char *heap, *staging;
    _Atomic int32_t own_failure, failed_peer;
    _Atomic int num_failures, num_own_failures;
    char message[WEFT__NET_REASON_BYTES]; /* of failed_peer */
    struct weft__status status;
};

struct job {
    struct rank ranks[NUM_RANKS];
};

/* Of the first check that failed; 0: none has. */
extern int failed_line;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            failed_line = __LINE__;                                                                \
            return;                                                                                \
        }                                                                                          \
    } while (0)

size_t heap_bytes(void);

/* num_device_slots: of a queue of each rank beside the thread's own; 0: none. */
void start_job(struct job *job, const char *engine, uint32_t num_device_slots);
void stop_job(struct job *job);
