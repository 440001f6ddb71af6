/* SPDX-License-Identifier: MIT */
/* Placements of experts, which need no objects. */
#include "api_targets.h"

enum { NOT_A_NUMBER = 0x7fc00000, MINUS_ONE = (int32_t)0xbf800000, HALF = 0x3f000000 };

/* Two layers: of each expert some replica, and spare ones. */
static void fill_balance(struct fuzz_arguments *a, struct rng *rng)
{
    weft_balance_config *config = &a->balance.known;
    FUZZ_FILL_SIZE(a, balance, rng);
    config->num_layers = 1 + (int32_t)rng_below(rng, FUZZ_LAYERS);
    config->num_experts = 6;
    config->num_replicas = FUZZ_REPLICAS;
    config->num_ranks = 4;
    config->num_nodes = 2 * (int32_t)rng_below(rng, 2);
    config->num_groups = 2 * (int32_t)rng_below(rng, 2);
    config->mode = (weft_balance_mode)rng_below(rng, 2);
    config->target_imbalance = (float)rng_below(rng, 2);
    for (int32_t i = 0; i < FUZZ_LAYERS * FUZZ_REPLICAS; i++) {
        a->loads[i] = rng_uniform(rng);
        a->replicas[0][i] = a->replicas[1][i] = i % FUZZ_REPLICAS % config->num_experts;
    }
    a->loads_at = a->loads;
    a->replicas_at[0] = a->replicas[0];
    a->replicas_at[1] = a->replicas[1];
    a->out = a->result_memory;
}

static void fill_balance_fill(struct fuzz_arguments *a, struct rng *rng)
{
    fill_balance(a, rng);
    for (int32_t layer = 0; layer < FUZZ_LAYERS; layer++)
        a->replicas[0][layer * FUZZ_REPLICAS + FUZZ_REPLICAS - 1] = -1;
}

static void fill_moves(struct fuzz_arguments *a, struct rng *rng)
{
    const weft_expert_move move = WEFT_INIT(weft_expert_move);
    fill_balance(a, rng);
    for (int32_t i = 0; i < FUZZ_LAYERS * FUZZ_REPLICAS; i++)
        memcpy(a->result_memory + (size_t)i * sizeof move, &move, sizeof move);
    a->ranks[0] = (int32_t)rng_below(rng, FUZZ_LAYERS * FUZZ_REPLICAS) + 1;
    a->ptr = &a->ranks[1];
}

#define CONFIG_MUTATIONS                                                                           \
    FUZZ_POINTERS("config", config, FUZZ_NULL), FUZZ_SIZES(weft_balance_config, balance),          \
        FUZZ_FIELD(balance, num_layers, -1, 65537, INT32_MAX, INT32_MIN),                          \
        FUZZ_FIELD(balance, num_experts, 0, -1, 65537, INT32_MAX),                                 \
        FUZZ_FIELD(balance, num_replicas, 5, 9, 65537, INT32_MIN),                                 \
        FUZZ_FIELD(balance, num_ranks, 0, -1, 5, INT32_MAX),                                       \
        FUZZ_FIELD(balance, num_nodes, -1, 3, 5, INT32_MAX),                                       \
        FUZZ_FIELD(balance, num_groups, -1, 4, 7, INT32_MAX),                                      \
        FUZZ_FIELD(balance, mode, -1, 2, INT32_MAX),                                               \
        FUZZ_NUMBERS(FUZZ_INT32, "target_imbalance", balance.known.target_imbalance, HALF,         \
                     MINUS_ONE, NOT_A_NUMBER)
#define LOAD_MUTATIONS                                                                             \
    FUZZ_POINTERS("loads", loads_at, FUZZ_NULL),                                                   \
        FUZZ_NUMBERS(FUZZ_INT32, "loads", loads[1], MINUS_ONE, NOT_A_NUMBER)

FUZZ_TARGET(balance_place, fill_balance,
            (a->config, a->loads_at, a->replicas_at[0], (float *)(void *)a->out), NULL,
            CONFIG_MUTATIONS, LOAD_MUTATIONS, FUZZ_POINTERS("experts", replicas_at[0], FUZZ_NULL))
FUZZ_TARGET(balance_ranks, fill_balance,
            (a->config, a->replicas_at[0], (int32_t *)(void *)a->result_memory, a->out), NULL,
            CONFIG_MUTATIONS, FUZZ_POINTERS("experts", replicas_at[0], FUZZ_NULL),
            FUZZ_NUMBERS(FUZZ_INT32, "experts", replicas[0][1], -1, 6, INT32_MAX, INT32_MIN),
            FUZZ_POINTERS("expert_ranks", out, FUZZ_NULL))
FUZZ_TARGET(balance_moves, fill_moves,
            (a->config, a->replicas_at[0], a->replicas_at[1], a->out, a->ranks[0], a->ptr), NULL,
            CONFIG_MUTATIONS, FUZZ_POINTERS("from", replicas_at[0], FUZZ_NULL),
            FUZZ_NUMBERS(FUZZ_INT32, "from", replicas[0][2], -1, 6, INT32_MAX, INT32_MIN),
            FUZZ_POINTERS("to", replicas_at[1], FUZZ_NULL),
            FUZZ_NUMBERS(FUZZ_INT32, "to", replicas[1][2], -1, 6, INT32_MAX, INT32_MIN),
            FUZZ_POINTERS("moves", out, FUZZ_NULL),
            FUZZ_NUMBERS(FUZZ_INT32, "max_moves", ranks[0], -1, INT32_MIN),
            FUZZ_NUMBERS(FUZZ_INT64, "size", result_memory, 0, 7, (int64_t)1 << 40),
            FUZZ_POINTERS("num_moves", ptr, FUZZ_NULL))
FUZZ_TARGET(balance_fill, fill_balance_fill,
            (a->config, a->loads_at, a->replicas_at[0], a->out, NULL), NULL, CONFIG_MUTATIONS,
            LOAD_MUTATIONS, FUZZ_POINTERS("experts", replicas_at[0], FUZZ_NULL),
            FUZZ_NUMBERS(FUZZ_INT32, "experts", replicas[0][1], -1, -2, 6, INT32_MAX, INT32_MIN),
            FUZZ_POINTERS("granules", out, FUZZ_NULL))
