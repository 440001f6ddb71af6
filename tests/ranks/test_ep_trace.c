/* SPDX-License-Identifier: MIT */
/* Real routing: every layer of the traces of a real model, on 4 ranks every third. They are read
 * from WEFT_TRACE_DIR, or from beside the source tree; without them the test is skipped. */
#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/memory.h"
#include "oracle/ep_trials.h"
#include "oracle/traces.h"

static struct ep_chosen rank_tokens(const struct trace *trace, int32_t layer, int32_t rank,
                                    int32_t num_ranks)
{
    const int32_t first = trace_first_token(trace, rank, num_ranks);
    const int32_t num_tokens = trace_first_token(trace, rank + 1, num_ranks) - first;
    const size_t num_choices = (size_t)num_tokens * (size_t)trace->num_topk;
    int32_t *narrow = tests_alloc(num_choices * sizeof *narrow);
    int64_t *topk_idx = tests_alloc(num_choices * sizeof *topk_idx);
    float *topk_weights = tests_alloc(num_choices * sizeof *topk_weights);
    trace_read(trace, layer, first, num_tokens, narrow, topk_weights);
    for (size_t i = 0; i < num_choices; i++)
        topk_idx[i] = narrow[i];
    tests_free(narrow);
    return (struct ep_chosen){num_tokens, topk_idx, topk_weights};
}

static struct ep_world *layer_world(const struct trace *trace, int32_t layer, int32_t num_ranks)
{
    struct ep_chosen tokens[RANKS_MAX] = {0};
    struct ep_case spec = {.seed = (uint64_t)layer,
                           .num_ranks = num_ranks,
                           .num_topk = trace->num_topk,
                           .num_experts = trace->num_experts,
                           .index_type = layer % 2 == 0 ? WEFT_INT32 : WEFT_INT64,
                           .num_warps = 4};
    for (int32_t rank = 0; rank < num_ranks; rank++) {
        tokens[rank] = rank_tokens(trace, layer, rank, num_ranks);
        if (tokens[rank].num_tokens > spec.max_tokens)
            spec.max_tokens = tokens[rank].num_tokens;
    }
    struct ep_world *world = ep_world_create_from(&spec, tokens);
    for (int32_t rank = 0; rank < num_ranks; rank++) {
        tests_free((void *)(uintptr_t)tokens[rank].topk_idx);
        tests_free((void *)(uintptr_t)tokens[rank].topk_weights);
    }
    return world;
}

struct layers {
    int32_t num_layers;
    struct ep_world **worlds;
};

static int run_layers(struct ranks_context *context)
{
    const struct layers *layers = context->argument;
    const struct ep_dispatch_shape dispatch = ep_dispatch_shape_of(64);
    const struct ep_combine_shape combine = ep_combine_shape_of(WEFT_BF16, 4);
    struct ep_rank self;
    if (ep_rank_open(&self, context, 0, 8 << 20))
        return 1;
    for (int32_t layer = 0; layer < layers->num_layers; layer++)
        if (ep_check_world(&self, layers->worlds[layer], &dispatch, &combine))
            return 1;
    return ep_rank_close(&self);
}

static void run_trace(int which, int32_t num_ranks, int32_t step)
{
    struct trace *trace = traces_open(which);
    const int32_t num_layers = (trace->num_layers + step - 1) / step;
    struct layers layers = {.num_layers = tests_grid_size(num_layers, 2)};
    layers.worlds = tests_alloc((size_t)layers.num_layers * sizeof *layers.worlds);
    for (int32_t i = 0; i < layers.num_layers; i++)
        layers.worlds[i] = layer_world(trace, i * step, num_ranks);
    assert_int_equal(ranks_run(RANKS_PROCESSES, num_ranks, run_layers, &layers), 0);
    for (int32_t layer = 0; layer < layers.num_layers; layer++)
        ep_world_destroy(layers.worlds[layer]);
    tests_free(layers.worlds);
    trace_close(trace);
}

TEST(on_4_ranks)
{
    for (int which = 0; which < NUM_TRACES; which++)
        run_trace(which, 4, 3); /* odd: layers have index types in turn */
}

TEST(on_8_ranks)
{
    for (int which = 0; which < NUM_TRACES; which += tests_rounds(1, NUM_TRACES))
        run_trace(which, 8, 1);
}

int main(void)
{
    return traces_main();
}
