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

TEST_OF_TRIALS(every_length, IN_THREADS(1), IN_THREADS(4), IN_THREADS(7), IN_PROCESSES(2),
               IN_PROCESSES(8))
{
    for (int i = 0; i < NUM_LENGTHS * NUM_DTYPES; i++) {
        struct ep_case spec = usual;
        spec.max_tokens = lengths[i / NUM_DTYPES] < 1000 ? 20 : 4;
        ep_trials_add(trials, &spec)->combine =
            ep_combine_shape_of((weft_dtype)(WEFT_BF16 + i % NUM_DTYPES), lengths[i / NUM_DTYPES]);
    }
}

/* Infinities, NaNs, signed zeros, subnormals, overflow, ties: bit for bit. */
TEST_OF_TRIALS(special_values, IN_THREADS(1, .last = 9, .step = tests_grid_size(2, 4)))
{
    for (int i = 0; i < 4 * NUM_DTYPES; i++) {
        struct ep_case spec = usual;
        spec.seed = (uint64_t)i;
        spec.num_topk = 1 + i % 8;
        struct ep_trial *trial = ep_trials_add(trials, &spec);
        trial->combine = ep_combine_shape_of((weft_dtype)(WEFT_BF16 + i % NUM_DTYPES), 333);
        trial->combine.values = EP_VALUES_SPECIAL;
        trial->combine.bias = (enum ep_bias)(i / NUM_DTYPES);
    }
}

/* Tokens that went nowhere give bias, or +0. */
TEST_OF_TRIALS(every_bias_and_routing, IN_THREADS(5))
{
    for (int i = 0; i < 4 * EP_NUM_ROUTINGS; i++) {
        struct ep_case spec = usual;
        spec.routing = (enum ep_routing)(i / 4);
        struct ep_trial *trial = ep_trials_add(trials, &spec);
        trial->combine.bias = (enum ep_bias)(i % 4);
        trial->combine.weights = (enum ep_optional)(i % 2);
    }
}

TEST_OF_TRIALS(every_alignment, IN_THREADS(3))
{
    const uint64_t distances[] = {1, 2, 3, 4, 8, 15, 16, 33};
    for (int i = 0; i < 8 * NUM_DTYPES; i++) {
        struct ep_trial *trial = ep_trials_add(trials, &usual);
        trial->combine = ep_combine_shape_of((weft_dtype)(WEFT_BF16 + i % NUM_DTYPES), 129);
        trial->combine.misalign_bytes = distances[i / NUM_DTYPES];
    }
}
