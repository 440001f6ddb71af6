/* SPDX-License-Identifier: MIT */
#include "api_targets.h"

static int coin(struct rng *rng)
{
    return (int)rng_below(rng, 2);
}

/* ---------------------------------------------------------------- create */

static void fill_create(struct fuzz_arguments *a, struct rng *rng)
{
    FUZZ_FILL_SIZE(a, ep_config, rng);
    a->ep_config.known.num_experts = FUZZ_EXPERTS;
    a->ep_config.known.max_topk = (int32_t)rng_below(rng, WEFT_MAX_TOPK + 1);
    a->ep_config.known.num_blocks = (int32_t)rng_below(rng, 4);
    a->ep_config.known.num_warps = (int32_t)rng_below(rng, 33);
    for (int32_t expert = 0; expert <= FUZZ_EXPERTS; expert++)
        a->expert_offsets[expert] = expert;
    memset(a->expert_ranks, 0, sizeof a->expert_ranks);
    a->ep_config.known.expert_offsets = a->expert_offsets;
    a->ep_config.known.expert_ranks = a->expert_ranks;
}

FUZZ_CALL(undo_create, weft_ep_destroy(a->created))

/* ---------------------------------------------------------------- handle */

static void fill_handle(struct fuzz_arguments *a, struct rng *rng)
{
    FUZZ_FILL_SIZE(a, handle_config, rng);
    a->handle_config.known.max_tokens = (int32_t)rng_below(rng, 1000);
    a->handle_config.known.num_topk = 1 + (int32_t)rng_below(rng, FUZZ_TOPK);
    a->handle_config.known.expert_alignment = (int32_t)rng_below(rng, 300);
    a->handle_config.known.num_experts = (int32_t)rng_below(rng, FUZZ_EXPERTS + 1);
    a->handle_config.known.order = (weft_ep_order)coin(rng);
}

FUZZ_CALL(undo_handle, weft_ep_handle_destroy(a->created))

/* ---------------------------------------------------------------- layout, notify */

static void fill_layout(struct fuzz_arguments *a, struct rng *rng)
{
    FUZZ_FILL_SIZE(a, layout, rng);
    a->handle = a->empty_handle;
    a->layout.known.num_tokens = 1 + (int32_t)rng_below(rng, FUZZ_MAX_TOKENS);
    a->layout.known.index_type = WEFT_INT64;
    a->layout.known.topk_idx = a->topk_idx;
    if (coin(rng))
        a->layout.known.num_tokens_per_rank = (int32_t *)(void *)a->result_memory;
    if (coin(rng))
        a->layout.known.num_tokens_per_node = (int32_t *)(void *)(a->result_memory + 64);
    if (coin(rng))
        a->layout.known.num_tokens_per_expert = (int32_t *)(void *)(a->result_memory + 128);
    if (coin(rng))
        a->layout.known.is_token_in_rank = (uint8_t *)a->result_memory + 256;
}

static void fill_layout_by_table(struct fuzz_arguments *a, struct rng *rng)
{
    fill_layout(a, rng);
    memset(a->expert_ranks, 0, sizeof a->expert_ranks);
    a->layout.known.index_type = WEFT_DTYPE_NONE;
    a->layout.known.topk_idx = NULL;
    a->layout.known.tokens_to_ranks = (const uint8_t *)a->outside;
    a->layout.known.selections_per_expert = a->expert_ranks;
}

FUZZ_CALL(call_layout, weft_ep_layout(a->handle, a->config, a->stream))

/* ---------------------------------------------------------------- dispatch */

static void quantise_plane(weft_plane *plane, char *scales, struct rng *rng)
{
    const int32_t num_elements = 6 * (1 + (int32_t)rng_below(rng, 5));
    plane->dtype = (weft_dtype)(WEFT_BF16 + rng_below(rng, 3));
    plane->quantisation.dtype = coin(rng) ? WEFT_FP8_E4M3 : WEFT_INT8;
    plane->quantisation.scale = (weft_scale_kind)rng_below(rng, WEFT_SCALE_UE8M0 + 1);
    plane->quantisation.group_elements = 3 * (int32_t)rng_below(rng, 3);
    plane->scales = scales;
    plane->row_bytes = (uint64_t)num_elements * (plane->dtype == WEFT_FP32 ? 4 : 2);
}

static void fill_dispatch(struct fuzz_arguments *a, struct rng *rng)
{
    weft_ep_dispatch_args *args = &a->dispatch.known;
    FUZZ_FILL_SIZE(a, dispatch, rng);
    args->num_planes = 1 + (int32_t)rng_below(rng, WEFT_MAX_PLANES);
    args->planes = a->planes;
    args->capacity = 2 + (int32_t)rng_below(rng, FUZZ_MAX_TOKENS);
    for (int32_t plane = 0; plane < args->num_planes; plane++)
        a->planes[plane] = (weft_plane){.size = sizeof(weft_plane),
                                        .src = a->outside,
                                        .dst = a->arena_memory + 1024 * plane + rng_below(rng, 16),
                                        .row_bytes = 1 + rng_below(rng, 100),
                                        .src_stride_bytes = coin(rng) ? 0 : 128};
    if (args->num_planes < WEFT_MAX_PLANES && coin(rng))
        quantise_plane(&a->planes[args->num_planes - 1], a->arena_memory + 12288, rng);
    args->index_type = WEFT_INT64;
    args->topk_idx = a->topk_idx;
    args->topk_weights = a->topk_weights;
    args->recv_topk_idx = a->arena_memory + 9216;
    args->recv_topk_weights = (float *)(void *)(a->arena_memory + 10240);
    args->recv_src_token = (int32_t *)(void *)(a->arena_memory + 11264);
    args->num_blocks = (int32_t)rng_below(rng, FUZZ_BLOCKS + 1);
}

/* ---------------------------------------------------------------- combine */

static void fill_combine(struct fuzz_arguments *a, struct rng *rng)
{
    weft_ep_combine_args *args = &a->combine.known;
    FUZZ_FILL_SIZE(a, combine, rng);
    args->dtype = (weft_dtype)(WEFT_BF16 + rng_below(rng, 3));
    args->hidden = 1 + (int64_t)rng_below(rng, 64);
    args->capacity = 1 + (int32_t)rng_below(rng, FUZZ_MAX_TOKENS);
    args->num_blocks = (int32_t)rng_below(rng, FUZZ_BLOCKS + 1);
    args->x = a->arena_memory;
    args->bias[0] = coin(rng) ? a->outside : NULL;
    args->bias[1] = coin(rng) ? a->outside : NULL;
    args->out = a->result_memory;
    args->topk_weights = (const float *)(const void *)(a->arena_memory + 4096);
    args->out_topk_weights = (float *)(void *)(a->result_memory + 3072);
}

/* ---------------------------------------------------------------- queries */

static void fill_sizes(struct fuzz_arguments *a, struct rng *rng)
{
    FUZZ_FILL_SIZE(a, sizes, rng);
    fuzz_fill_output(a, rng);
    a->sizes.known.max_tokens_per_rank = (int32_t)rng_below(rng, 100000);
    a->sizes.known.num_topk = 1 + (int32_t)rng_below(rng, FUZZ_TOPK);
    a->sizes.known.num_planes = 1 + (int32_t)rng_below(rng, WEFT_MAX_PLANES);
    for (int32_t plane = 0; plane < WEFT_MAX_PLANES; plane++)
        a->plane_row_bytes[plane] = 1 + rng_below(rng, INT32_MAX);
    a->sizes.known.plane_row_bytes = a->plane_row_bytes;
    a->sizes.known.index_type = (weft_dtype)(WEFT_INT32 + coin(rng));
    a->sizes.known.with_topk = coin(rng);
    a->sizes.known.with_src_token = coin(rng);
}

static const struct fuzz_mutation counts_mutations[] = {
    FUZZ_OBJECT("handle", handle),
    FUZZ_POINTERS("counts", out, FUZZ_NULL),
    FUZZ_OUTPUT_SIZES,
};

/* To the same places of other arrays. */
static void fill_move(struct fuzz_arguments *a, struct rng *rng)
{
    enum { MAX_EXPERT_BYTES = 64 };
    a->ranks[0] = 1 + (int32_t)rng_below(rng, 2);
    for (int32_t i = 0; i < a->ranks[0]; i++) {
        char *array = a->arena_memory + 2 * i * FUZZ_EXPERTS * MAX_EXPERT_BYTES;
        a->planes[i] = (weft_plane){.size = sizeof(weft_plane),
                                    .src = array,
                                    .dst = array + FUZZ_EXPERTS * MAX_EXPERT_BYTES,
                                    .row_bytes = 1 + rng_below(rng, MAX_EXPERT_BYTES)};
    }
    a->ptr = a->planes;
}

FUZZ_TARGET(ep_create, fill_create, (a->comm, a->config, a->out), undo_create,
            FUZZ_OBJECT("comm", comm), FUZZ_POINTERS("config", config, FUZZ_NULL),
            FUZZ_POINTERS("ep", out, FUZZ_NULL), FUZZ_SIZES(weft_ep_config, ep_config),
            FUZZ_FIELD(ep_config, num_experts, 0, -1, INT32_MIN),
            FUZZ_FIELD(ep_config, max_topk, -1, WEFT_MAX_TOPK + 1, INT32_MAX),
            FUZZ_FIELD(ep_config, num_blocks, -1, INT32_MIN),
            FUZZ_FIELD(ep_config, num_warps, -1, 33, INT32_MAX),
            FUZZ_FIELD(ep_config, staging_bytes, -1, INT64_MAX, INT64_MIN),
            FUZZ_PAIR("expert_offsets", ep_config.known.expert_offsets, FUZZ_NULL),
            FUZZ_PAIR("expert_ranks", ep_config.known.expert_ranks, FUZZ_NULL),
            FUZZ_NUMBERS(FUZZ_INT32, "expert_offsets", expert_offsets[0], 1, -1, INT32_MAX),
            FUZZ_NUMBERS(FUZZ_INT32, "expert_offsets", expert_offsets[2], 1, 0, -5, INT32_MIN),
            FUZZ_NUMBERS(FUZZ_INT32, "expert_ranks", expert_ranks[3], 1, -1, INT32_MAX, INT32_MIN))
FUZZ_TARGET(ep_handle_create, fill_handle, (a->ep, a->config, a->out), undo_handle,
            FUZZ_OBJECT("ep", ep), FUZZ_POINTERS("config", config, FUZZ_NULL),
            FUZZ_POINTERS("handle", out, FUZZ_NULL),
            FUZZ_SIZES(weft_ep_handle_config, handle_config),
            FUZZ_FIELD(handle_config, max_tokens, -1, INT32_MIN),
            FUZZ_FIELD(handle_config, num_topk, 0, -1, FUZZ_TOPK + 1, INT32_MAX),
            FUZZ_FIELD(handle_config, num_experts, -1, FUZZ_EXPERTS + 1, INT32_MAX, INT32_MIN),
            FUZZ_FIELD(handle_config, expert_alignment, -1, INT32_MIN),
            FUZZ_FIELD(handle_config, order, -1, 2, INT32_MAX))
FUZZ_TARGET_BY(ep_layout, ep_layout, fill_layout, call_layout, fuzz_wait,
               FUZZ_ENQUEUED(handle, weft_ep_layout_args, layout),
               FUZZ_FIELD(layout, num_tokens, -1, FUZZ_MAX_TOKENS + 1, INT32_MAX, INT32_MIN),
               FUZZ_FIELD(layout, index_type, -1, WEFT_DTYPE_NONE, 3, INT32_MAX),
               FUZZ_POINTERS("topk_idx", layout.known.topk_idx, FUZZ_NULL))
FUZZ_TARGET_BY(ep_layout_2, ep_layout, fill_layout_by_table, call_layout, fuzz_wait,
               FUZZ_POINTERS("topk_idx", layout.known.topk_idx, FUZZ_OUTSIDE),
               FUZZ_FIELD(layout, index_type, -1, WEFT_INT32, INT32_MAX),
               FUZZ_POINTERS("tokens_to_ranks|index_type|topk_idx", layout.known.tokens_to_ranks,
                             FUZZ_NULL),
               FUZZ_POINTERS("selections_per_expert|index_type|topk_idx",
                             layout.known.selections_per_expert, FUZZ_NULL))
FUZZ_TARGET(ep_notify, NULL, (a->handle, a->stream), fuzz_wait, FUZZ_OBJECT("handle", handle),
            FUZZ_OBJECT("stream", stream))
FUZZ_TARGET(ep_dispatch, fill_dispatch, (a->handle, a->config, a->stream), fuzz_wait,
            FUZZ_ENQUEUED(handle, weft_ep_dispatch_args, dispatch),
            FUZZ_FIELD(dispatch, num_planes, -1, WEFT_MAX_PLANES + 1, INT32_MAX, INT32_MIN),
            FUZZ_POINTERS("planes", dispatch.known.planes, FUZZ_NULL),
            FUZZ_NUMBERS(FUZZ_INT32, "capacity|dst|recv_", dispatch.known.capacity, -1, INT32_MIN,
                         INT32_MAX),
            FUZZ_NUMBERS(FUZZ_INT64, "planes[0].row_bytes", planes[0].row_bytes, 0, -1,
                         (int64_t)1 << 31, INT64_MIN),
            FUZZ_NUMBERS(FUZZ_INT64, "planes[0].row_bytes|dst", planes[0].row_bytes, INT32_MAX),
            FUZZ_POINTERS("planes[0].src", planes[0].src, FUZZ_NULL),
            FUZZ_POINTERS("planes[0].dst", planes[0].dst, FUZZ_NULL, FUZZ_LAST_BYTE),
            FUZZ_NUMBERS(FUZZ_INT32, "quantisation.dtype|dtype", planes[0].quantisation.dtype, -1,
                         WEFT_BF16, INT32_MAX),
            FUZZ_NUMBERS(FUZZ_INT32, "quantisation", planes[0].quantisation.scale, -1,
                         WEFT_SCALE_UE8M0 + 1, INT32_MAX),
            FUZZ_NUMBERS(FUZZ_INT32, "quantisation", planes[0].quantisation.group_elements, -1, 101,
                         INT32_MAX),
            FUZZ_FIELD(dispatch, index_type, -1, WEFT_DTYPE_NONE, 3, INT32_MIN),
            FUZZ_PAIR("topk_idx", dispatch.known.topk_idx, FUZZ_NULL),
            FUZZ_PAIR("topk_weights", dispatch.known.topk_weights, FUZZ_NULL),
            FUZZ_PAIR("recv_topk_idx", dispatch.known.recv_topk_idx, FUZZ_NULL, FUZZ_LAST_BYTE),
            FUZZ_PAIR("recv_topk_weights", dispatch.known.recv_topk_weights, FUZZ_NULL,
                      FUZZ_LAST_BYTE),
            FUZZ_FIELD(dispatch, num_blocks, -1, FUZZ_BLOCKS + 1, INT32_MAX, INT32_MIN),
            FUZZ_POINTERS("recv_src_token", dispatch.known.recv_src_token, FUZZ_LAST_BYTE))
FUZZ_TARGET(ep_combine, fill_combine, (a->handle, a->config, a->stream), fuzz_wait,
            FUZZ_ENQUEUED(handle, weft_ep_combine_args, combine),
            FUZZ_FIELD(combine, dtype, WEFT_INT64, WEFT_FP64, INT32_MAX, INT32_MIN),
            FUZZ_FIELD(combine, hidden, 0, -1, INT64_MIN),
            FUZZ_NUMBERS(FUZZ_INT64, "hidden|x is|x [|out is", combine.known.hidden, INT64_MAX,
                         1 << 28, (int64_t)1 << 62),
            FUZZ_NUMBERS(FUZZ_INT32, "capacity|x", combine.known.capacity, -1, INT32_MIN,
                         INT32_MAX),
            FUZZ_FIELD(combine, num_blocks, -1, FUZZ_BLOCKS + 1, INT32_MAX, INT32_MIN),
            FUZZ_FIELD(combine, reserved, 1, -1),
            FUZZ_POINTERS("x", combine.known.x, FUZZ_NULL, FUZZ_LAST_BYTE),
            FUZZ_POINTERS("out", combine.known.out, FUZZ_NULL),
            FUZZ_PAIR("topk_weights", combine.known.topk_weights, FUZZ_NULL, FUZZ_LAST_BYTE),
            FUZZ_PAIR("out_topk_weights", combine.known.out_topk_weights, FUZZ_NULL))
FUZZ_TARGET(ep_query_sizes, fill_sizes, (a->ep, a->config, a->out), NULL, FUZZ_OBJECT("ep", ep),
            FUZZ_POINTERS("args", config, FUZZ_NULL), FUZZ_POINTERS("sizes", out, FUZZ_NULL),
            FUZZ_OUTPUT_SIZES, FUZZ_SIZES(weft_ep_size_args, sizes),
            FUZZ_NUMBERS(FUZZ_INT32, "max_tokens", sizes.known.max_tokens_per_rank, -1, INT32_MIN),
            FUZZ_FIELD(sizes, num_topk, 0, -1, WEFT_MAX_TOPK + 1, INT32_MAX),
            FUZZ_FIELD(sizes, num_planes, -1, WEFT_MAX_PLANES + 1, INT32_MAX),
            FUZZ_POINTERS("plane_row_bytes", sizes.known.plane_row_bytes, FUZZ_NULL),
            FUZZ_NUMBERS(FUZZ_INT64, "plane_row_bytes", plane_row_bytes[0], 0, -1, (int64_t)1 << 31,
                         INT64_MIN),
            FUZZ_FIELD(sizes, index_type, -1, 3))
FUZZ_TARGET_AS(ep_wait_counts, fuzz_fill_output, (a->handle, a->out), NULL, counts)
FUZZ_TARGET_AS(ep_query_device_counts, fuzz_fill_output, (a->handle, a->out), NULL, counts)
FUZZ_TARGET(ep_move_experts, fill_move, (a->ep, a->ep, a->ptr, a->ranks[0], a->stream), fuzz_wait,
            FUZZ_OBJECT("from", ep), FUZZ_OBJECT("stream", stream),
            FUZZ_POINTERS("planes", ptr, FUZZ_NULL),
            FUZZ_NUMBERS(FUZZ_INT32, "num_planes", ranks[0], -1, WEFT_MAX_PLANES + 1, INT32_MAX),
            FUZZ_NUMBERS(FUZZ_INT64, "planes[0]", planes[0].row_bytes, 0, -1, (int64_t)1 << 40,
                         INT64_MIN),
            FUZZ_NUMBERS(FUZZ_INT64, "planes[0]", planes[0].src_stride_bytes, 1, -1),
            FUZZ_NUMBERS(FUZZ_INT32, "planes[0]", planes[0].quantisation.dtype, WEFT_INT8, -1),
            FUZZ_POINTERS("planes[0].src", planes[0].src, FUZZ_NULL, FUZZ_OUTSIDE, FUZZ_GARBAGE,
                          FUZZ_ALL_ONES),
            FUZZ_POINTERS("planes[0].dst", planes[0].dst, FUZZ_NULL, FUZZ_OUTSIDE, FUZZ_GARBAGE,
                          FUZZ_ALL_ONES))
