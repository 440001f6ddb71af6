/* SPDX-License-Identifier: MIT */
/* One layer of expert parallelism in buffers that stay where they are, in capacity mode, on any
 * machine. The same layer on machine cpu, given the same rounds, says what every byte must be.
 * Functions return 0, or 1 when a check has failed. */
#pragma once

#include "harness/ranks.h"

/* Where a layer on machine cuda has what the operations are given outside the heap. */
enum layer_memory {
    LAYER_OF_MACHINE, /* from weft_memory_alloc */
    LAYER_PINNED,     /* of the host, from CUDA */
    LAYER_MANAGED     /* from CUDA */
};

struct layer_shape {
    int32_t max_tokens; /* ranks have less, by their number */
    int32_t num_topk, num_experts;
    int32_t capacity; /* fewer rows than come in some rounds */
    int64_t hidden;   /* elements of BF16 */
    int32_t num_blocks, num_warps;
    enum layer_memory memory;
};

enum layer_array {
    LAYER_TOPK_IDX,
    LAYER_TOPK_WEIGHTS,
    LAYER_ROWS,
    LAYER_BIAS,
    LAYER_TOKENS_PER_RANK,
    LAYER_OUT,
    LAYER_OUT_WEIGHTS,
    LAYER_RECV_ROWS, /* the first in the heap */
    LAYER_RECV_TOPK_IDX,
    LAYER_RECV_WEIGHTS,
    LAYER_RECV_SRC_TOKEN,
    LAYER_NUM_ARRAYS
};

struct layer {
    struct ranks_context *context;
    struct layer_shape shape;
    weft_comm *comm;
    weft_ep *ep;
    weft_ep_handle *handle;
    int32_t num_tokens;
    void *arrays[LAYER_NUM_ARRAYS]; /* of the machine */
};

/* Collective. */
int layer_open(struct layer *layer, struct ranks_context *context, weft_comm *comm,
               const struct layer_shape *shape);
/* Collective unless the communicator has failed; its operations have finished. */
int layer_close(struct layer *layer);

/* The inputs of a round, for the operations issued or replayed after it. */
int layer_fill(struct layer *layer, uint64_t round);

weft_ep_layout_args layer_layout_args(const struct layer *layer);
/* Points to *plane. */
weft_ep_dispatch_args layer_dispatch_args(const struct layer *layer, weft_plane *plane);
weft_ep_combine_args layer_combine_args(const struct layer *layer);

/* Enqueues layout and notify; dispatch, and combine of what it delivers; all four. */
int layer_route(struct layer *layer, weft_stream *stream);
int layer_move(struct layer *layer, weft_stream *stream);
int layer_issue(struct layer *layer, weft_stream *stream);

uint64_t layer_array_bytes(const struct layer *layer, enum layer_array array);

/* After the streams were synchronised: all that both have computed is the same. */
int layer_compare(struct layer *got, struct layer *expected);
