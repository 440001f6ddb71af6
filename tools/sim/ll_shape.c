/* SPDX-License-Identifier: MIT */
/* The subject of a scenario of low latency: its terms, and who is missing. */
#include "ll_values.h"
#include "shape_draws.h"

static void draw_cut(struct shape *shape, struct rng *rng, int32_t round, int32_t a, int32_t b)
{
    const uint64_t is_cut = draw(rng, 0, 3) == 0;
    shape->ll_cuts[round][a] |= is_cut << b;
    shape->ll_cuts[round][b] |= is_cut << a;
}

/* Room for all rows, also of tokens that choose an expert several times: else whose rows fit would
 * depend on who is missing at other ranks. */
static void draw_masks(struct shape *shape, struct rng *rng)
{
    if (draw(rng, 0, 2) > 0)
        return;
    shape->ll_terms.on_missing = WEFT_LL_MASK;
    if (shape->ll_terms.layout == WEFT_LL_BY_EXPERT)
        shape->ll_terms.expert_capacity = shape->num_ranks * shape->max_tokens * shape->num_topk;
    const int has_cuts = draw(rng, 0, 1);
    for (int32_t round = 0; round < shape->num_rounds && has_cuts; round++)
        for (int32_t a = 0; a < shape->num_ranks; a++)
            for (int32_t b = 0; b < a; b++)
                draw_cut(shape, rng, round, a, b);
}

/* In a third of the scenarios with masks in which nothing is struck. By numbers of its own. */
static void draw_leaver(struct shape *shape)
{
    struct rng rng = {rng_key(shape->seed, OWN_KEYS + 2)};
    uint64_t *cuts = shape->ll_cuts[shape->num_rounds - 1];
    if (shape->ll_terms.on_missing != WEFT_LL_MASK || shape->num_ranks == 1 || draw(&rng, 0, 2) > 0)
        return;
    shape->ll_has_leaver = 1;
    shape->ll_leaver = draw(&rng, 0, shape->num_ranks - 1);
    for (int32_t rank = 0; rank < shape->num_ranks; rank++)
        if (rank != shape->ll_leaver) {
            cuts[rank] |= (uint64_t)1 << shape->ll_leaver;
            cuts[shape->ll_leaver] |= (uint64_t)1 << rank;
        }
}

enum { USUAL_GROUP = 128 };

/* Else a step takes longer than its deadline. */
static int has_room_for_long_rows(const struct shape *shape)
{
    enum { MAX_TOKENS = 8 };
    return shape->num_ranks <= MAX_RANKS_DRAWN && shape->max_tokens <= MAX_TOKENS;
}

/* On one node, now and then, rows as they mostly are, for which there are programs of their own. By
 * numbers of its own. */
static void draw_usual_rows(struct shape *shape)
{
    enum { USUAL_ONE_IN = 6 };
    struct rng rng = {rng_key(shape->seed, OWN_KEYS + 3)};
    struct ll_terms *terms = &shape->ll_terms;
    if (shape->num_nodes > 1 || !has_room_for_long_rows(shape) || draw(&rng, 1, USUAL_ONE_IN) > 1)
        return;
    terms->hidden = SHAPE_MAX_HIDDEN;
    if (terms->quantisation.dtype != WEFT_DTYPE_NONE) {
        terms->quantisation.dtype = WEFT_FP8_E4M3;
        terms->quantisation.scale = (weft_scale_kind)draw(&rng, WEFT_SCALE_FP32, WEFT_SCALE_UE8M0);
        terms->quantisation.group_elements = USUAL_GROUP;
    }
}

/* Half of the sums by expert that can be so; by numbers of its own, so that the others stay as
 * they were. */
static void draw_late_weights(struct shape *shape)
{
    struct rng rng = {rng_key(shape->seed, OWN_KEYS + 1)};
    struct ll_terms *terms = &shape->ll_terms;
    if (shape->num_nodes == 1 && terms->layout == WEFT_LL_BY_EXPERT &&
        terms->answer == WEFT_LL_ANSWER_SUMS && draw(&rng, 0, 1))
        terms->answer = WEFT_LL_ANSWER_SUMS_WEIGHED_LATE;
}

/* By expert, in a third of the scenarios; by numbers of its own. Not where a rank with masks
 * stalls: rows that its host does not finish in time are the communicator's failure (weft_ll.h), so
 * that the others fail, too. */
static void draw_signals(struct shape *shape, enum weft__sim_fault fault)
{
    enum { FEW_ROWS = 3 };
    struct rng rng = {rng_key(shape->seed, OWN_KEYS + 5)};
    if (shape->ll_terms.layout != WEFT_LL_BY_EXPERT || draw(&rng, 0, 2) > 0 ||
        (fault == WEFT__SIM_STALL && shape->ll_terms.on_missing == WEFT_LL_MASK))
        return;
    shape->ll_terms.has_signals = 1;
    shape->ll_terms.rows_per_signal = draw(&rng, 0, FEW_ROWS);
}

/* By expert, in a third of the scenarios; by numbers of its own. */
static void draw_expert_signals(struct shape *shape)
{
    struct rng rng = {rng_key(shape->seed, OWN_KEYS + 6)};
    shape->ll_terms.has_expert_signals =
        shape->ll_terms.layout == WEFT_LL_BY_EXPERT && draw(&rng, 0, 2) == 0;
}

/* For half of them a warp of each block hears each rank, and does nothing else. */
static void draw_hearers(struct shape *shape, struct rng *rng)
{
    const int32_t num_receiver_warps = draw(rng, 0, 1) * shape->num_ranks;
    for (int32_t rank = 0; rank < shape->num_ranks; rank++)
        shape->num_warps[rank] += num_receiver_warps;
}

/* Wherever the experts are. */
static int can_be_in_packets(const struct shape *shape, weft_ll_carrier carrier)
{
    const weft_ll_config config = ll_config(shape, 0);
    return shape->num_nodes == 1 &&
           ll_suits_packets(&config, carrier, shape->num_ranks, shape->num_experts);
}

/* A third each, of those that can be so; by numbers of its own, too. */
static void draw_carrier(struct shape *shape)
{
    struct rng rng = {rng_key(shape->seed, OWN_KEYS + 2)};
    const weft_ll_carrier carrier =
        (weft_ll_carrier)draw(&rng, WEFT_LL_SIGNALS, WEFT_LL_TOLD_PACKETS);
    struct ll_terms *terms = &shape->ll_terms;
    if (can_be_in_packets(shape, carrier))
        terms->carrier = carrier;
    if (terms->carrier == WEFT_LL_PACKETS && terms->layout == WEFT_LL_BY_EXPERT)
        draw_hearers(shape, &rng);
}

/* Whole groups of four elements, of which there is one at least, and now and then many, or groups
 * of the usual size. */
static void fit_groups(struct shape *shape, struct rng *rng)
{
    struct ll_terms *terms = &shape->ll_terms;
    const int is_long = has_room_for_long_rows(shape) && draw(rng, 0, 7) == 0;
    const int32_t num_fours = (is_long ? SHAPE_MAX_HIDDEN : terms->hidden + 3) / 4;
    terms->hidden = num_fours * 4;
    if (is_long)
        terms->quantisation.group_elements = draw(rng, 0, 1) ? 4 : USUAL_GROUP;
    else
        terms->quantisation.group_elements = draw_divisor(rng, num_fours) * 4;
    terms->quantisation.scale = WEFT_SCALE_FP32;
}

/* By rank most of these send no answers: answers would also order what here only the words that
 * count rows order. */
static void draw_unanswered(struct ll_terms *terms, struct rng *rng)
{
    if (terms->layout != WEFT_LL_BY_RANK || draw(rng, 0, 2) == 0)
        return;
    terms->is_unanswered = 1;
    terms->num_results = LL_MAX_RESULTS;
}

/* Shapes that can go in packets, in either of the two ways. */
static void fit_packets(struct shape *shape, struct rng *rng)
{
    struct ll_terms *terms = &shape->ll_terms;
    terms->carrier = draw(rng, 0, 1) ? WEFT_LL_TOLD_PACKETS : WEFT_LL_PACKETS;
    terms->answer = WEFT_LL_ANSWER_SUMS;
    terms->fills_slots = 0;
    draw_unanswered(terms, rng);
    terms->answer_dtype = shape->combine_dtype;
    if (terms->quantisation.dtype != WEFT_DTYPE_NONE)
        fit_groups(shape, rng);
    if (!can_be_in_packets(shape, terms->carrier))
        terms->carrier = WEFT_LL_SIGNALS;
    if (terms->carrier == WEFT_LL_PACKETS && terms->layout == WEFT_LL_BY_EXPERT)
        draw_hearers(shape, rng);
}

void shape_draw_ll(struct shape *shape, struct rng *rng, enum weft__sim_fault fault)
{
    const int32_t max_hidden =
        SCENARIO_ROW_BYTES / (int32_t)(shape->combine_dtype == WEFT_FP32 ? sizeof(float) : 2);
    if (shape->max_tokens == 0) /* of a weft_ll 1 at least */
        shape->max_tokens = 1;
    ll_draw_terms(&shape->ll_terms, rng, max_hidden);
    if (shape->op == SCENARIO_LL_PACKETS)
        fit_packets(shape, rng);
    if (shape->op == SCENARIO_LL)
        draw_usual_rows(shape);
    for (int32_t round = 0; round < shape->num_rounds; round++)
        ll_draw_script(&shape->ll_scripts[round], &shape->ll_terms, shape->num_repeats, rng);
    draw_masks(shape, rng);
    if (fault == WEFT__SIM_NO_FAULT)
        draw_leaver(shape);
    draw_late_weights(shape);
    draw_signals(shape, fault);
    draw_expert_signals(shape);
    if (shape->op == SCENARIO_LL_PACKETS)
        return;
    if (shape->ll_terms.on_missing == WEFT_LL_FAIL)
        shape->ll_terms.route = (weft_ll_route)draw(rng, WEFT_LL_STRAIGHT, WEFT_LL_RELAYED);
    draw_carrier(shape);
}
