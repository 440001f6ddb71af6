/* SPDX-License-Identifier: MIT */
/* What weft's operations need on one rank for one batch of tokens, and the operations. */
#pragma once

#include "gpu_rank.h"
#include "row_tables.h"

/* Operations are sets of these, which follow each other in this order. */
enum ep_part {
    PART_LAYOUT = 1,
    PART_NOTIFY = 2,
    PART_WAIT_COUNTS = 4, /* on the host */
    PART_DISPATCH = 8,
    PART_COMBINE = 16
};

struct ep_batch {
    const struct cuda_options *options;
    const struct gpu_rank *rank;
    const struct plan *plan;
    const struct row_format *format;
    struct device_memory memory;
    struct device_memory routing; /* what goes with the plan */
    struct row_tables tables;
    /* Rows that received and answers hold, the same on all ranks. More than plan needs, if set
     * before, where other plans follow. */
    int32_t capacity;
    int64_t *topk_idx;
    struct pattern tokens;   /* what dispatch sends */
    struct pattern received; /* in the heap */
    /* What combine sums: in the heap, rows of the first format, of another tag than received. */
    struct pattern answers;
    struct token_rows sums; /* only what tells what they must be */
    uint32_t *num_wrong;    /* on the GPU */
    weft_ep *ep;
    weft_ep_handle *handle;
};

/* Collective. After options, rank, plan and format were set; destroy also after a failure. */
int ep_batch_init(struct ep_batch *batch);
void ep_batch_destroy(struct ep_batch *batch);
/* Collective: from now on as by this plan, of as many tokens, top-k and experts. */
int ep_batch_follow(struct ep_batch *batch, const struct plan *plan);

/* Collective: the objects of weft for operations of num_blocks blocks; 0: the library's choice.
 * Leaves a handle without routing. */
int ep_batch_open(struct ep_batch *batch, int32_t num_blocks);
void ep_batch_close(struct ep_batch *batch);

/* Enqueues one operation. */
int ep_batch_run(struct ep_batch *batch, int parts);
/* The same, for struct calls. */
struct ep_call {
    struct ep_batch *batch;
    int parts;
};
int ep_call_enqueue(void *call);
/* Enqueues layout and notify of no tokens at all, which forgets the routing. */
int ep_batch_forget(struct ep_batch *batch);
