/* SPDX-License-Identifier: MIT */
/* The collective operations under one name each, for tests that do the same to all of them. */
#pragma once

#include "oracle/ep_memory.h"

enum ep_operation { EP_NOTIFY, EP_DISPATCH, EP_COMBINE, EP_BARRIER, EP_NUM_OPERATIONS };

const char *ep_operation_name(enum ep_operation operation);

/* Buffers for dispatches and combines of fp32 rows of any content. */
struct ep_buffers {
    int64_t hidden;
    void *recv; /* in the arena */
    struct ep_array own;
};
uint64_t ep_buffers_arena_bytes(const struct ep_world *world, int64_t hidden);
int ep_buffers_create(struct ep_rank *self, int64_t hidden, struct ep_buffers *buffers);
int ep_buffers_destroy(struct ep_rank *self, struct ep_buffers *buffers);

/* Enqueues the operation on the rank's stream; the handle must be filled. */
weft_result ep_operation_issue(struct ep_rank *self, const struct ep_buffers *buffers,
                               enum ep_operation operation);
/* Issues and waits; the first error of either. */
weft_result ep_operation_run(struct ep_rank *self, const struct ep_buffers *buffers,
                             enum ep_operation operation);
