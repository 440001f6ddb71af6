/* SPDX-License-Identifier: MIT */
/* What low latency refuses, by name: configurations, arguments, and ranks that disagree. What is
 * wrong by itself, whatever the layout and the phases, fuzz_api_arguments tries. */
#include "harness/cmocka.h"
#include "harness/ll_scene.h"

static weft_ll_config quantised_config(weft_ll_layout layout)
{
    weft_ll_config config = ll_scene_config(layout);
    config.quantisation.dtype = WEFT_FP8_E4M3;
    config.quantisation.scale = WEFT_SCALE_UE8M0;
    config.quantisation.group_elements = LL_SCENE_HIDDEN / 4;
    if (layout == WEFT_LL_BY_EXPERT)
        config.answer = WEFT_LL_ANSWER_ROWS;
    return config;
}

#define TEST_ON_SCENE(name)                                                                        \
    RANKS_WITH(TEST_ON_RANKS(name, RANKS_THREADS, LL_SCENE_RANKS), name, struct ll_scene, scene,   \
               ll_scene_open, ll_scene_close)

/* ---------------------------------------------------------------- configurations */

static int refuse_config(const struct ll_scene *scene, const weft_ll_config *config,
                         const char *text)
{
    weft_ll_sizes sizes = WEFT_INIT(weft_ll_sizes);
    weft_ll *ll;
    REFUSED(weft_ll_query_sizes(scene->ep, config, &sizes), text);
    REFUSED(weft_ll_create(scene->ep, config, &ll), text);
    return 0;
}

#define CONFIG_REFUSED(layout, field, value, text)                                                 \
    CHANGE_REFUSED(ll_scene_config(layout), field, value, text)
#define QUANTISED_REFUSED(field, value, text)                                                      \
    CHANGE_REFUSED(quantised_config(WEFT_LL_BY_RANK), field, value, text)
#define CHANGE_REFUSED(right, field, value, text)                                                  \
    do {                                                                                           \
        weft_ll_config config = right;                                                             \
        config.field = value;                                                                      \
        if (refuse_config(scene, &config, text))                                                   \
            return 1;                                                                              \
    } while (0)

TEST_ON_SCENE(configurations_are_refused)
{
    CONFIG_REFUSED(WEFT_LL_BY_RANK, expert_capacity, 1, "expert_capacity");
    CONFIG_REFUSED(WEFT_LL_BY_RANK, answer, WEFT_LL_ANSWER_ROWS, "answer");
    CONFIG_REFUSED(WEFT_LL_BY_RANK, answer, WEFT_LL_ANSWER_SUMS_WEIGHED_LATE,
                   "answer is WEFT_LL_ANSWER_SUMS_WEIGHED_LATE");
    CONFIG_REFUSED(WEFT_LL_BY_EXPERT, answer, (weft_ll_answer)4, "answer");
    CONFIG_REFUSED(WEFT_LL_BY_RANK, quantisation.scale, WEFT_SCALE_UE8M0, "scale");
    CONFIG_REFUSED(WEFT_LL_BY_RANK, quantisation.group_elements, LL_SCENE_HIDDEN, "group_elements");
    CONFIG_REFUSED(WEFT_LL_BY_RANK, on_missing, (weft_ll_on_missing)2, "on_missing");
    CONFIG_REFUSED(WEFT_LL_BY_RANK, on_missing, (weft_ll_on_missing)-1, "on_missing");
    CONFIG_REFUSED(WEFT_LL_BY_RANK, missing_ms, 1, "missing_ms");
    weft_ll_config relayed = ll_scene_config(WEFT_LL_BY_RANK);
    relayed.route = WEFT_LL_RELAYED;
    CHANGE_REFUSED(relayed, on_missing, WEFT_LL_MASK, "route is WEFT_LL_RELAYED");
    CONFIG_REFUSED(WEFT_LL_BY_RANK, carrier, (weft_ll_carrier)4, "carrier");
    weft_ll_config packets = ll_scene_config(WEFT_LL_BY_EXPERT);
    packets.carrier = WEFT_LL_PACKETS;
    CHANGE_REFUSED(packets, max_tokens, 256 / LL_SCENE_TOPK - 1,
                   "carrier is WEFT_LL_PACKETS (2), which needs by expert max_tokens * num_topk");
    CHANGE_REFUSED(
        packets, max_tokens, 127,
        "; max_tokens is 127, num_topk 2, hidden 16, of 2 ranks the one with most experts has 3");
    CHANGE_REFUSED(packets, answer, WEFT_LL_ANSWER_ROWS, "which needs answer WEFT_LL_ANSWER_SUMS");
    CHANGE_REFUSED(packets, answer_dtype, WEFT_BF16,
                   "which needs answer_dtype WEFT_DTYPE_NONE or dtype");
    packets.carrier = WEFT_LL_TOLD_PACKETS;
    CHANGE_REFUSED(packets, max_tokens, 3968 / LL_SCENE_TOPK + 1,
                   "carrier is WEFT_LL_TOLD_PACKETS (3), which needs max_tokens * num_topk");
    CHANGE_REFUSED(packets, answer_dtype, WEFT_BF16,
                   "which needs answer_dtype WEFT_DTYPE_NONE or dtype");
    QUANTISED_REFUSED(carrier, WEFT_LL_PACKETS, "which needs scales of 32 bits");
    QUANTISED_REFUSED(quantisation.group_elements, 3, "group_elements is 3, must divide hidden");
    QUANTISED_REFUSED(quantisation.group_elements, 2 * LL_SCENE_HIDDEN, "group_elements");
    /* By expert, rows are counted in 32 bits. */
    CHECK_OK(
        weft_ep_create(scene->comm, WEFT_ARGS(weft_ep_config, .num_experts = 100000), &scene->ep));
    CONFIG_REFUSED(WEFT_LL_BY_EXPERT, max_tokens, 30000, "max_tokens");
    return 0;
}

#define DISAGREEMENT(layout, field, value, name)                                                   \
    CONFIGS_DISAGREE(ll_scene_config(layout), field, value, name)
#define CONFIGS_DISAGREE(common, field, value, name)                                               \
    do {                                                                                           \
        weft_ll_config config = common;                                                            \
        if (context->rank == 1)                                                                    \
            config.field = value;                                                                  \
        CHECK_ERROR(weft_ll_create(scene->ep, &config, &ll), WEFT_ERROR_MISMATCH,                  \
                    "ranks disagree on " name ":");                                                \
    } while (0)

TEST_ON_SCENE(ranks_that_disagree_are_told_on_what)
{
    const weft_ll_config quantised = quantised_config(WEFT_LL_BY_EXPERT);
    weft_ll_config masked = ll_scene_config(WEFT_LL_BY_RANK);
    weft_ll *ll;
    masked.on_missing = WEFT_LL_MASK;
    masked.missing_ms = 300;
    DISAGREEMENT(WEFT_LL_BY_RANK, hidden, LL_SCENE_HIDDEN + 1, "hidden");
    DISAGREEMENT(WEFT_LL_BY_RANK, max_tokens, LL_SCENE_TOKENS + 1, "max_tokens");
    DISAGREEMENT(WEFT_LL_BY_RANK, num_topk, 1, "num_topk");
    DISAGREEMENT(WEFT_LL_BY_RANK, dtype, WEFT_BF16, "dtype");
    DISAGREEMENT(WEFT_LL_BY_EXPERT, expert_capacity, LL_SCENE_CAPACITY + 1, "expert_capacity");
    DISAGREEMENT(WEFT_LL_BY_RANK, num_results, 1, "num_results");
    DISAGREEMENT(WEFT_LL_BY_EXPERT, answer, WEFT_LL_ANSWER_ROWS, "answer");
    DISAGREEMENT(WEFT_LL_BY_RANK, answer_dtype, WEFT_BF16, "answer_dtype");
    DISAGREEMENT(WEFT_LL_BY_RANK, on_missing, WEFT_LL_MASK, "on_missing");
    DISAGREEMENT(WEFT_LL_BY_RANK, route, WEFT_LL_RELAYED, "route");
    DISAGREEMENT(WEFT_LL_BY_RANK, carrier, WEFT_LL_SIGNALS, "carrier");
    CONFIGS_DISAGREE(quantised, quantisation.dtype, WEFT_INT8, "quantisation.dtype");
    CONFIGS_DISAGREE(quantised, quantisation.scale, WEFT_SCALE_FP32, "quantisation.scale");
    CONFIGS_DISAGREE(quantised, quantisation.group_elements, 1, "quantisation.group_elements");
    CONFIGS_DISAGREE(masked, missing_ms, 301, "missing_ms");
    CONFIGS_DISAGREE(masked, missing_ms, 0, "missing_ms");
    weft_ll_config config =
        ll_scene_config(context->rank == 0 ? WEFT_LL_BY_RANK : WEFT_LL_BY_EXPERT);
    CHECK_ERROR(weft_ll_create(scene->ep, &config, &ll), WEFT_ERROR_MISMATCH,
                "ranks disagree on layout:");
    /* What each rank may have as it likes. */
    config = ll_scene_config(WEFT_LL_BY_RANK);
    config.num_blocks = 1 + context->rank;
    config.num_warps = 2 - context->rank;
    CHECK_OK(weft_ll_create(scene->ep, &config, &ll));
    CHECK_OK(ll_scene_dispatch(scene, ll, WEFT_LL_SEND_AND_RECEIVE));
    CHECK_OK(ll_scene_combine(scene, ll, WEFT_LL_SEND_AND_RECEIVE, 0));
    return 0;
}

/* The heap has grown by what was told, but for the ends of its blocks. */
TEST_ON_SCENE(sizes_are_those_of_the_memory_in_use)
{
    enum { HEAP_BLOCK = 256 };
    for (int i = 0; i < 8; i++) {
        weft_ll_config config = ll_scene_config(i % 2 == 0 ? WEFT_LL_BY_RANK : WEFT_LL_BY_EXPERT);
        weft_ll_sizes sizes = WEFT_INIT(weft_ll_sizes);
        weft_heap_info before = WEFT_INIT(weft_heap_info), after = WEFT_INIT(weft_heap_info);
        weft_ll *ll;
        config.num_results = 1 + i / 2 % 2;
        config.on_missing = i < 4 ? WEFT_LL_FAIL : WEFT_LL_MASK;
        config.max_tokens = 100 + i;
        CHECK_OK(weft_ll_query_sizes(scene->ep, &config, &sizes));
        CHECK_OK(weft_heap_query(scene->comm, &before));
        CHECK_OK(weft_ll_create(scene->ep, &config, &ll));
        CHECK_OK(weft_heap_query(scene->comm, &after));
        const uint64_t grown = after.used_bytes - before.used_bytes;
        CHECK(grown >= sizes.heap_bytes && grown < sizes.heap_bytes + HEAP_BLOCK,
              "%llu bytes of the heap, not %llu", (unsigned long long)grown,
              (unsigned long long)sizes.heap_bytes);
        const int is_by_expert = config.layout == WEFT_LL_BY_EXPERT;
        const uint64_t rows_bytes =
            is_by_expert ? LL_SCENE_LOCAL_EXPERTS * LL_SCENE_CAPACITY * LL_SCENE_HIDDEN * 4u : 0u;
        CHECK(sizes.num_local_experts == LL_SCENE_LOCAL_EXPERTS &&
                  sizes.expert_capacity == (is_by_expert ? LL_SCENE_CAPACITY : 0) &&
                  sizes.rows_bytes == rows_bytes,
              "%d experts, %d rows each, %llu bytes", sizes.num_local_experts,
              sizes.expert_capacity, (unsigned long long)sizes.rows_bytes);
        CHECK_OK(weft_ll_destroy(ll));
        CHECK_OK(weft_heap_query(scene->comm, &after));
        CHECK(after.used_bytes == before.used_bytes, "%llu bytes are left",
              (unsigned long long)(after.used_bytes - before.used_bytes));
    }
    return 0;
}

/* ---------------------------------------------------------------- jobs that are planned */

static int compare_sizes(const weft_ll_sizes *planned, const weft_ll_sizes *sizes)
{
    CHECK(memcmp(planned, sizes, sizeof *sizes) == 0,
          "%llu and %llu bytes of heap, %llu and %llu beside it, %d and %d experts",
          (unsigned long long)planned->heap_bytes, (unsigned long long)sizes->heap_bytes,
          (unsigned long long)planned->memory_bytes, (unsigned long long)sizes->memory_bytes,
          planned->num_local_experts, sizes->num_local_experts);
    return 0;
}

/* A communicator of one rank tells of this job what its own does. */
TEST_ON_SCENE(a_planned_job_has_the_sizes_of_the_job)
{
    weft_comm *alone;
    CHECK_OK(weft_comm_split(scene->comm, context->rank, 0, NULL, &alone));
    for (int i = 0; i < 4; i++) {
        weft_ll_job job = WEFT_INIT(weft_ll_job);
        weft_ll_config config = ll_scene_config(i % 2 == 0 ? WEFT_LL_BY_RANK : WEFT_LL_BY_EXPERT);
        weft_ll_sizes sizes = WEFT_INIT(weft_ll_sizes), planned = WEFT_INIT(weft_ll_sizes);
        config.on_missing = i < 2 ? WEFT_LL_FAIL : WEFT_LL_MASK;
        config.num_experts = LL_SCENE_EXPERTS;
        job.num_ranks = LL_SCENE_RANKS;
        CHECK_OK(weft_ll_query_sizes(scene->ep, &config, &sizes));
        CHECK_OK(weft_ll_plan_sizes(alone, &job, &config, &planned));
        if (compare_sizes(&planned, &sizes))
            return 1;
    }
    CHECK_OK(weft_comm_destroy(alone));
    return 0;
}

#define PLAN_REFUSED(text) REFUSED(weft_ll_plan_sizes(scene->comm, &job, &config, &sizes), text)

TEST_ON_SCENE(arguments_of_planned_jobs_are_refused)
{
    weft_ll_config config = ll_scene_config(WEFT_LL_BY_EXPERT);
    weft_ll_sizes sizes = WEFT_INIT(weft_ll_sizes);
    weft_ll_job job = WEFT_INIT(weft_ll_job);
    PLAN_REFUSED("num_ranks is 0");
    job.num_ranks = 1000;
    PLAN_REFUSED("num_experts is 0");
    config.num_experts = 3001;
    CHECK_OK(weft_ll_plan_sizes(scene->comm, &job, &config, &sizes));
    CHECK(sizes.num_local_experts == 4, "%d experts", sizes.num_local_experts);
    job.num_nodes = 1001;
    PLAN_REFUSED("num_nodes is 1001");
    job.num_nodes = 100;
    CHECK_OK(weft_ll_plan_sizes(scene->comm, &job, &config, &sizes));
    CHECK(sizes.network_bytes > 0, "no memory of the network");
    config.within = scene->by_rank;
    PLAN_REFUSED("within: it must be NULL");
    config.within = NULL;
    config.hidden = 0;
    PLAN_REFUSED("hidden is 0");
    REFUSED(weft_ll_plan_sizes(NULL, &job, &config, &sizes), "comm");
    REFUSED(weft_ll_plan_sizes(scene->comm, NULL, &config, &sizes), "job");
    return 0;
}

/* ---------------------------------------------------------------- masks */

TEST_ON_SCENE(arguments_of_masks_are_refused)
{
    weft_ll_config config = ll_scene_config(WEFT_LL_BY_RANK);
    weft_ll *masked, *ll;
    ll = scene->by_rank;
    config.on_missing = WEFT_LL_MASK;
    CHECK_OK(weft_ll_create(scene->ep, &config, &masked));
    REFUSED(weft_ll_mask(ll, scene->numbers, scene->stream), "on_missing is WEFT_LL_FAIL");
    REFUSED(weft_ll_query_mask(ll, scene->numbers, scene->stream), "on_missing is WEFT_LL_FAIL");
    REFUSED(weft_ll_unmask(ll, scene->numbers, 1, scene->stream), "on_missing is WEFT_LL_FAIL");
    REFUSED(weft_ll_mask(NULL, scene->numbers, scene->stream), "ll is");
    REFUSED(weft_ll_mask(masked, NULL, scene->stream), "mask is");
    REFUSED(weft_ll_query_mask(masked, scene->numbers, NULL), "stream is");
    REFUSED(weft_ll_query_mask(masked, NULL, scene->stream), "mask is");
    REFUSED(weft_ll_unmask(masked, NULL, 1, scene->stream), "mask is");
    REFUSED(weft_ll_unmask(masked, scene->numbers, 0, scene->stream), "epoch is 0");
    CHECK_OK(weft_ll_unmask(masked, scene->numbers, 5, scene->stream));
    REFUSED(weft_ll_unmask(masked, scene->numbers, 5, scene->stream), "epoch is 5");
    weft_ll_dispatch_args args = ll_scene_dispatch_args(scene, ll, WEFT_LL_SEND_AND_RECEIVE);
    args.missing_ranks = scene->numbers + 900;
    REFUSED(weft_ll_dispatch(ll, &args, scene->stream), "missing_ranks");
    args = ll_scene_dispatch_args(scene, masked, WEFT_LL_SEND);
    args.missing_ranks = scene->numbers + 900;
    REFUSED(weft_ll_dispatch(masked, &args, scene->stream), "missing_ranks");
    return 0;
}

/* ---------------------------------------------------------------- arguments of dispatch */

#define DISPATCH_REFUSED(ll, phases, field, value, text)                                           \
    do {                                                                                           \
        weft_ll_dispatch_args args = ll_scene_dispatch_args(scene, ll, phases);                    \
        args.field = value;                                                                        \
        REFUSED(weft_ll_dispatch(ll, &args, scene->stream), text);                                 \
    } while (0)

TEST_ON_SCENE(arguments_of_dispatch_are_refused)
{
    weft_ll *by_rank = scene->by_rank, *by_expert = scene->by_expert;
    DISPATCH_REFUSED(by_rank, WEFT_LL_SEND, num_rows_per_rank, scene->numbers, "num_rows_per_rank");
    DISPATCH_REFUSED(by_rank, WEFT_LL_SEND, waited_ns, (int64_t *)(void *)scene->rows, "waited_ns");
    DISPATCH_REFUSED(by_rank, WEFT_LL_SEND_AND_RECEIVE, rows, scene->rows, "rows");
    DISPATCH_REFUSED(by_rank, WEFT_LL_SEND_AND_RECEIVE, num_rows_per_expert, scene->numbers + 99,
                     "num_rows_per_expert");
    DISPATCH_REFUSED(by_rank, WEFT_LL_SEND_AND_RECEIVE, src_tokens, scene->numbers + 99,
                     "src_tokens");
    DISPATCH_REFUSED(by_rank, WEFT_LL_SEND_AND_RECEIVE, row_ranges, (int64_t *)(void *)scene->rows,
                     "row_ranges");
    DISPATCH_REFUSED(by_rank, WEFT_LL_SEND_AND_RECEIVE, total_rows_per_expert, scene->numbers + 99,
                     "total_rows_per_expert");
    DISPATCH_REFUSED(by_expert, WEFT_LL_SEND, rows, scene->rows, "rows");
    CHECK_OK(ll_scene_dispatch(scene, by_expert, WEFT_LL_SEND));
    DISPATCH_REFUSED(by_expert, WEFT_LL_RECEIVE, num_tokens, 1, "num_tokens");
    DISPATCH_REFUSED(by_expert, WEFT_LL_RECEIVE, x, scene->x, "x is");
    DISPATCH_REFUSED(by_expert, WEFT_LL_RECEIVE, topk_idx, scene->topk_idx, "topk_idx");
    DISPATCH_REFUSED(by_expert, WEFT_LL_RECEIVE, topk_weights, scene->weights, "topk_weights");
    DISPATCH_REFUSED(by_expert, WEFT_LL_RECEIVE, index_type, WEFT_INT32, "index_type");
    DISPATCH_REFUSED(by_expert, WEFT_LL_RECEIVE, rows, NULL, "rows");
    CHECK_OK(ll_scene_dispatch(scene, by_expert, WEFT_LL_RECEIVE));
    return 0;
}

/* Scales where rows have some, and by expert. */
TEST_ON_SCENE(arguments_for_scales_are_refused)
{
    const weft_ll_config config = quantised_config(WEFT_LL_BY_EXPERT);
    char *scales = (char *)scene->out;
    weft_ll *plain = scene->by_expert, *quantised;
    DISPATCH_REFUSED(plain, WEFT_LL_SEND_AND_RECEIVE, scales, scales, "scales");
    DISPATCH_REFUSED(plain, WEFT_LL_SEND_AND_RECEIVE, scale_column_bytes, 4 * LL_SCENE_CAPACITY,
                     "scale_column_bytes");
    DISPATCH_REFUSED(scene->by_rank, WEFT_LL_SEND_AND_RECEIVE, scales, scales, "scales");
    CHECK_OK(weft_ll_create(scene->ep, &config, &quantised));
    scene->by_expert = quantised;
    DISPATCH_REFUSED(quantised, WEFT_LL_SEND_AND_RECEIVE, scales, NULL, "scales");
    DISPATCH_REFUSED(quantised, WEFT_LL_SEND_AND_RECEIVE, scales, scene->rows, "scales");
    DISPATCH_REFUSED(quantised, WEFT_LL_SEND, scales, scales, "scales");
    DISPATCH_REFUSED(quantised, WEFT_LL_SEND, scale_column_bytes, 4 * LL_SCENE_CAPACITY,
                     "scale_column_bytes");
    weft_ll_dispatch_args args = ll_scene_dispatch_args(scene, quantised, WEFT_LL_SEND_AND_RECEIVE);
    args.scales = scales;
    args.scale_column_bytes = 4 * LL_SCENE_CAPACITY - 4;
    REFUSED(weft_ll_dispatch(quantised, &args, scene->stream), "scale_column_bytes");
    args.scale_column_bytes = 4 * LL_SCENE_CAPACITY + 2;
    REFUSED(weft_ll_dispatch(quantised, &args, scene->stream), "scale_column_bytes");
    args.scale_column_bytes = UINT64_MAX - 3;
    REFUSED(weft_ll_dispatch(quantised, &args, scene->stream), "scale_column_bytes");
    args.scale_column_bytes = 4 * LL_SCENE_CAPACITY;
    CHECK_OK(weft_ll_dispatch(quantised, &args, scene->stream));
    CHECK_OK(ll_scene_combine(scene, quantised, WEFT_LL_SEND_AND_RECEIVE, 0));
    return 0;
}

/* ---------------------------------------------------------------- arguments of combine */

TEST_ON_SCENE(answers_in_slots_end_their_result)
{
    weft_ll_config config = ll_scene_config(WEFT_LL_BY_RANK);
    weft_ll *in_slots;
    config.answer = WEFT_LL_ANSWER_IN_SLOTS;
    CHECK_OK(weft_ll_create(scene->ep, &config, &in_slots));
    CHECK_OK(ll_scene_dispatch(scene, in_slots, WEFT_LL_SEND_AND_RECEIVE));
    weft_ll_combine_args args = ll_scene_combine_args(scene, in_slots, WEFT_LL_SEND_AND_RECEIVE);
    args.keep = 1;
    REFUSED(weft_ll_combine(in_slots, &args, scene->stream), "keep");
    args.keep = 0;
    args.x = NULL;
    args.x_stride_bytes = sizeof(float) * LL_SCENE_HIDDEN;
    REFUSED(weft_ll_combine(in_slots, &args, scene->stream), "x_stride_bytes");
    args.x_stride_bytes = 0;
    CHECK_OK(weft_ll_combine(in_slots, &args, scene->stream));
    return 0;
}

#define COMBINE_REFUSED(ll, phases, field, value, text)                                            \
    do {                                                                                           \
        weft_ll_combine_args args = ll_scene_combine_args(scene, ll, phases);                      \
        args.field = value;                                                                        \
        REFUSED(weft_ll_combine(ll, &args, scene->stream), text);                                  \
    } while (0)

TEST_ON_SCENE(arguments_of_combine_are_refused)
{
    weft_ll_slots slots = WEFT_INIT(weft_ll_slots);
    weft_ll *by_rank = scene->by_rank, *by_expert = scene->by_expert;
    CHECK_OK(ll_scene_dispatch(scene, by_rank, WEFT_LL_SEND_AND_RECEIVE));
    CHECK_OK(ll_scene_dispatch(scene, by_expert, WEFT_LL_SEND_AND_RECEIVE));
    COMBINE_REFUSED(by_rank, WEFT_LL_SEND, x_stride_bytes, 4 * LL_SCENE_HIDDEN + 2,
                    "x_stride_bytes");
    COMBINE_REFUSED(by_rank, WEFT_LL_SEND, out, scene->out, "out");
    COMBINE_REFUSED(by_expert, WEFT_LL_SEND, topk_weights, scene->weights, "topk_weights");
    COMBINE_REFUSED(by_rank, WEFT_LL_SEND_AND_RECEIVE, topk_weights, scene->weights,
                    "topk_weights");
    CHECK_OK(ll_scene_combine(scene, by_rank, WEFT_LL_SEND, 0));
    COMBINE_REFUSED(by_rank, WEFT_LL_RECEIVE, keep, 1, "keep");
    COMBINE_REFUSED(by_rank, WEFT_LL_RECEIVE, x, scene->rows, "x is");
    COMBINE_REFUSED(by_rank, WEFT_LL_RECEIVE, x_stride_bytes, 4 * LL_SCENE_HIDDEN,
                    "x_stride_bytes");
    COMBINE_REFUSED(by_rank, WEFT_LL_RECEIVE, out, NULL, "out");
    CHECK_OK(ll_scene_combine(scene, by_rank, WEFT_LL_RECEIVE, 0));
    CHECK_OK(ll_scene_combine(scene, by_expert, WEFT_LL_SEND_AND_RECEIVE, 0));
    REFUSED(weft_ll_destroy(NULL), "ll is");
    REFUSED(weft_ll_query_slots(by_expert, &slots), "WEFT_LL_BY_EXPERT");
    return 0;
}
