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
