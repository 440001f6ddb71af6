/* SPDX-License-Identifier: MIT */
/* Many cases, one after the other, on one communicator. */
#pragma once

#include "oracle/ep_check.h"

struct ep_trial {
    struct ep_world *world;
    struct ep_dispatch_shape dispatch;
    struct ep_combine_shape combine;
};

struct ep_trials {
    int32_t num_ranks;
    int32_t num_nodes; /* 0: 1 */
    int32_t num_trials, max_trials;
    struct ep_trial *trials;
};

struct ep_trials ep_trials_create(int32_t num_ranks, int32_t num_nodes);
/* Appends a trial with a small default dispatch and combine, for the caller to change. The pointer
 * is good until the next is added. */
struct ep_trial *ep_trials_add(struct ep_trials *trials, const struct ep_case *spec);
/* Everything but the number of ranks and the most tokens is drawn. */
struct ep_trial *ep_trials_add_random(struct ep_trials *trials, uint64_t seed, int32_t max_tokens);
/* Ranks of which all have the same trials: so many, from the first number to the last. */
struct ep_worlds {
    enum ranks_mode mode;
    int32_t first, last, step; /* 0: the first alone */
    int32_t num_nodes;
};
#define IN_THREADS(...)                                                                            \
    {                                                                                              \
        .mode = RANKS_THREADS, .first = __VA_ARGS__                                                \
    }
#define IN_PROCESSES(...)                                                                          \
    {                                                                                              \
        .mode = RANKS_PROCESSES, .first = __VA_ARGS__                                              \
    }
void ep_trials_run_in(const struct ep_worlds *worlds, size_t count,
                      void (*add)(struct ep_trials *trials));

/* Before the body of a test, which adds its `trials`; then come the worlds that have them. */
#define TEST_OF_TRIALS(name, ...)                                                                  \
    static void name##_of(struct ep_trials *trials);                                               \
    TEST(name)                                                                                     \
    {                                                                                              \
        RUN_TRIALS(name##_of, __VA_ARGS__);                                                        \
    }                                                                                              \
    static void name##_of(struct ep_trials *trials)
#define RUN_TRIALS(add, ...)                                                                       \
    do {                                                                                           \
        const struct ep_worlds worlds_[] = {__VA_ARGS__};                                          \
        ep_trials_run_in(worlds_, sizeof worlds_ / sizeof *worlds_, add);                          \
    } while (0)

/* Returns how many ranks failed, and frees all. */
int ep_trials_run(struct ep_trials *trials, enum ranks_mode mode);

/* One plane of row_bytes with ids, weights and source tokens; exact capacity. */
struct ep_dispatch_shape ep_dispatch_shape_of(uint64_t row_bytes);
/* With two biases and weights, cancelling values; exact capacity. */
struct ep_combine_shape ep_combine_shape_of(weft_dtype dtype, int64_t hidden);
/* Both with everything drawn at random. */
struct ep_dispatch_shape ep_dispatch_shape_random(uint64_t seed);
struct ep_combine_shape ep_combine_shape_random(uint64_t seed);
