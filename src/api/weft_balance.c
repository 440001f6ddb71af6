/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "api/structs.h"
#include "ep/balance.h"

enum { MAX_REPLICAS = 65536, MAX_LAYERS = 65536 };

static weft_result check_multiple(int32_t value, const char *name, int32_t divisor,
                                  const char *divisor_name)
{
    if (value % divisor == 0)
        return WEFT_OK;
    return weft__invalid("%s is %d, must be a multiple of %s = %d", name, value, divisor_name,
                         divisor);
}

static weft_result read_config(const weft_balance_config *given, weft_balance_config *config)
{
    WEFT__TRY(WEFT__READ(weft_balance_config, config, given, "config"));
    if (config->num_nodes == 0)
        config->num_nodes = 1;
    if (config->num_groups == 0)
        config->num_groups = 1;
    WEFT__TRY(weft__check_range(config->num_layers, 0, MAX_LAYERS, "num_layers"));
    WEFT__TRY(weft__check_range(config->num_experts, 1, MAX_REPLICAS, "num_experts"));
    WEFT__TRY(
        weft__check_range(config->num_replicas, config->num_experts, MAX_REPLICAS, "num_replicas"));
    WEFT__TRY(weft__check_range(config->num_ranks, 1, config->num_replicas, "num_ranks"));
    WEFT__TRY(weft__check_range(config->num_nodes, 1, config->num_ranks, "num_nodes"));
    WEFT__TRY(weft__check_range(config->num_groups, 1, config->num_experts, "num_groups"));
    WEFT__TRY(weft__check_enum(WEFT__ENUM_BALANCE_MODE, (int32_t)config->mode, WEFT_BALANCE_BEST,
                               WEFT_BALANCE_EPLB, "mode"));
    WEFT__TRY(check_multiple(config->num_experts, "num_experts", config->num_groups, "num_groups"));
    WEFT__TRY(check_multiple(config->num_replicas, "num_replicas", config->num_ranks, "num_ranks"));
    if (!(config->target_imbalance >= 1 || config->target_imbalance == 0))
        return weft__invalid("target_imbalance is %g, must be 1 or more, or 0",
                             (double)config->target_imbalance);
    if (config->target_imbalance == 0)
        config->target_imbalance = 1.01f;
    return check_multiple(config->num_ranks, "num_ranks", config->num_nodes, "num_nodes");
}

static weft_result create_work(const weft_balance_config *config, int32_t num_groups,
                               int32_t num_nodes, enum weft__balance_use use,
                               struct weft__balance_work **work)
{
    const struct weft__balance balance = {.num_experts = config->num_experts,
                                          .num_replicas = config->num_replicas,
                                          .num_groups = num_groups,
                                          .num_nodes = num_nodes,
                                          .num_ranks = config->num_ranks,
                                          .mode = config->mode};
    *work = weft__balance_work_create(&balance, use);
    WEFT__CHECK_MEMORY(*work, "no memory to place %d replicas on %d ranks", config->num_replicas,
                       config->num_ranks);
    return WEFT_OK;
}

/* ---------------------------------------------------------------- placements */

static weft_result check_loads(const weft_balance_config *config, const float *loads)
{
    const int64_t num_loads = (int64_t)config->num_layers * config->num_experts;
    WEFT__TRY(weft__check_array(loads, num_loads, "loads"));
    for (int64_t i = 0; i < num_loads; i++)
        if (!isfinite(loads[i]) || loads[i] < 0)
            return weft__invalid("loads[%lld][%lld] is %g, must be finite and not negative",
                                 (long long)(i / config->num_experts),
                                 (long long)(i % config->num_experts), (double)loads[i]);
    return WEFT_OK;
}

weft_result weft_balance_place(const weft_balance_config *given, const float *loads,
                               int32_t *experts, float *imbalance)
{
    weft_balance_config config;
    struct weft__balance_work *work;
    WEFT__TRY(read_config(given, &config));
    WEFT__TRY(check_loads(&config, loads));
    WEFT__TRY(weft__check_array(experts, config.num_layers, "experts"));
    const int are_grouped = config.num_groups % config.num_nodes == 0;
    WEFT__TRY(create_work(&config, are_grouped ? config.num_groups : 1,
                          are_grouped ? config.num_nodes : 1, WEFT__BALANCE_TO_PLACE, &work));
    for (int32_t layer = 0; layer < config.num_layers; layer++) {
        const float *of_layer = loads + (int64_t)layer * config.num_experts;
        int32_t *placed = experts + (int64_t)layer * config.num_replicas;
        weft__balance_layer(work, of_layer, placed);
        if (imbalance != NULL)
            imbalance[layer] = weft__balance_imbalance(work, of_layer, placed);
    }
    weft__balance_work_destroy(work);
    return WEFT_OK;
}

enum spare { NONE_IS_SPARE = 0, SOME_ARE_SPARE = -1 }; /* the least that a replica may be */

/* Each replica is of an expert, or spare, and each expert has one. */
static weft_result check_layer(const weft_balance_config *config, enum spare spare,
                               const int32_t *experts, const char *name, int32_t layer,
                               int32_t *num_copies)
{
    memset(num_copies, 0, (size_t)config->num_experts * sizeof(*num_copies));
    for (int32_t i = 0; i < config->num_replicas; i++) {
        if (experts[i] < (int32_t)spare || experts[i] >= config->num_experts)
            return weft__invalid("%s[%d][%d] is %d, allowed are %d..%d", name, layer, i, experts[i],
                                 (int32_t)spare, config->num_experts - 1);
        if (experts[i] >= 0)
            num_copies[experts[i]]++;
    }
    for (int32_t expert = 0; expert < config->num_experts; expert++)
        if (num_copies[expert] == 0)
            return weft__invalid("%s[%d] has no replica of expert %d, must have one of each", name,
                                 layer, expert);
    return WEFT_OK;
}

static weft_result check_placement(const weft_balance_config *config, enum spare spare,
                                   int32_t num_layers, const int32_t *experts, const char *name)
{
    WEFT__TRY(weft__check_array(experts, num_layers, name));
    int32_t *num_copies = malloc((size_t)config->num_experts * sizeof(*num_copies));
    WEFT__CHECK_MEMORY(num_copies, "no memory for %d experts", config->num_experts);
    weft_result result = WEFT_OK;
    for (int32_t layer = 0; result == WEFT_OK && layer < num_layers; layer++)
        result = check_layer(config, spare, experts + (int64_t)layer * config->num_replicas, name,
                             layer, num_copies);
    free(num_copies);
    return result;
}

weft_result weft_balance_ranks(const weft_balance_config *given, const int32_t *experts,
                               int32_t *expert_offsets, int32_t *expert_ranks)
{
    weft_balance_config config;
    WEFT__TRY(read_config(given, &config));
    WEFT__TRY(check_placement(&config, NONE_IS_SPARE, 1, experts, "experts"));
    WEFT__TRY(weft__check_not_null(expert_offsets, "expert_offsets"));
    WEFT__TRY(weft__check_not_null(expert_ranks, "expert_ranks"));
    const int32_t rank_replicas = config.num_replicas / config.num_ranks;
    int32_t num_entries = 0;
    for (int32_t expert = 0; expert < config.num_experts; expert++) {
        expert_offsets[expert] = num_entries;
        for (int32_t i = 0; i < config.num_replicas; i++) {
            const int32_t rank = i / rank_replicas;
            if (experts[i] == expert &&
                (num_entries == expert_offsets[expert] || expert_ranks[num_entries - 1] != rank))
                expert_ranks[num_entries++] = rank;
        }
    }
    expert_offsets[config.num_experts] = num_entries;
    return WEFT_OK;
}

/* ---------------------------------------------------------------- copies */

weft_result weft_balance_fill(const weft_balance_config *given, const float *loads,
                              int32_t *experts, int32_t *granules, float *imbalance)
{
    weft_balance_config config;
    struct weft__balance_work *work;
    WEFT__TRY(read_config(given, &config));
    WEFT__TRY(check_loads(&config, loads));
    WEFT__TRY(check_placement(&config, SOME_ARE_SPARE, config.num_layers, experts, "experts"));
    WEFT__TRY(weft__check_array(granules, config.num_layers, "granules"));
    WEFT__TRY(create_work(&config, 1, 1, WEFT__BALANCE_TO_PLACE, &work));
    for (int32_t layer = 0; layer < config.num_layers; layer++) {
        const int64_t first = (int64_t)layer * config.num_experts;
        const float reached = weft__balance_fill(work, loads + first, config.target_imbalance,
                                                 experts + (int64_t)layer * config.num_replicas,
                                                 granules + first * WEFT_BALANCE_GRANULES);
        if (imbalance != NULL)
            imbalance[layer] = reached;
    }
    weft__balance_work_destroy(work);
    return WEFT_OK;
}

/* ---------------------------------------------------------------- moves */

/* Where the caller gets moves, and how many there are until now. */
struct moves {
    weft_expert_move *given;
    int32_t max_moves, num_moves;
};

static void tell_moves(const weft_expert_move *found, int32_t num_found, int32_t layer,
                       weft_move_distance distance, struct moves *moves)
{
    for (int32_t i = 0; i < num_found; i++) {
        weft_expert_move move = found[i];
        if (move.distance != distance)
            continue;
        move.layer = layer;
        if (moves->num_moves < moves->max_moves) {
            char *at = (char *)moves->given + (size_t)moves->num_moves * moves->given->size;
            WEFT__WRITE(weft_expert_move, (weft_expert_move *)(void *)at, &move);
        }
        moves->num_moves++;
    }
}

weft_result weft_balance_moves(const weft_balance_config *given, const int32_t *from, int32_t *to,
                               weft_expert_move *moves, int32_t max_moves, int32_t *num_moves)
{
    weft_balance_config config;
    struct weft__balance_work *work;
    struct moves told = {.given = moves, .max_moves = max_moves};
    WEFT__TRY(read_config(given, &config));
    WEFT__TRY(check_placement(&config, NONE_IS_SPARE, config.num_layers, from, "from"));
    WEFT__TRY(check_placement(&config, NONE_IS_SPARE, config.num_layers, to, "to"));
    WEFT__TRY(weft__check_range((int64_t)config.num_layers * config.num_replicas, 0, INT32_MAX,
                                "num_layers * num_replicas"));
    WEFT__TRY(weft__check_range(max_moves, 0, INT32_MAX, "max_moves"));
    WEFT__TRY(WEFT__CHECK_OUTPUTS(weft_expert_move, moves, max_moves, "moves"));
    WEFT__TRY(weft__check_not_null(num_moves, "num_moves"));
    weft_expert_move *found = malloc((size_t)config.num_replicas * sizeof(*found));
    WEFT__CHECK_MEMORY(found, "no memory for %d moves", config.num_replicas);
    const weft_result result =
        create_work(&config, 1, config.num_nodes, WEFT__BALANCE_TO_MOVE, &work);
    for (int32_t layer = 0; result == WEFT_OK && layer < config.num_layers; layer++) {
        const int64_t at = (int64_t)layer * config.num_replicas;
        weft__balance_align(work, from + at, to + at);
    }
    /* The nearest of all layers come first. */
    for (int32_t distance = 0; result == WEFT_OK && distance <= WEFT_MOVE_BETWEEN_NODES; distance++)
        for (int32_t layer = 0; layer < config.num_layers; layer++) {
            const int64_t at = (int64_t)layer * config.num_replicas;
            const int32_t num_found = weft__balance_find_moves(work, from + at, to + at, found);
            tell_moves(found, num_found, layer, (weft_move_distance)distance, &told);
        }
    if (result == WEFT_OK) {
        weft__balance_work_destroy(work);
        *num_moves = told.num_moves;
    }
    free(found);
    return result;
}
