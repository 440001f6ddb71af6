/* SPDX-License-Identifier: MIT */
/* Combine: every number format and row length, biases, weights, and sums that show their order. */
#include "harness/cmocka.h"
#include "harness/machine.h"
#include "oracle/ep_trials.h"
#include "workload/ep_oracle.h"

static const int64_t lengths[] = {1, 3, 8, 17, 64, 1000, 7168};
enum { NUM_LENGTHS = sizeof lengths / sizeof lengths[0], NUM_DTYPES = 3 };

static const struct ep_case usual = {.seed = 8,
                                     .max_tokens = 9,
                                     .num_topk = 6,
                                     .num_experts = 24,
                                     .tokens = EP_TOKENS_RAGGED,
                                     .num_blocks = 2,
                                     .num_warps = 2};

static void every_length(enum ranks_mode mode, int32_t num_ranks)
{
    struct ep_trials trials = ep_trials_create(num_ranks, 0);
    for (int i = 0; i < NUM_LENGTHS * NUM_DTYPES; i++) {
        struct ep_case spec = usual;
        spec.max_tokens = lengths[i / NUM_DTYPES] < 1000 ? 20 : 4;
        ep_trials_add(&trials, &spec)->combine =
            ep_combine_shape_of((weft_dtype)(WEFT_BF16 + i % NUM_DTYPES), lengths[i / NUM_DTYPES]);
    }
    assert_int_equal(ep_trials_run(&trials, mode), 0);
}

TEST(lengths_in_threads)
{
    every_length(RANKS_THREADS, 1);
    every_length(RANKS_THREADS, 4);
    every_length(RANKS_THREADS, 7);
}

TEST(lengths_in_processes)
{
    every_length(RANKS_PROCESSES, 2);
    every_length(RANKS_PROCESSES, 8);
}

/* Infinities, NaNs, signed zeros, subnormals, overflow, ties: bit for bit. */
TEST(special_values)
{
    for (int32_t num_ranks = 1; num_ranks <= 9; num_ranks += tests_grid_size(2, 4)) {
        struct ep_trials trials = ep_trials_create(num_ranks, 0);
        for (int i = 0; i < 4 * NUM_DTYPES; i++) {
            struct ep_case spec = usual;
            spec.seed = (uint64_t)i;
            spec.num_topk = 1 + i % 8;
            struct ep_trial *trial = ep_trials_add(&trials, &spec);
            trial->combine = ep_combine_shape_of((weft_dtype)(WEFT_BF16 + i % NUM_DTYPES), 333);
            trial->combine.values = EP_VALUES_SPECIAL;
            trial->combine.bias = (enum ep_bias)(i / NUM_DTYPES);
        }
        assert_int_equal(ep_trials_run(&trials, RANKS_THREADS), 0);
    }
}

/* Tokens that went nowhere give bias, or +0. */
TEST(every_bias_and_routing)
{
    struct ep_trials trials = ep_trials_create(5, 0);
    for (int i = 0; i < 4 * EP_NUM_ROUTINGS; i++) {
        struct ep_case spec = usual;
        spec.routing = (enum ep_routing)(i / 4);
        struct ep_trial *trial = ep_trials_add(&trials, &spec);
        trial->combine.bias = (enum ep_bias)(i % 4);
        trial->combine.weights = (enum ep_optional)(i % 2);
    }
    assert_int_equal(ep_trials_run(&trials, RANKS_THREADS), 0);
}

/* Rows that travel in another format are staged, at once or in rounds, wherever they lie. */
static void every_wire(enum ranks_mode mode, int32_t num_ranks)
{
    static const int64_t hidden[] = {129, 640, 128, 1100};
    struct ep_trials trials = ep_trials_create(num_ranks, 0);
    for (int i = 0; i < 2 * NUM_WIRES * NUM_DTYPES; i++) {
        struct ep_case spec = usual;
        spec.seed = (uint64_t)i;
        spec.reach = (enum ep_reach)(i % EP_NUM_REACHES);
        spec.staging_bytes = i % 2 == 0 ? EP_STAGING_OF_FEW : EP_STAGING_OF_ALL;
        spec.grid = i % 5 == 0 ? EP_GRID_DIFFERS_BY_RANK : EP_GRID_AS_GIVEN;
        struct ep_trial *trial = ep_trials_add(&trials, &spec);
        trial->combine =
            ep_combine_shape_of((weft_dtype)(WEFT_BF16 + i % NUM_DTYPES), hidden[i / 2 % 4]);
        trial->combine.bias = (enum ep_bias)(i / 2 % 4);
        trial->combine.values = i % 4 < 2 ? EP_VALUES_SPECIAL : EP_VALUES_CANCELLING;
        trial->combine.misalign_bytes = i % 3 == 0 ? (uint64_t)i : 0;
        ep_trial_set_wire(trial, wire_dtypes[i / NUM_DTYPES % NUM_WIRES]);
    }
    assert_int_equal(ep_trials_run(&trials, mode), 0);
}

TEST(wires_in_threads)
{
    for (int32_t num_ranks = 1; num_ranks <= 7; num_ranks += tests_rounds(2, 3))
        every_wire(RANKS_THREADS, num_ranks);
}

TEST(wires_in_processes)
{
    every_wire(RANKS_PROCESSES, 3);
}

/* By the first rank alone, which has called nothing then. */
static int try_wires(struct ranks_context *context)
{
    const struct ep_world *world = context->argument;
    const int32_t num_rows = world->received[context->rank].num_rows;
    struct ep_rank self;
    struct ep_array x, out;
    weft_ep_combine_args args = WEFT_INIT(weft_ep_combine_args);
    if (ep_rank_open(&self, context, 0, 1 << 20) || ep_rank_enter(&self, world) ||
        ep_route(&self) ||
        ep_array_alloc(&self, &x, EP_HEAP, (uint64_t)num_rows * 256 * sizeof(float), 0) ||
        ep_array_alloc(&self, &out, EP_OWN, (uint64_t)usual.max_tokens * 256 * sizeof(float), 0))
        return 1;
    args.x = x.data;
    args.out = out.data;
    args.dtype = WEFT_FP32;
    args.hidden = 256;
    args.capacity = num_rows;
    CHECK_ERROR(weft_ep_combine(self.handle, &args, self.stream), WEFT_ERROR_UNSUPPORTED,
                world->spec.staging_bytes == 0
                    ? "x is of WEFT_FP32 and staged, as combine_wire is WEFT_LOG_10BIT, and "
                      "staging_bytes of weft_ep_config is 0, so that nothing is staged"
                    : "staging_bytes of weft_ep_config is 500: to stage this operation takes "
                      "984 at least");
    args.hidden = 129;
    CHECK_ERROR(weft_ep_combine(self.handle, &args, self.stream), WEFT_ERROR_INVALID_ARGUMENT,
                "hidden is 129, must be a multiple of 128 where combine_wire of the weft_ep "
                "is WEFT_LOG_10BIT");
    return ep_array_free(&self, &x) || ep_array_free(&self, &out) || ep_rank_leave(&self) ||
           ep_rank_close(&self);
}

TEST(wires_without_room_are_refused)
{
    for (uint64_t staging_bytes = 0; staging_bytes <= 500; staging_bytes += 500) {
        struct ep_case spec = usual;
        spec.num_ranks = 2;
        spec.tokens = EP_TOKENS_EQUAL;
        spec.wire = WEFT_LOG_10BIT;
        spec.staging_bytes = staging_bytes;
        assert_int_equal(ep_case_run(&spec, RANKS_THREADS, try_wires), 0);
    }
}

TEST(every_alignment)
{
    const uint64_t distances[] = {1, 2, 3, 4, 8, 15, 16, 33};
    struct ep_trials trials = ep_trials_create(3, 0);
    for (int i = 0; i < 8 * NUM_DTYPES; i++) {
        struct ep_trial *trial = ep_trials_add(&trials, &usual);
        trial->combine = ep_combine_shape_of((weft_dtype)(WEFT_BF16 + i % NUM_DTYPES), 129);
        trial->combine.misalign_bytes = distances[i / NUM_DTYPES];
    }
    assert_int_equal(ep_trials_run(&trials, RANKS_THREADS), 0);
}
