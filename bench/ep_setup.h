/* SPDX-License-Identifier: MIT */
/* One rank of the benchmark: its communicator, buffers and routing. */
#pragma once

#include "plan.h"
#include "weft.h"
#include "workload/try.h"

struct bench {
    struct bench_options options;
    struct plan plan;
    int32_t rank, num_ranks, num_nodes;
    int32_t capacity; /* rows that recv holds, the same on all ranks */
    weft_comm *comm;
    weft_stream *stream;
    weft_ep *ep;
    weft_ep_handle *handle;
    const int32_t *topk_idx; /* of this rank */
    const float *topk_weights;
    char *x, *out;    /* [num_tokens] rows in ordinary memory */
    char *recv;       /* [capacity] rows in the heap, at the same offset on all ranks */
    char **peer_recv; /* [num_ranks] where that of each rank is mapped here */
    int32_t *recv_topk_idx;
    float *recv_topk_weights;
};

/* After weft_comm_create. Leaves the handle's routing exchanged. */
weft_result bench_init(struct bench *bench);
void bench_destroy(struct bench *bench);

/* The operations, enqueued. */
weft_result bench_route(struct bench *bench);
weft_result bench_dispatch_rows(struct bench *bench);
/* Together with each token's choices and weights. */
weft_result bench_dispatch_all(struct bench *bench);
weft_result bench_combine(struct bench *bench);

/* Checks what the last dispatch and combine left; on all ranks, how many rows are wrong
 * anywhere. */
weft_result bench_check(struct bench *bench, int64_t *num_errors);
