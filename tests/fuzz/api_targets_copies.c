/* SPDX-License-Identifier: MIT */
/* Copies of experts for one step, of a rank alone. */
#include "api_targets.h"

enum { ROWS_BYTES = 1 << 10, STAGING_OFFSET = 16 << 10 };

static void fill_choose(struct fuzz_arguments *a, struct rng *rng)
{
    weft_ep_replicas_args *args = &a->choose_replicas.known;
    FUZZ_FILL_SIZE(a, choose_replicas, rng);
    args->index_type = rng_below(rng, 2) == 0 ? WEFT_INT32 : WEFT_INT64;
    args->num_tokens = 1 + (int32_t)rng_below(rng, FUZZ_MAX_TOKENS);
    args->num_topk = 1 + (int32_t)rng_below(rng, FUZZ_TOPK);
    args->num_experts = FUZZ_EXPERTS;
    args->topk_idx = a->topk_idx;
    args->replica_idx = a->result_memory;
    args->granules = (const int32_t *)(const void *)a->arena_memory;
}

/* Experts 0 and 1 have a copy each. */
static void fill_copies(struct fuzz_arguments *a, struct rng *rng)
{
    static const int32_t base[FUZZ_COPIES] = {0, -1, 1, -1}, experts[FUZZ_COPIES] = {0, 1, 1, 0};
    weft_ep_copies_args *args = &a->copies.known;
    FUZZ_FILL_SIZE(a, copies, rng);
    memcpy(a->copies_base, base, sizeof base);
    memcpy(a->copies_experts, experts, sizeof experts);
    args->base = a->copies_base;
    args->experts = a->copies_experts;
    args->num_replicas = FUZZ_COPIES;
    args->num_planes = 1 + (int32_t)rng_below(rng, WEFT_MAX_PLANES);
    args->planes = a->planes;
    for (int32_t i = 0; i < args->num_planes; i++)
        a->planes[i] = (weft_plane){.size = sizeof(weft_plane),
                                    .dst = a->arena_memory + i * ROWS_BYTES,
                                    .row_bytes = 4 + 4 * (uint64_t)rng_below(rng, 60)};
}

static void fill_reduce(struct fuzz_arguments *a, struct rng *rng)
{
    fill_copies(a, rng);
    a->copies.known.dtype = (weft_dtype)(WEFT_BF16 + rng_below(rng, 3));
    a->copies.known.staging = a->arena_memory + STAGING_OFFSET;
    a->copies.known.staging_bytes = 16 + rng_below(rng, 200);
}

#define COPIES_MUTATIONS                                                                           \
    FUZZ_ENQUEUED(comm, weft_ep_copies_args, copies),                                              \
        FUZZ_FIELD(copies, num_replicas, -1, WEFT_MAX_EXPERTS + 1, INT32_MAX),                     \
        FUZZ_POINTERS("base", copies.known.base, FUZZ_NULL),                                       \
        FUZZ_POINTERS("experts", copies.known.experts, FUZZ_NULL),                                 \
        FUZZ_NUMBERS(FUZZ_INT32, "base[|experts[", copies_base[0], -2, 1, INT32_MAX, INT32_MIN),   \
        FUZZ_NUMBERS(FUZZ_INT32, "experts[", copies_experts[3], -2, 2, INT32_MAX, INT32_MIN),      \
        FUZZ_FIELD(copies, num_planes, -1, WEFT_MAX_PLANES + 1, INT32_MAX),                        \
        FUZZ_POINTERS("planes", copies.known.planes, FUZZ_NULL), FUZZ_FIELD(copies, reserved, 1),  \
        FUZZ_NUMBERS(FUZZ_INT64, "planes[0]", planes[0].row_bytes, 0, -1, (int64_t)1 << 40,        \
                     INT64_MIN),                                                                   \
        FUZZ_POINTERS("planes[0]", planes[0].src, FUZZ_OUTSIDE),                                   \
        FUZZ_NUMBERS(FUZZ_INT64, "planes[0]", planes[0].src_stride_bytes, 1, -1),                  \
        FUZZ_NUMBERS(FUZZ_INT32, "planes[0]", planes[0].quantisation.dtype, WEFT_INT8, -1),        \
        FUZZ_POINTERS("planes[0].dst", planes[0].dst, FUZZ_NULL, FUZZ_OUTSIDE, FUZZ_GARBAGE,       \
                      FUZZ_ALL_ONES)

FUZZ_TARGET(ep_choose_replicas, fill_choose, (a->comm, a->config, a->stream), fuzz_wait,
            FUZZ_ENQUEUED(comm, weft_ep_replicas_args, choose_replicas),
            FUZZ_FIELD(choose_replicas, num_tokens, -1, INT32_MIN),
            FUZZ_FIELD(choose_replicas, num_topk, 0, -1, WEFT_MAX_TOPK + 1, INT32_MAX),
            FUZZ_FIELD(choose_replicas, num_experts, 0, -1, WEFT_MAX_EXPERTS + 1, INT32_MAX),
            FUZZ_FIELD(choose_replicas, index_type, -1, WEFT_DTYPE_NONE, WEFT_FP32, INT32_MAX),
            FUZZ_POINTERS("topk_idx", choose_replicas.known.topk_idx, FUZZ_NULL, FUZZ_LAST_BYTE),
            FUZZ_POINTERS("replica_idx", choose_replicas.known.replica_idx, FUZZ_NULL,
                          FUZZ_LAST_BYTE),
            FUZZ_POINTERS("granules", choose_replicas.known.granules, FUZZ_NULL, FUZZ_LAST_BYTE))
FUZZ_TARGET(ep_fetch_copies, fill_copies, (a->comm, a->config, a->stream), fuzz_wait,
            COPIES_MUTATIONS, FUZZ_FIELD(copies, dtype, WEFT_FP32, -1),
            FUZZ_POINTERS("staging", copies.known.staging, FUZZ_OUTSIDE),
            FUZZ_NUMBERS(FUZZ_INT64, "staging", copies.known.staging_bytes, 16, -1))
FUZZ_TARGET(ep_reduce_copies, fill_reduce, (a->comm, a->config, a->stream), fuzz_wait,
            COPIES_MUTATIONS, FUZZ_FIELD(copies, dtype, -1, WEFT_DTYPE_NONE, WEFT_INT32, INT32_MAX),
            FUZZ_NUMBERS(FUZZ_INT64, "planes[0]", planes[0].row_bytes, 1, 3),
            FUZZ_POINTERS("staging", copies.known.staging, FUZZ_NULL, FUZZ_OUTSIDE, FUZZ_LAST_BYTE,
                          FUZZ_GARBAGE, FUZZ_ALL_ONES),
            FUZZ_NUMBERS(FUZZ_INT64, "staging", copies.known.staging_bytes, 0, 15, -1, INT64_MIN))
