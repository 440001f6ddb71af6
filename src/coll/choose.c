/* SPDX-License-Identifier: MIT */
/* Which algorithm, and how many blocks: as the caller has pinned it, else by the tables (tuning.h),
 * else, where they have nothing, by a formula. Every rank must choose alike, so the choice depends
 * on what is the same on all of them.
 *
 * The formula's limits are measured. Between nodes they depend on how far the nodes are: there a
 * model (model.h) stands in for them. */
#include "coll/coll.h"
#include "launch/names.h"

/* Bits of the algorithms that can do each: TREE for several nodes, the others for a few ranks of
 * one. RAILS does all. */
#define ALGORITHM_BIT(name) (1u << WEFT_ALGORITHM_##name)
static const uint32_t abilities[WEFT__NUM_COLLECTIVES] = {
    [WEFT_ALL_REDUCE] = ALGORITHM_BIT(ONESHOT) | ALGORITHM_BIT(TWOSHOT_PACKETS) |
                        ALGORITHM_BIT(ONESHOT_PULL) | ALGORITHM_BIT(TWOSHOT) | ALGORITHM_BIT(TREE),
    [WEFT_REDUCE_SCATTER] = ALGORITHM_BIT(ONESHOT) | ALGORITHM_BIT(ONESHOT_PULL),
    [WEFT_ALL_GATHER] = ALGORITHM_BIT(ONESHOT) | ALGORITHM_BIT(PUSH),
    [WEFT_ALL_TO_ALL] = ALGORITHM_BIT(ONESHOT) | ALGORITHM_BIT(PUSH),
    [WEFT_BROADCAST] =
        ALGORITHM_BIT(ONESHOT) | ALGORITHM_BIT(PUSH) | ALGORITHM_BIT(RELAY) | ALGORITHM_BIT(TREE),
    [WEFT_REDUCE] = ALGORITHM_BIT(ONESHOT) | ALGORITHM_BIT(ONESHOT_PULL) | ALGORITHM_BIT(TWOSHOT) |
                    ALGORITHM_BIT(TREE),
    [WEFT_GATHER] = ALGORITHM_BIT(ONESHOT) | ALGORITHM_BIT(PUSH),
    [WEFT_SCATTER] = ALGORITHM_BIT(ONESHOT) | ALGORITHM_BIT(PUSH),
};

const char *weft_coll_algorithm_name(weft_algorithm algorithm)
{
    return weft__algorithm_name((uint64_t)algorithm);
}

int weft__coll_can(weft_collective collective, weft_algorithm algorithm)
{
    return (abilities[collective] >> algorithm & 1) != 0;
}

int weft__coll_has_own_order(weft_algorithm algorithm)
{
    return algorithm == WEFT_ALGORITHM_TREE;
}

uint64_t weft__coll_part_bytes(uint64_t row_bytes, int32_t num_parts)
{
    enum { ALIGNMENT = 16 };
    const uint64_t part_bytes = (row_bytes + (uint64_t)num_parts - 1) / (uint64_t)num_parts;
    return (part_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* UINT64_MAX: the algorithm needs no packets. */
static uint64_t max_row_bytes(const weft_coll *coll, weft_algorithm algorithm)
{
    const uint64_t packet_bytes = coll->area.region_bytes;
    if (algorithm == WEFT_ALGORITHM_ONESHOT)
        return packet_bytes;
    if (algorithm == WEFT_ALGORITHM_TWOSHOT_PACKETS)
        return packet_bytes / 2 * (uint64_t)coll->comm->num_ranks;
    return UINT64_MAX;
}

weft_result weft__coll_check_algorithm(const weft_coll *coll, weft_collective collective,
                                       weft_algorithm algorithm, uint64_t row_bytes)
{
    const int has_nodes = coll->comm->topology.num_nodes > 1;
    if (algorithm == WEFT_ALGORITHM_TREE && !has_nodes)
        return weft__error(WEFT_ERROR_UNSUPPORTED,
                           "algorithm %s is for several nodes, coll has %d ranks on one",
                           weft__algorithm_name(algorithm), coll->comm->num_ranks);
    if (coll->internode != NULL && algorithm != WEFT_ALGORITHM_RAILS &&
        algorithm != WEFT_ALGORITHM_TREE)
        return weft__error(WEFT_ERROR_UNSUPPORTED,
                           "algorithm %s is for at most %d ranks of one node, coll has %d on %d: "
                           "allowed %s",
                           weft__algorithm_name(algorithm), WEFT_COLL_MAX_RANKS,
                           coll->comm->num_ranks, coll->comm->topology.num_nodes,
                           has_nodes ? "are rails and tree" : "is rails");
    if (coll->internode != NULL && algorithm == WEFT_ALGORITHM_RAILS)
        return WEFT_OK;
    if (algorithm == WEFT_ALGORITHM_RAILS)
        return weft__error(WEFT_ERROR_UNSUPPORTED,
                           "algorithm %s is for several nodes, or more than %d ranks, coll has %d "
                           "on one",
                           weft__algorithm_name(algorithm), WEFT_COLL_MAX_RANKS,
                           coll->comm->num_ranks);
    if (!weft__coll_can(collective, algorithm))
        return weft__error(WEFT_ERROR_UNSUPPORTED, "algorithm %s cannot do %s",
                           weft__algorithm_name(algorithm), weft__collective_name(collective));
    const uint64_t most = max_row_bytes(coll, algorithm);
    if (row_bytes > most)
        return weft__error(WEFT_ERROR_UNSUPPORTED,
                           "count makes rows of %llu bytes: %s by algorithm %s is for at most %llu "
                           "(packet_bytes)",
                           (unsigned long long)row_bytes, weft__collective_name(collective),
                           weft__algorithm_name(algorithm), (unsigned long long)most);
    return WEFT_OK;
}

static uint64_t oneshot_bytes(const struct weft__coll_defaults *defaults,
                              weft_collective collective)
{
    if (collective == WEFT_ALL_REDUCE)
        return defaults->all_reduce_packets_bytes;
    return collective == WEFT_BROADCAST ? defaults->broadcast_packets_bytes
                                        : defaults->other_packets_bytes;
}

static weft_algorithm choose_by_formula(const weft_coll *coll, weft_collective collective,
                                        uint64_t row_bytes)
{
    const uint64_t num_peers = (uint64_t)coll->comm->num_ranks - 1;
    const struct weft__coll_defaults *defaults = weft__coll_defaults(coll->comm);
    if (row_bytes * num_peers <= oneshot_bytes(defaults, collective) &&
        row_bytes <= max_row_bytes(coll, WEFT_ALGORITHM_ONESHOT))
        return WEFT_ALGORITHM_ONESHOT;
    if (collective == WEFT_BROADCAST && num_peers > 1 &&
        row_bytes * (num_peers - 1) >= defaults->relay_bytes)
        return WEFT_ALGORITHM_RELAY;
    if (collective == WEFT_REDUCE_SCATTER)
        return WEFT_ALGORITHM_ONESHOT_PULL;
    if (collective == WEFT_REDUCE)
        return WEFT_ALGORITHM_TWOSHOT;
    if (collective != WEFT_ALL_REDUCE)
        return WEFT_ALGORITHM_PUSH;
    if (2 * weft__coll_part_bytes(row_bytes, coll->comm->num_ranks) * num_peers <=
            defaults->two_step_packets_bytes &&
        row_bytes <= max_row_bytes(coll, WEFT_ALGORITHM_TWOSHOT_PACKETS))
        return WEFT_ALGORITHM_TWOSHOT_PACKETS;
    return WEFT_ALGORITHM_TWOSHOT;
}

int weft__coll_is_asked_for(const weft_coll *coll, weft_algorithm algorithm)
{
    int is_asked_for = 0;
    for (int32_t i = 0; i < WEFT__NUM_COLLECTIVES; i++)
        is_asked_for |= coll->pinned[i] == algorithm;
    for (int32_t i = 0; i < coll->tuning.num_rows; i++)
        is_asked_for |= coll->tuning.rows[i].algorithm == (int32_t)algorithm;
    return is_asked_for;
}

/* The first row that reaches this far; packets may be for less here than where the table was
 * made. */
static const struct weft__tuning_row *find_row(const weft_coll *coll, weft_collective collective,
                                               uint64_t row_bytes)
{
    for (int32_t i = 0; i < coll->tuning.num_rows; i++) {
        const struct weft__tuning_row *row = &coll->tuning.rows[i];
        if (row->collective == (int32_t)collective && row_bytes <= row->max_bytes &&
            row_bytes <= max_row_bytes(coll, (weft_algorithm)row->algorithm))
            return row;
    }
    return NULL;
}

int weft__coll_chooses_trees(const weft_comm *comm)
{
    return comm->topology.num_nodes >= weft__coll_defaults(comm)->tree_least_nodes;
}

static double expected_us(const weft_coll *coll, weft_algorithm algorithm, uint64_t row_bytes)
{
    const struct weft__coll_work work = {WEFT_BROADCAST, algorithm, row_bytes,
                                         coll->comm->num_ranks};
    struct weft__coll_expectation expectation;
    return weft__coll_expect_by(coll, &work, &expectation)
               ? expectation.latency_us + expectation.transfer_us
               : 0;
}

/* By size, unless the model expects one to be clearly faster than the other, as a tree is where
 * nodes are far from each other. docs/performance.md has what that gains. */
static struct weft__coll_choice choose_broadcast(const weft_coll *coll, uint64_t row_bytes)
{
    const double tree_us = expected_us(coll, WEFT_ALGORITHM_TREE, row_bytes);
    const double rails_us = expected_us(coll, WEFT_ALGORITHM_RAILS, row_bytes);
    const double clearly = 0.9; /* of the other's time */
    if (tree_us < clearly * rails_us || rails_us < clearly * tree_us)
        return (struct weft__coll_choice){.algorithm = tree_us < rails_us ? WEFT_ALGORITHM_TREE
                                                                          : WEFT_ALGORITHM_RAILS,
                                          .reason = WEFT_COLL_MODEL};
    return (struct weft__coll_choice){
        .algorithm = row_bytes <= weft__coll_defaults(coll->comm)->tree_broadcast_bytes
                         ? WEFT_ALGORITHM_TREE
                         : WEFT_ALGORITHM_RAILS,
        .reason = WEFT_COLL_FORMULA};
}

static struct weft__coll_choice choose_over_nodes(const weft_coll *coll, weft_collective collective,
                                                  uint64_t row_bytes)
{
    if (collective == WEFT_BROADCAST && weft__coll_chooses_trees(coll->comm))
        return choose_broadcast(coll, row_bytes);
    return (struct weft__coll_choice){.algorithm = WEFT_ALGORITHM_RAILS,
                                      .reason = WEFT_COLL_ONLY_ONE};
}

struct weft__coll_choice weft__coll_choose(const weft_coll *coll, weft_collective collective,
                                           uint64_t row_bytes)
{
    if (coll->pinned[collective] != WEFT_ALGORITHM_AUTO)
        return (struct weft__coll_choice){.algorithm = coll->pinned[collective],
                                          .reason = WEFT_COLL_PINNED};
    if (coll->internode != NULL)
        return choose_over_nodes(coll, collective, row_bytes);
    const struct weft__tuning_row *row = find_row(coll, collective, row_bytes);
    if (row == NULL)
        return (struct weft__coll_choice){.algorithm =
                                              choose_by_formula(coll, collective, row_bytes),
                                          .reason = WEFT_COLL_FORMULA};
    return (struct weft__coll_choice){
        .algorithm = (weft_algorithm)row->algorithm,
        .num_blocks = row->num_blocks,
        .num_warps = row->num_warps,
        .reason = row->source == WEFT__TUNING_FILE ? WEFT_COLL_TABLE : WEFT_COLL_SHIPPED_TABLE,
        .row = row};
}

struct weft__grid weft__coll_grid(const struct weft__coll_call *call, const struct weft__work *work)
{
    const weft_coll *coll = call->coll;
    struct weft__grid grid = weft__machine_of(coll->comm)->choose_grid(coll->comm, work);
    const int32_t num_blocks = coll->num_blocks > 0 ? coll->num_blocks : call->num_blocks;
    const int32_t num_warps = coll->num_warps > 0 ? coll->num_warps : call->num_warps;
    if (num_blocks > 0)
        grid.num_blocks = num_blocks;
    if (num_warps > 0)
        grid.num_warps = num_warps;
    if (grid.num_blocks > coll->area.exchange.max_blocks)
        grid.num_blocks = coll->area.exchange.max_blocks;
    return grid;
}

struct weft__grid weft__coll_tensor_grid(const struct weft__coll_call *call,
                                         enum weft__work_kind kind)
{
    const struct weft__work work = {.kind = kind, .row_bytes = call->coll->chunk_bytes};
    return weft__coll_grid(call, &work);
}

struct weft__grid weft__coll_widen_grid(const weft_coll *coll, struct weft__grid grid,
                                        int32_t num_wanted)
{
    const int32_t max_warps = weft__machine_of(coll->comm)->max_warps;
    if (grid.num_blocks * grid.num_warps < num_wanted)
        grid.num_warps = num_wanted < max_warps ? num_wanted : max_warps;
    return grid;
}

void weft__coll_choose_direct_blocks(weft_coll *coll, int32_t blocks[WEFT__NUM_WORKS])
{
    const struct weft__coll_call any = {.coll = coll};
    blocks[WEFT__WORK_PULL_TENSOR] =
        weft__coll_tensor_grid(&any, WEFT__WORK_PULL_TENSOR).num_blocks;
    blocks[WEFT__WORK_PUSH_TENSOR] =
        weft__coll_tensor_grid(&any, WEFT__WORK_PUSH_TENSOR).num_blocks;
}

struct wp_call_header weft__coll_header(const struct weft__coll_call *call,
                                        weft_algorithm algorithm, uint64_t num_bytes)
{
    const uint64_t operation = call->rows == WEFT__ROWS_OF_ANY_LENGTH
                                   ? (uint64_t)WP_OPERATION_ALL_TO_ALL_V
                                   : (uint64_t)call->collective;
    const uint64_t kind =
        (uint64_t)algorithm << WP_CALL_ALGORITHM_BIT | operation << WP_CALL_OPERATION_BIT |
        (uint64_t)call->dtype << WP_CALL_DTYPE_BIT | (uint64_t)call->op << WP_CALL_OP_BIT |
        (uint64_t)call->root << WP_CALL_ROOT_BIT;
    return (struct wp_call_header){.call = {kind, num_bytes}};
}
