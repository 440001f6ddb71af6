/* SPDX-License-Identifier: MIT */
/* One decode step by low latency, on a rank of the benchmark. */
#pragma once

#include "ep_setup.h"

struct ll_bench {
    struct bench *bench;
    weft_ll_layout layout;
    int32_t num_local_experts;
    int32_t capacity; /* rows of each of them; by rank of each source */
    weft_ll *ll;
    float *topk_weights; /* plan_split_weights */
    char *rows;          /* by expert: [num_local_experts][capacity] */
    char *out;           /* [num_tokens] rows */
};

/* Collective; destroy also after a failure. */
weft_result ll_bench_init(struct ll_bench *ll, struct bench *bench, weft_ll_layout layout);
void ll_bench_destroy(struct ll_bench *ll);

/* Enqueues dispatch and combine. */
weft_result ll_bench_step(struct ll_bench *ll);

/* Checks one step; on all ranks, how many rows are wrong anywhere. */
weft_result ll_bench_check(struct ll_bench *ll, int64_t *num_errors);
