/* SPDX-License-Identifier: MIT */
/* Real routing in low latency: batches of a decode step of every layer of the traces of a real
 * model. */
#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/memory.h"
#include "oracle/ll_seat.h"
#include "oracle/traces.h"

enum { NUM_TOKENS = 16 };

struct layers {
    int32_t num_layers;
    struct ll_case *cases;
};

/* The first tokens of each rank's part of the text. */
static const struct ll_routing *layer_routing(const struct trace *trace, int32_t layer,
                                              int32_t num_ranks)
{
    const size_t num_choices = (size_t)NUM_TOKENS * (size_t)trace->num_topk;
    int32_t *num_tokens = tests_alloc((size_t)num_ranks * sizeof *num_tokens);
    int32_t *experts = tests_alloc((size_t)num_ranks * num_choices * sizeof *experts);
    float *weights = tests_alloc((size_t)num_ranks * num_choices * sizeof *weights);
    struct ll_routing *routing = tests_alloc(sizeof *routing);
    for (int32_t rank = 0; rank < num_ranks; rank++) {
        const int32_t first = trace_first_token(trace, rank, num_ranks);
        const int32_t num_there = trace_first_token(trace, rank + 1, num_ranks) - first;
        num_tokens[rank] = num_there < NUM_TOKENS ? num_there : NUM_TOKENS;
        trace_read(trace, layer, first, num_tokens[rank], experts + (size_t)rank * num_choices,
                   weights + (size_t)rank * num_choices);
    }
    *routing = (struct ll_routing){num_tokens, experts, weights};
    return routing;
}

static void free_routing(const struct ll_routing *routing)
{
    tests_free((void *)(uintptr_t)routing->num_tokens);
    tests_free((void *)(uintptr_t)routing->experts);
    tests_free((void *)(uintptr_t)routing->weights);
    tests_free((void *)(uintptr_t)routing);
}

static struct ll_case layer_case(const struct trace *trace, int32_t layer, int32_t num_ranks)
{
    return (struct ll_case){
        .seed = (uint64_t)layer,
        .num_ranks = num_ranks,
        .max_tokens = NUM_TOKENS,
        .num_topk = trace->num_topk,
        .num_experts = trace->num_experts,
        .hidden = 32,
        .dtype = WEFT_BF16,
        .answer_dtype = layer % 3 == 0 ? WEFT_FP32 : WEFT_BF16,
        .layout = WEFT_LL_BY_EXPERT,
        .answer = layer % 2 == 0 ? WEFT_LL_ANSWER_SUMS : WEFT_LL_ANSWER_ROWS,
        .expert_capacity = layer % 4 == 1 ? NUM_TOKENS / 4 : 0,
        .index_type = layer % 2 == 0 ? WEFT_INT32 : WEFT_INT64,
        .num_warps = 4,
        .routing = layer_routing(trace, layer, num_ranks),
    };
}

static int run_layers(struct ranks_context *context)
{
    const struct layers *layers = context->argument;
    for (int32_t layer = 0; layer < layers->num_layers; layer++) {
        struct ll_seat seat;
        if (ll_seat_open(&seat, context, &layers->cases[layer], NULL) || ll_fill_step(&seat, 0) ||
            ll_dispatch(&seat, 0, WEFT_LL_SEND_AND_RECEIVE) || ll_check_dispatched(&seat, 0) ||
            ll_combine(&seat, 0, WEFT_LL_SEND_AND_RECEIVE, 0) || ll_check_combined(&seat, 0) ||
            ll_check_totals(&seat, 1) || ll_seat_close(&seat))
            return 1;
    }
    return 0;
}

static void run_trace(int which, int32_t num_ranks)
{
    struct trace *trace = traces_open(which);
    struct layers layers = {.num_layers = tests_grid_size(trace->num_layers, 2)};
    layers.cases = tests_alloc((size_t)layers.num_layers * sizeof *layers.cases);
    for (int32_t layer = 0; layer < layers.num_layers; layer++)
        layers.cases[layer] = layer_case(trace, layer, num_ranks);
    assert_int_equal(ranks_run(RANKS_PROCESSES, num_ranks, run_layers, &layers), 0);
    for (int32_t layer = 0; layer < layers.num_layers; layer++)
        free_routing(layers.cases[layer].routing);
    tests_free(layers.cases);
    trace_close(trace);
}

TEST(on_4_ranks)
{
    for (int which = 0; which < NUM_TRACES; which++)
        run_trace(which, 4);
}

TEST_CALL(on_8_ranks, run_trace(0, 8))

int main(void)
{
    return traces_main();
}
