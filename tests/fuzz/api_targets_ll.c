/* SPDX-License-Identifier: MIT */
#include "api_targets.h"

enum { HIDDEN = 8, CAPACITY = 6, ROWS_BYTES = FUZZ_EXPERTS * CAPACITY * HIDDEN * 4 };

static int coin(struct rng *rng)
{
    return (int)rng_below(rng, 2);
}

/* ---------------------------------------------------------------- create */

static void fill_config(struct fuzz_arguments *a, struct rng *rng)
{
    weft_ll_config *config = &a->ll_config.known;
    FUZZ_FILL_SIZE(a, ll_config, rng);
    config->hidden = 1 + (int64_t)rng_below(rng, 100);
    config->max_tokens = 1 + (int32_t)rng_below(rng, 50);
    config->num_topk = 1 + (int32_t)rng_below(rng, FUZZ_TOPK);
    config->dtype = (weft_dtype)(WEFT_BF16 + rng_below(rng, 3));
    config->layout = WEFT_LL_BY_EXPERT;
    config->expert_capacity = (int32_t)rng_below(rng, 100);
    config->num_results = (int32_t)rng_below(rng, 3);
    config->answer = (weft_ll_answer)coin(rng);
    config->answer_dtype = coin(rng) ? WEFT_DTYPE_NONE : WEFT_FP16;
    if (coin(rng)) {
        config->quantisation.dtype = coin(rng) ? WEFT_FP8_E4M3 : WEFT_INT8;
        config->quantisation.scale = (weft_scale_kind)rng_below(rng, 3);
        config->quantisation.group_elements = coin(rng) ? 0 : (int32_t)config->hidden;
    }
    config->num_blocks = (int32_t)rng_below(rng, 4);
    config->num_warps = (int32_t)rng_below(rng, 33);
    config->route = (weft_ll_route)coin(rng);
}

static void fill_config_to_query(struct fuzz_arguments *a, struct rng *rng)
{
    fill_config(a, rng);
    fuzz_fill_output(a, rng);
}

/* A rank has two experts or more: with one, an expert_capacity of INT32_MAX is right. */
static void fill_job(struct fuzz_arguments *a, struct rng *rng)
{
    FUZZ_FILL_SIZE(a, ll_job, rng);
    fill_config_to_query(a, rng);
    a->job = &a->ll_job;
    a->ll_job.known.num_ranks = 1 + (int32_t)rng_below(rng, 100);
    a->ll_job.known.num_nodes = (int32_t)rng_below(rng, (uint32_t)a->ll_job.known.num_ranks + 1);
    a->ll_config.known.num_experts = a->ll_job.known.num_ranks + 1 + (int64_t)rng_below(rng, 1000);
}

FUZZ_CALL(undo_create, weft_ll_destroy(a->created))

#define CONFIG_MUTATIONS(max_topk)                                                                 \
    FUZZ_POINTERS("config", config, FUZZ_NULL), FUZZ_SIZES(weft_ll_config, ll_config),             \
        FUZZ_FIELD(ll_config, hidden, 0, -1, INT32_MAX / 4 + 1, INT64_MIN),                        \
        FUZZ_FIELD(ll_config, max_tokens, 0, -1, 65536, INT32_MAX),                                \
        FUZZ_FIELD(ll_config, num_topk, 0, -1, (max_topk) + 1, INT32_MAX),                         \
        FUZZ_FIELD(ll_config, dtype, 0, WEFT_INT64, WEFT_FP64, INT32_MIN),                         \
        FUZZ_FIELD(ll_config, layout, -1, 2, INT32_MAX),                                           \
        FUZZ_FIELD(ll_config, expert_capacity, -1, INT32_MAX, INT32_MIN),                          \
        FUZZ_FIELD(ll_config, num_results, -1, 3, INT32_MAX),                                      \
        FUZZ_FIELD(ll_config, answer, -1, 4, INT32_MAX),                                           \
        FUZZ_FIELD(ll_config, answer_dtype, -1, WEFT_INT32, WEFT_FP64, INT32_MAX),                 \
        FUZZ_NUMBERS(FUZZ_INT32, "quantisation.dtype", ll_config.known.quantisation.dtype, -1,     \
                     WEFT_BF16, WEFT_FP64, INT32_MAX),                                             \
        FUZZ_NUMBERS(FUZZ_INT32, "quantisation.scale", ll_config.known.quantisation.scale, -1, 3,  \
                     INT32_MAX),                                                                   \
        FUZZ_NUMBERS(FUZZ_INT32, "group_elements|hidden",                                          \
                     ll_config.known.quantisation.group_elements, -1, 101, INT32_MIN),             \
        FUZZ_FIELD(ll_config, route, 2, -1, INT32_MAX),                                            \
        FUZZ_FIELD(ll_config, carrier, 4, -1, INT32_MAX),                                          \
        FUZZ_FIELD(ll_config, num_blocks, -1, INT32_MAX),                                          \
        FUZZ_FIELD(ll_config, num_warps, -1, 33, INT32_MAX)

/* ---------------------------------------------------------------- dispatch */

static void fill_send(struct fuzz_arguments *a, struct rng *rng)
{
    weft_ll_dispatch_args *args = &a->ll_dispatch.known;
    args->num_tokens = 1 + (int32_t)rng_below(rng, FUZZ_MAX_TOKENS);
    args->x = a->outside;
    args->topk_idx = a->topk_idx;
    args->topk_weights = coin(rng) ? a->topk_weights : NULL;
    args->index_type = WEFT_INT64;
}

static void fill_outputs(struct fuzz_arguments *a, struct rng *rng)
{
    weft_ll_dispatch_args *args = &a->ll_dispatch.known;
    int32_t *numbers = (int32_t *)(void *)(a->arena_memory + ROWS_BYTES);
    args->rows = a->arena_memory;
    args->num_rows_per_rank = coin(rng) ? numbers : NULL;
    args->num_rows_per_expert = coin(rng) ? numbers + 16 : NULL;
    args->src_tokens = coin(rng) ? numbers + 32 : NULL;
    args->row_ranges = coin(rng) ? (int64_t *)(void *)(numbers + 128) : NULL;
    args->total_rows_per_expert = coin(rng) ? numbers + 256 : NULL;
    args->waited_ns = coin(rng) ? (int64_t *)(void *)(numbers + 300) : NULL;
    args->expert_signals = coin(rng) ? (uint64_t *)(void *)(numbers + 320) : NULL;
}

static void fill_dispatch(struct fuzz_arguments *a, struct rng *rng)
{
    FUZZ_FILL_SIZE(a, ll_dispatch, rng);
    fill_send(a, rng);
    fill_outputs(a, rng);
}

static weft_result undo_dispatch(struct fuzz_arguments *a)
{
    const weft_result result = weft_ll_release(a->empty_ll, a->own_stream);
    return result == WEFT_OK ? fuzz_wait(a) : result;
}

/* ---------------------------------------------------------------- combine, release, slots */

/* The result stays for the next call. */
static void fill_combine(struct fuzz_arguments *a, struct rng *rng)
{
    weft_ll_combine_args *args = &a->ll_combine.known;
    FUZZ_FILL_SIZE(a, ll_combine, rng);
    a->ll = a->ready_ll;
    args->keep = 1;
    args->x = a->arena_memory;
    args->x_stride_bytes = coin(rng) ? 0 : sizeof(float) * (HIDDEN + rng_below(rng, 8));
    args->out = a->result_memory;
    args->topk_weights = coin(rng) ? a->topk_weights : NULL;
}

/* With a result to end. */
static void fill_release(struct fuzz_arguments *a, struct rng *rng)
{
    fill_dispatch(a, rng);
    (void)weft_ll_dispatch(a->ll, a->config, a->stream);
}

static weft_result call_release(struct fuzz_arguments *a)
{
    const weft_result result = weft_ll_release(a->ll, a->stream);
    if (result != WEFT_OK) /* the result is no other call's */
        (void)weft_ll_release(a->empty_ll, a->own_stream);
    const weft_result waited = fuzz_wait(a);
    return result == WEFT_OK ? waited : result;
}

static void fill_slots(struct fuzz_arguments *a, struct rng *rng)
{
    a->ll = a->ll_by_rank;
    fuzz_fill_output(a, rng);
}

/* ---------------------------------------------------------------- masks */

/* Epochs grow from call to call. */
static void fill_mask(struct fuzz_arguments *a, struct rng *rng)
{
    static uint64_t epoch;
    (void)rng;
    a->ll = a->masked_ll;
    a->ptr = a->result_memory;
    memset(a->result_memory, 0, sizeof(int32_t));
    a->count = ++epoch;
}

static const struct fuzz_mutation mask_mutations[] = {
    FUZZ_OBJECT("ll", ll), FUZZ_OBJECT("stream", stream), FUZZ_POINTERS("mask", ptr, FUZZ_NULL)};

/* ---------------------------------------------------------------- the objects that stay */

int fuzz_set_up_ll(struct fuzz_arguments *a)
{
    weft_ll_config config = WEFT_INIT(weft_ll_config);
    struct rng rng = {1};
    config.hidden = HIDDEN;
    config.max_tokens = FUZZ_MAX_TOKENS;
    config.num_topk = FUZZ_TOPK;
    config.dtype = WEFT_FP32;
    CHECK_OK(weft_ll_create(a->own_ep, &config, &a->ll_by_rank));
    config.on_missing = WEFT_LL_MASK;
    CHECK_OK(weft_ll_create(a->own_ep, &config, &a->masked_ll));
    config.on_missing = WEFT_LL_FAIL;
    config.layout = WEFT_LL_BY_EXPERT;
    config.expert_capacity = CAPACITY;
    config.answer = WEFT_LL_ANSWER_ROWS;
    CHECK_OK(weft_ll_create(a->own_ep, &config, &a->empty_ll));
    CHECK_OK(weft_ll_create(a->own_ep, &config, &a->ready_ll));
    fill_dispatch(a, &rng);
    CHECK_OK(weft_ll_dispatch(a->ready_ll, a->config, a->own_stream));
    CHECK_OK(weft_stream_synchronize(a->own_stream));
    return 0;
}

FUZZ_TARGET(ll_create, fill_config, (a->ep, a->config, a->out), undo_create, FUZZ_OBJECT("ep", ep),
            CONFIG_MUTATIONS(FUZZ_TOPK), FUZZ_POINTERS("ll", out, FUZZ_NULL))
FUZZ_TARGET(ll_query_sizes, fill_config_to_query, (a->ep, a->config, a->out), NULL,
            FUZZ_OBJECT("ep", ep), CONFIG_MUTATIONS(FUZZ_TOPK),
            FUZZ_POINTERS("sizes", out, FUZZ_NULL), FUZZ_OUTPUT_SIZES)
FUZZ_TARGET(ll_plan_sizes, fill_job, (a->comm, a->job, a->config, a->out), NULL,
            FUZZ_OBJECT("comm", comm), FUZZ_POINTERS("job", job, FUZZ_NULL),
            FUZZ_SIZES(weft_ll_job, ll_job), FUZZ_FIELD(ll_job, num_ranks, 0, -1, 65537, INT32_MAX),
            FUZZ_FIELD(ll_job, num_nodes, -1, 101, INT32_MAX),
            FUZZ_FIELD(ll_config, num_experts, 0, -1, INT64_MAX), CONFIG_MUTATIONS(WEFT_MAX_TOPK),
            FUZZ_POINTERS("sizes", out, FUZZ_NULL), FUZZ_OUTPUT_SIZES)
FUZZ_TARGET(
    ll_dispatch, fill_dispatch, (a->ll, a->config, a->stream), undo_dispatch,
    FUZZ_ENQUEUED(ll, weft_ll_dispatch_args, ll_dispatch),
    FUZZ_FIELD(ll_dispatch, phases, -1, 3, INT32_MAX), /* Which does not use what is there. */
    FUZZ_NUMBERS(FUZZ_INT32, "is not NULL|num_tokens", ll_dispatch.known.phases, WEFT_LL_RECEIVE),
    FUZZ_FIELD(ll_dispatch, num_tokens, -1, FUZZ_MAX_TOKENS + 1, INT32_MAX, INT32_MIN),
    FUZZ_POINTERS("x", ll_dispatch.known.x, FUZZ_NULL),
    FUZZ_POINTERS("topk_idx", ll_dispatch.known.topk_idx, FUZZ_NULL),
    FUZZ_FIELD(ll_dispatch, index_type, -1, WEFT_DTYPE_NONE, WEFT_FP32, INT32_MAX),
    FUZZ_POINTERS("rows", ll_dispatch.known.rows, FUZZ_NULL, FUZZ_OUTSIDE),
    FUZZ_POINTERS("scales", ll_dispatch.known.scales, FUZZ_OUTSIDE),
    FUZZ_FIELD(ll_dispatch, scale_column_bytes, 4, 1024, -1), FUZZ_FIELD(ll_dispatch, call, 2, -1),
    FUZZ_FIELD(ll_dispatch, expert_capacity, -1, INT32_MAX),
    FUZZ_POINTERS("num_rows_per_expert", ll_dispatch.known.num_rows_per_expert, FUZZ_OUTSIDE),
    FUZZ_POINTERS("src_tokens", ll_dispatch.known.src_tokens, FUZZ_OUTSIDE),
    FUZZ_POINTERS("row_ranges", ll_dispatch.known.row_ranges, FUZZ_OUTSIDE),
    FUZZ_POINTERS("total_rows_per_expert", ll_dispatch.known.total_rows_per_expert, FUZZ_OUTSIDE),
    FUZZ_POINTERS("num_rows_per_rank", ll_dispatch.known.num_rows_per_rank, FUZZ_OUTSIDE),
    FUZZ_POINTERS("expert_signals", ll_dispatch.known.expert_signals, FUZZ_OUTSIDE),
    FUZZ_POINTERS("waited_ns", ll_dispatch.known.waited_ns, FUZZ_OUTSIDE))
FUZZ_TARGET(ll_combine, fill_combine, (a->ll, a->config, a->stream), fuzz_wait,
            FUZZ_ENQUEUED(ll, weft_ll_combine_args, ll_combine),
            FUZZ_FIELD(ll_combine, phases, -1, 3, INT32_MAX),
            FUZZ_NUMBERS(FUZZ_INT32, "keep", ll_combine.known.phases, WEFT_LL_RECEIVE),
            FUZZ_FIELD(ll_combine, keep, -1, 2, INT32_MAX, INT32_MIN),
            FUZZ_POINTERS("x", ll_combine.known.x, FUZZ_NULL),
            FUZZ_FIELD(ll_combine, x_stride_bytes, 1, 31, -4, INT64_MIN),
            FUZZ_POINTERS("out", ll_combine.known.out, FUZZ_NULL),
            FUZZ_FIELD(ll_combine, signal_value, 1, -1),
            FUZZ_FIELD(ll_combine, rows_per_signal, 1, -1))
FUZZ_TARGET_AS(ll_mask, fill_mask, (a->ll, a->ptr, a->stream), fuzz_wait, mask)
FUZZ_TARGET_AS(ll_query_mask, fill_mask, (a->ll, a->ptr, a->stream), fuzz_wait, mask)
FUZZ_TARGET(ll_unmask, fill_mask, (a->ll, a->ptr, a->count, a->stream), fuzz_wait,
            FUZZ_OBJECT("ll", ll), FUZZ_OBJECT("stream", stream),
            FUZZ_POINTERS("mask", ptr, FUZZ_NULL), FUZZ_NUMBERS(FUZZ_INT64, "epoch", count, 0))
FUZZ_TARGET_BY(ll_release, ll_release, fill_release, call_release, NULL, FUZZ_OBJECT("ll", ll),
               FUZZ_OBJECT("stream", stream))
FUZZ_TARGET(ll_query_slots, fill_slots, (a->ll, a->out), NULL, FUZZ_OBJECT("ll", ll),
            FUZZ_POINTERS("slots", out, FUZZ_NULL), FUZZ_OUTPUT_SIZES)
