/* SPDX-License-Identifier: MIT */
/* The objects and buffers of one mixture-of-experts layer on this rank, and its operations. */
#pragma once

#include "weft.h"
#include "workload/ep_layer_options.h"
#include "workload/ep_routing.h"
#include "workload/payload.h"

/* The bytes of rows that an operation moves per rank. */
struct ep_traffic {
    uint64_t bytes_logical; /* rows that arrive at the rank (go back, in combine), own included */
    uint64_t bytes_remote;  /* without the rank's own */
};

/* The part of a layer that only low latency has: see ep_ll.h. */
struct ep_ll {
    weft_ll *ll;
    weft_ll_sizes sizes;
    int32_t num_local_experts; /* L */
    int32_t capacity;          /* C, rows of an expert, or of a source by rank */
    unsigned char *rows;       /* by expert: [L][C][ep_ll_element_bytes] */
    unsigned char *scales;     /* and [L][C][ep_ll_scale_bytes], if there are any */
    unsigned char *y; /* what combine sends: the rows, or [L][C][row_bytes], [R][C] by rank */
    int32_t *rank_counts, *expert_counts, *src_tokens; /* as weft_ll_dispatch_args has them */
    int64_t *ranges;
};

enum { EP_MAX_BLOCKS = 32 };

struct ep_layer {
    const struct ep_layer_options *options;
    const struct ep_routing *routing;
    weft_comm *comm;
    int32_t rank, num_ranks;
    int32_t node, num_nodes;
    int32_t num_tokens; /* N, of this rank */
    int32_t capacity;   /* rows that can arrive here at worst: no operation waits on the host */
    weft_stream *stream;
    weft_ep *ep;
    weft_ep_handle *handle; /* this and the arena: not in low latency */
    weft_arena *arena;
    weft_graph *graphs[EP_NUM_OPS]; /* of EP_GRAPH_CALLS; NULL: none */
    struct ep_ll ll;

    /* Memory of the machine, which the host must not touch; blocks are not in the arena. */
    int32_t num_blocks;
    void *blocks[EP_MAX_BLOCKS];
    unsigned char *x[EP_MAX_PLANES]; /* [N][plane_bytes] of each plane */
    int32_t *topk_idx;               /* [N][num_topk] */
    float *topk_weights;             /* [N][num_topk] */
    unsigned char *out;              /* [N][row_bytes] */
    int32_t *tokens_per_rank;        /* [num_ranks] */
    int32_t *tokens_per_node;        /* [num_nodes] */
    int32_t *tokens_per_expert;      /* [num_experts] */
    uint8_t *is_token_in_rank;       /* [N][num_ranks] */

    /* [capacity][plane_bytes] of each plane, in options->memory as the next three. */
    unsigned char *recv_x[EP_MAX_PLANES];
    int32_t *recv_topk_idx; /* [capacity][num_topk] */
    float *recv_topk_weights;
    int32_t *recv_src_token; /* [capacity] */
    /* With a format of rows, what dispatch delivers in place of recv_x:
     * [capacity][ep_ll_element_bytes], and [capacity][ep_ll_scale_bytes]. */
    unsigned char *recv_narrow, *recv_scales;
};

/* The payload of token rows. */
struct payload ep_layer_payload(const struct ep_layer *layer);

/* The routing of the communicator's ranks; close it also after a failure. */
weft_result ep_layer_open_routing(struct ep_routing *routing,
                                  const struct ep_layer_options *options, weft_comm *comm,
                                  enum ep_routing_extent extent);

/* Collective; the stream, options and routing must lie beyond ep_layer_close, which also releases
 * what a failed open left. Layers that take turns share a stream. */
weft_result ep_layer_open(struct ep_layer *layer, weft_comm *comm, weft_stream *stream,
                          const struct ep_layer_options *options, const struct ep_routing *routing);
void ep_layer_close(struct ep_layer *layer);

/* Parts of ep_layer_open: buffers, none where bytes is 0, and the graph of an operation. */
struct ep_buffer {
    void **pointer;
    size_t bytes;
};
weft_result ep_layer_alloc(struct ep_layer *layer, enum ep_memory memory,
                           const struct ep_buffer *list, size_t num_buffers);
weft_result ep_layer_record(struct ep_layer *layer, enum ep_op op);

/* 1 if rows are quantised on their way. */
static inline int ep_layer_is_narrow(const struct ep_layer *layer)
{
    return layer->options->row_format != EP_ROW_FORMAT_DTYPE;
}

/* Enqueues the operation, or its graph. Combine sums the rows as they lie in recv_x. */
weft_result ep_layer_enqueue(struct ep_layer *layer, enum ep_op op);
/* Collective, not of low latency: enqueues layout and notify, not in a graph, and waits for the
 * counts. */
weft_result ep_layer_route(struct ep_layer *layer, weft_ep_counts *counts);
/* With a format of rows: enqueues that the rows that came are restored, in recv_x. */
weft_result ep_layer_restore_rows(struct ep_layer *layer, int64_t num_rows);
/* Enqueue calls that must come before and after it, and are no part of it. */
weft_result ep_layer_prepare(struct ep_layer *layer, enum ep_op op);
weft_result ep_layer_finish(struct ep_layer *layer, enum ep_op op);

/* Fills x with the rows of a payload; those that dispatch is to carry have the layer's. */
weft_result ep_layer_fill_x(struct ep_layer *layer, const struct payload *payload);
