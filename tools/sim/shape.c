/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "shape_draws.h"
#include "shape_oracle.h"

enum { NO_CHOICE_ONE_IN = 8 };
/* Only jobs of several nodes have these. */
enum {
    LARGE_ONE_IN = 1024,
    MAX_TOKENS_OF_LARGE = 2,
    MAX_NODES = 16,
    MAX_RANKS_PER_NODE = 4,
    MAX_NODES_OF_SMALL = 4,
    MAX_SLOT_ROWS = 3,
    MAX_SLOTS = 3
};
/* The sim has no more fibers than it has: with two streams, or more ranks, there are fewer
 * warps. */
enum { COLL_MAX_RANKS_DRAWN = 5, COLL_MAX_WARPS = 3, COLL_FEW_WARPS = 4 };

float shape_weight(int32_t round, int32_t rank, int32_t token, int32_t k)
{
    return (float)(1 + round + 4 * rank + 16 * token + k);
}

float shape_element(int32_t round, int32_t repeat, int32_t rank, int32_t token, int32_t i)
{
    return (float)(1 + round + 4 * repeat + 8 * rank + 128 * token + i);
}

int32_t shape_node_of(const struct shape *shape, int32_t rank)
{
    return (int32_t)((int64_t)rank * shape->num_nodes / shape->num_ranks);
}

int32_t shape_first_expert(const struct shape *shape, int32_t rank)
{
    return ep_first_expert(shape->num_experts, shape->num_ranks, rank);
}

/* The bytes of a row with all that may go with it. */
static uint64_t staged_row_bytes(const struct shape *shape)
{
    return SCENARIO_ROW_BYTES + (uint64_t)shape->num_topk * 12 + 4;
}

/* Room for some tokens of each rank, or for all rows, which between nodes must be. Enough of both
 * is little: the sim keeps book of every byte. */
static void draw_room(struct shape *shape, struct rng *rng)
{
    enum { LOST_BYTES = 176, LEAST_ROW_BYTES = 64, MAX_ROUND_TOKENS = 3 };
    const uint64_t row_bytes = staged_row_bytes(shape) < LEAST_ROW_BYTES ? (uint64_t)LEAST_ROW_BYTES
                                                                         : staged_row_bytes(shape);
    const uint64_t num_tokens = (uint64_t)draw(rng, 1, MAX_ROUND_TOKENS);
    const int takes_rounds = draw(rng, 0, 2) > 0 && shape->num_nodes == 1;
    const uint64_t num_rows =
        takes_rounds ? num_tokens * (uint64_t)shape->num_ranks : (uint64_t)shape->capacity;
    shape->staging_bytes = LOST_BYTES + num_rows * row_bytes;
}

static void set_capacity(struct shape *shape)
{
    struct shape_oracle oracle;
    shape->capacity = 1;
    for (int32_t round = 0; round < shape->num_rounds; round++) {
        shape_oracle_open(&oracle, shape, round);
        const int32_t most = ep_oracle_max_rows(&oracle.problem);
        shape->capacity = most + 1 > shape->capacity ? most + 1 : shape->capacity;
    }
}

static void draw_experts(struct shape *shape, struct rng *rng, int32_t round, int32_t rank)
{
    for (int32_t token = 0; token < shape->num_tokens[round][rank]; token++) {
        for (int32_t k = 0; k < shape->num_topk; k++)
            shape->experts[round][rank][token][k] =
                rng_below(rng, NO_CHOICE_ONE_IN) == 0
                    ? SHAPE_NO_CHOICE
                    : (int32_t)rng_below(rng, (uint32_t)shape->num_experts);
    }
}

/* layout is local: with one rank fewer of its syncs stand in for each other */
static int32_t min_ranks(const struct scenario_request *request)
{
    const int may_be_alone = request->op == SCENARIO_LAYOUT ||
                             scenario_is_low_latency(request->op) ||
                             scenario_is_collective(request->op);
    return may_be_alone && request->fault == WEFT__SIM_NO_FAULT ? 1 : 2;
}

static int32_t draw_ranks(struct rng *rng, const struct scenario_request *request)
{
    return draw(rng, min_ranks(request),
                scenario_is_collective(request->op) ? COLL_MAX_RANKS_DRAWN : MAX_RANKS_DRAWN);
}

/* Few large jobs: they take a thousand times as long as small ones. */
static void draw_nodes(struct shape *shape, struct rng *rng, const struct scenario_request *request)
{
    const int is_large = rng_below(rng, LARGE_ONE_IN) == 0;
    const int32_t num_nodes = draw(rng, 1, is_large ? MAX_NODES : MAX_NODES_OF_SMALL);
    const int32_t most = is_large ? MAX_RANKS_PER_NODE : MAX_RANKS_OF_SMALL / num_nodes;
    const int32_t least = num_nodes < min_ranks(request) ? min_ranks(request) : 1;
    shape->num_nodes = num_nodes;
    shape->num_ranks =
        num_nodes * draw(rng, least, most < MAX_RANKS_PER_NODE ? most : MAX_RANKS_PER_NODE);
    if (request->op == SCENARIO_BARRIER) /* nodes need not have as many */
        shape->num_ranks -= draw(rng, 0, shape->num_ranks - num_nodes * least);
}

/* By numbers of its own, so that the others stay as they were. */
static void draw_coll_nodes(struct shape *shape)
{
    enum { SEVERAL_ONE_IN = 3, NUM_JOBS = 8 };
    static const int32_t jobs[NUM_JOBS][2] = {/* nodes, ranks */
                                              {2, 2}, {2, 3}, {2, 4}, {3, 3},
                                              {2, 5}, {3, 5}, {4, 4}, {3, 6}};
    struct rng rng = {rng_key(shape->seed, OWN_KEYS + 1)};
    if (rng_below(&rng, SEVERAL_ONE_IN) != 0)
        return;
    const int32_t *job = jobs[rng_below(&rng, NUM_JOBS)];
    shape->num_nodes = job[0];
    shape->num_ranks = job[1];
}

static void draw_job(struct shape *shape, struct rng *rng, const struct scenario_request *request)
{
    const int spans_nodes = scenario_spans_nodes(request->op);
    shape->num_nodes = 1;
    if (request->num_ranks == SCENARIO_DRAWN && spans_nodes) {
        draw_nodes(shape, rng, request);
        return;
    }
    shape->num_ranks = draw_ranks(rng, request);
    if (request->num_ranks == SCENARIO_DRAWN && scenario_is_collective(request->op))
        draw_coll_nodes(shape);
    if (request->num_ranks == SCENARIO_DRAWN)
        return;
    shape->num_ranks = request->num_ranks;
    if (request->num_nodes != SCENARIO_DRAWN)
        shape->num_nodes = request->num_nodes;
    else if (spans_nodes)
        shape->num_nodes = draw_divisor(rng, shape->num_ranks);
}

/* From slots for the longest element, or two of them, on. */
static void draw_coll_staging(struct shape *shape, enum scenario_staging staging)
{
    enum {
        HEADER_BYTES = 64,
        LEAST_PAYLOAD_BYTES = 16,
        MAX_DOUBLINGS = 3,
        MAX_CHANNELS = 3,
        LEAST_SLOTS = 2,
        MOST_SLOTS = 5 /* from 4 on a credit is for more than one */
    };
    struct rng rng = {rng_key(shape->seed, OWN_KEYS + 2)};
    const int is_drawn = staging == SCENARIO_STAGING_DRAWN;
    shape->num_channels = is_drawn ? draw(&rng, 1, MAX_CHANNELS) : 1;
    shape->num_slots = is_drawn ? draw(&rng, LEAST_SLOTS, MOST_SLOTS) : LEAST_SLOTS;
    shape->slot_bytes = HEADER_BYTES + ((uint64_t)LEAST_PAYLOAD_BYTES
                                        << (is_drawn ? draw(&rng, 0, MAX_DOUBLINGS) : 0));
}

static void draw_calls(struct shape *shape, struct rng *rng, const struct scenario_request *request)
{
    draw_coll_staging(shape, request->staging);
    const int are_many = shape->num_ranks > COLL_MAX_RANKS_DRAWN;
    coll_draw_terms(&shape->coll_terms, rng);
    if (are_many)
        shape->coll_terms.num_streams = 1;
    shape->num_repeats = draw(rng, 1, SHAPE_MAX_CALLS);
    const int has_few_warps = are_many || shape->coll_terms.num_streams > 1;
    const int32_t num_blocks = draw(rng, 1, COLL_MAX_WARPS);
    const int32_t max_warps = has_few_warps ? COLL_FEW_WARPS / num_blocks : COLL_MAX_WARPS;
    for (int32_t rank = 0; rank < shape->num_ranks; rank++) {
        shape->num_blocks[rank] = num_blocks; /* the same on all ranks, as it must be */
        shape->num_warps[rank] = draw(rng, 1, max_warps);
    }
    for (int32_t round = 0; round < shape->num_rounds; round++) {
        for (int32_t i = 0; i < shape->num_repeats; i++)
            coll_draw_call(&shape->calls[round][i], shape, rng, request->max_count);
    }
}

static int32_t most_tokens(const struct shape *shape)
{
    const int is_large = shape->num_ranks > MAX_RANKS_OF_SMALL;
    return is_large && shape->max_tokens > MAX_TOKENS_OF_LARGE ? MAX_TOKENS_OF_LARGE
                                                               : shape->max_tokens;
}

static int32_t round_up(int32_t bytes)
{
    return (bytes + 15) / 16 * 16;
}

static void draw_wire(struct shape *shape, struct rng *rng)
{
    static const weft_dtype wires[] = {WEFT_DTYPE_NONE, WEFT_FP32, WEFT_BF16};
    shape->combine_wire = wires[draw(rng, 0, 2)];
}

/* The bytes of a row by docs/network.md, in dispatch or in combine. */
static int32_t wire_row_bytes(const struct shape *shape)
{
    const int32_t num_local = shape->num_ranks / shape->num_nodes;
    const int32_t max_rows = shape->num_topk < num_local ? shape->num_topk : num_local;
    /* With two planes, a quantised one takes as many bytes as before, its scales more. */
    const int32_t scales_bytes = shape->quantisation.dtype == WEFT_DTYPE_NONE ? 0 : round_up(1);
    const int32_t token_bytes =
        round_up(8 + 8 * max_rows + 8 * shape->num_topk) + SCENARIO_ROW_BYTES + scales_bytes;
    const int is_widened = shape->combine_dtype == WEFT_BF16 && shape->combine_wire == WEFT_FP32;
    const int32_t sum_bytes =
        round_up(4 * shape->num_topk) + SCENARIO_ROW_BYTES * (is_widened ? 2 : 1);
    return token_bytes > sum_bytes ? token_bytes : sum_bytes;
}

/* From one row in a slot, and one slot, on. */
static void draw_staging(struct shape *shape, struct rng *rng, enum scenario_staging staging)
{
    enum { HEADER_BYTES = 64 };
    const int is_drawn = staging == SCENARIO_STAGING_DRAWN;
    draw_wire(shape, rng);
    const int32_t row_bytes = wire_row_bytes(shape);
    const int32_t num_rows = draw(rng, 1, is_drawn ? MAX_SLOT_ROWS : 1);
    const int has_one_channel = !is_drawn || shape->num_nodes > MAX_NODES_OF_SMALL;
    shape->num_channels = has_one_channel ? 1 : draw(rng, 1, 2);
    shape->num_slots = draw(rng, 1, is_drawn ? MAX_SLOTS : 1);
    shape->slot_bytes = HEADER_BYTES + (uint64_t)num_rows * (uint64_t)row_bytes;
}

/* In a third of the shapes that allow it nothing is staged, and there is no memory for it. By
 * numbers of its own. */
static void draw_direct(struct shape *shape)
{
    struct rng rng = {rng_key(shape->seed, OWN_KEYS + 3)};
    if (shape->num_nodes > 1 || shape->quantisation.dtype != WEFT_DTYPE_NONE ||
        shape->combine_wire != WEFT_DTYPE_NONE || draw(&rng, 0, 2) > 0)
        return;
    memset(shape->is_local, 0, sizeof(shape->is_local));
    shape->staging_bytes = 0;
}

/* By numbers of its own, so that the others stay as they were. */
static void draw_options(struct shape *shape)
{
    struct rng rng = {rng_key(shape->seed, OWN_KEYS)};
    shape->routes_by_table = draw(&rng, 0, 1);
    for (int32_t rank = 0; rank < shape->num_ranks; rank++)
        for (int32_t i = 0; i < shape->num_repeats; i++)
            shape->num_call_blocks[i][rank] = draw(&rng, 0, shape->num_blocks[rank]);
    for (int32_t rank = 0; rank < shape->num_ranks; rank++)
        for (int32_t i = 0; i < shape->num_repeats; i++)
            shape->is_local[i][rank] = draw(&rng, 0, 1);
    draw_room(shape, &rng);
    draw_direct(shape);
    struct rng of_order = {rng_key(shape->seed, OWN_KEYS + 4)};
    shape->order = (weft_ep_order)draw(&of_order, 0, 1);
}

/* For a third of the dispatches. */
static void draw_narrow(struct shape *shape)
{
    struct rng rng = {rng_key(shape->seed, OWN_KEYS)};
    if (shape->op != SCENARIO_DISPATCH || draw(&rng, 0, 2) > 0)
        return;
    shape->quantisation.dtype = draw(&rng, 0, 1) == 0 ? WEFT_FP8_E4M3 : WEFT_INT8;
    shape->quantisation.scale = draw(&rng, 0, 1) == 0 ? WEFT_SCALE_FP32 : WEFT_SCALE_UE8M0;
    shape->narrow_plane = draw(&rng, 0, 1);
}

void shape_draw(struct shape *shape, const struct scenario_request *request)
{
    struct rng rng = {rng_key(request->seed, request->op)};
    *shape = (struct shape){.op = request->op, .seed = request->seed};
    draw_narrow(shape);
    draw_job(shape, &rng, request);
    shape->num_topk = draw(&rng, 1, SHAPE_MAX_TOPK);
    shape->num_experts = draw(&rng, shape->num_ranks, 2 * shape->num_ranks + SHAPE_MORE_EXPERTS);
    shape->expert_alignment = draw(&rng, 1, 4);
    shape->num_rounds = draw(&rng, 2, SCENARIO_MAX_ROUNDS);
    shape->num_repeats = draw(&rng, 1, 2);
    shape->num_handles = draw(&rng, 1, 2);
    shape->combine_dtype = draw(&rng, 0, 1) == 0 ? WEFT_FP32 : WEFT_BF16;
    shape->num_biases = draw(&rng, 0, 2);
    shape->wants_node_counts = draw(&rng, 0, 1);
    draw_staging(shape, &rng, request->staging);
    shape->max_tokens = request->max_tokens;
    const int32_t max_tokens = most_tokens(shape);
    for (int32_t rank = 0; rank < shape->num_ranks; rank++) {
        shape->num_blocks[rank] = draw(&rng, 1, 2);
        shape->num_warps[rank] = draw(&rng, 1, 2);
        for (int32_t round = 0; round < shape->num_rounds; round++) {
            shape->num_tokens[round][rank] = draw(&rng, 0, max_tokens);
            draw_experts(shape, &rng, round, rank);
        }
    }
    set_capacity(shape);
    draw_options(shape);
    shape->num_planes = draw(&rng, 0, 2);
    if (scenario_is_collective(request->op))
        draw_calls(shape, &rng, request);
    if (scenario_is_low_latency(request->op))
        shape_draw_ll(shape, &rng, request->fault);
    if (request->op == SCENARIO_MOVE_EXPERTS || request->op == SCENARIO_COPIES)
        weights_draw_terms(shape, &rng);
}

void shape_without_rank(struct shape *shape)
{
    shape->num_ranks--;
    shape->num_nodes = 1;
    set_capacity(shape);
}
