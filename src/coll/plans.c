/* SPDX-License-Identifier: MIT */
/*
 * The steps of `pipeline` (programs/coll/pipeline.h) for each collective and algorithm.
 *
 * Two shots by pushes and relays: every rank, or the root, sends each owner its part; the owner reduces what comes in
 * ascending rank order, or takes it as it is, and writes it to the outputs of all. What is sent runs ahead of what is
 * reduced by as many pieces as there are slots, less one, so that waits are for what was sent long before.
 *
 * Rings: part c goes from rank to rank, beginning with the one after c, and each reduces its own into it: so the order
 * is c + 1, c + 2, ..., c, and every hop rounds. What is complete goes around once more, directly to the outputs.
 */
#include "coll/coll.h"

enum {
    REDUCE_WHAT_COMES = WP_STEP_RECEIVE | WP_STEP_FROM_SLOTS | WP_STEP_FROM_IN | WP_STEP_REDUCE
};

/* Of the ranks around this one: its place in them, and how many they are. */
struct circle {
    int32_t rank;
    int32_t num_ranks;
};

/* The rank that comes i after this one, or before it. */
static int32_t after(struct circle circle, int32_t i)
{
    return (circle.rank + i + circle.num_ranks) % circle.num_ranks;
}

static const struct wp_peers nobody = {0, 0};

static void add_step(struct wp_plan *plan, struct wp_step step)
{
    plan->steps[plan->num_steps++] = step;
    plan->most_lag = step.lag > plan->most_lag ? step.lag : plan->most_lag;
}

static void add_peer(struct wp_plan *plan, int32_t rank, int32_t in_idx, int32_t out_idx)
{
    plan->peers[plan->num_peers++] =
        (struct wp_peer){(uint16_t)rank, (uint8_t)in_idx, (uint8_t)out_idx};
}

static int writes_all(weft_collective collective)
{
    return collective != WEFT_REDUCE_SCATTER && collective != WEFT_REDUCE;
}

/* ------------------------------------------------------------------ pushes */

static void plan_push(struct wp_plan *plan, struct circle circle, weft_collective collective,
                      int32_t num_slots)
{
    const struct wp_peers others = {0, (uint8_t)(circle.num_ranks - 1)};
    const uint32_t result = WP_STEP_TO_OUT | (writes_all(collective) ? WP_STEP_TO_OUTS : 0u);
    plan->num_senders = circle.num_ranks;
    for (int32_t i = 1; i < circle.num_ranks; i++)
        add_peer(plan, after(circle, i), after(circle, i), circle.rank);
    add_step(plan,
             (struct wp_step){WP_STEP_SEND | WP_STEP_FROM_IN | WP_STEP_TO_SLOTS | WP_STEP_SPREAD,
                              (uint8_t)after(circle, 1), 0, nobody, others, 0});
    add_step(plan,
             (struct wp_step){(uint16_t)(REDUCE_WHAT_COMES | result), (uint8_t)circle.rank,
                              (uint8_t)(num_slots - 1), others, others, (uint8_t)circle.rank});
}

/* The root has no part. Of another rank's peers it is the last. */
static void plan_relay(struct wp_plan *plan, struct circle circle, int32_t root)
{
    const int32_t num_others = circle.num_ranks - 1;
    const struct wp_peers from_root = {(uint8_t)(num_others - 1), 1};
    const struct wp_peers others = {0, (uint8_t)(num_others - (circle.rank != root))};
    plan->num_parts = num_others;
    for (int32_t i = 1; i < circle.num_ranks; i++)
        if (after(circle, i) != root)
            add_peer(plan, after(circle, i), 0, 0);
    if (circle.rank == root) {
        add_step(plan, (struct wp_step){WP_STEP_SEND | WP_STEP_FROM_IN | WP_STEP_TO_OUT |
                                            WP_STEP_TO_OUTS | WP_STEP_SPREAD,
                                        0, 0, nobody, others, 0});
        return;
    }
    add_peer(plan, root, 0, 0);
    add_step(plan, (struct wp_step){WP_STEP_RECEIVE | WP_STEP_FROM_OUT | WP_STEP_TO_OUTS,
                                    (uint8_t)after(circle, -1 - root), 0, from_root, others, 0});
}

/* ------------------------------------------------------------------ rings */

/* From the rank before, to the one after. */
static void add_ring_step(struct wp_plan *plan, uint32_t flags, int32_t part)
{
    const struct wp_peers next = {0, 1}, prev = {1, 1};
    add_step(plan, (struct wp_step){(uint16_t)flags, (uint8_t)part, 0, prev, next, 1});
}

enum { ADD_AND_PASS_ON = REDUCE_WHAT_COMES | WP_STEP_PARTIAL | WP_STEP_SEND | WP_STEP_TO_SLOTS };

/* Leaves this rank's part reduced; `then` is what else is done with it. */
static void add_ring_reduction(struct wp_plan *plan, struct circle circle, uint32_t then)
{
    add_ring_step(plan, WP_STEP_SEND | WP_STEP_FROM_IN | WP_STEP_TO_SLOTS, after(circle, -1));
    for (int32_t i = 2; i < circle.num_ranks; i++)
        add_ring_step(plan, ADD_AND_PASS_ON, after(circle, -i));
    add_ring_step(plan, REDUCE_WHAT_COMES | WP_STEP_TO_OUT | then, circle.rank);
}

/* This rank's part has been sent: those of the others follow. */
static void add_ring_gathering(struct wp_plan *plan, struct circle circle)
{
    for (int32_t i = 1; i < circle.num_ranks - 1; i++)
        add_ring_step(plan, WP_STEP_RECEIVE | WP_STEP_SEND | WP_STEP_FROM_OUT | WP_STEP_TO_OUTS,
                      after(circle, -i));
    add_ring_step(plan, WP_STEP_RECEIVE | WP_STEP_FROM_OUT, after(circle, 1));
}

static void add_ring_broadcast(struct wp_plan *plan, struct circle circle, int32_t root)
{
    plan->num_parts = 1;
    if (circle.rank == root)
        add_ring_step(plan, WP_STEP_SEND | WP_STEP_FROM_IN | WP_STEP_TO_OUT | WP_STEP_TO_OUTS, 0);
    else if (after(circle, 1) == root)
        add_ring_step(plan, WP_STEP_RECEIVE | WP_STEP_FROM_OUT, 0);
    else
        add_ring_step(plan, WP_STEP_RECEIVE | WP_STEP_SEND | WP_STEP_FROM_OUT | WP_STEP_TO_OUTS, 0);
}

/* Begins with the rank after the root. */
static void add_ring_to_root(struct wp_plan *plan, struct circle circle, int32_t root)
{
    plan->num_parts = 1;
    if (circle.rank == root)
        add_ring_step(plan, REDUCE_WHAT_COMES | WP_STEP_TO_OUT, 0);
    else if (after(circle, -1) == root)
        add_ring_step(plan, WP_STEP_SEND | WP_STEP_FROM_IN | WP_STEP_TO_SLOTS, 0);
    else
        add_ring_step(plan, ADD_AND_PASS_ON, 0);
}

static void plan_ring(struct wp_plan *plan, struct circle circle, weft_collective collective,
                      int32_t root)
{
    add_peer(plan, after(circle, 1), 0, 0);
    add_peer(plan, after(circle, -1), 0, 0);
    if (collective == WEFT_BROADCAST) {
        add_ring_broadcast(plan, circle, root);
        return;
    }
    if (collective == WEFT_REDUCE) {
        add_ring_to_root(plan, circle, root);
        return;
    }
    if (collective == WEFT_ALL_GATHER)
        add_ring_step(plan, WP_STEP_SEND | WP_STEP_FROM_IN | WP_STEP_TO_OUT | WP_STEP_TO_OUTS,
                      circle.rank);
    else
        add_ring_reduction(plan, circle,
                           writes_all(collective) ? WP_STEP_SEND | WP_STEP_TO_OUTS : 0u);
    if (writes_all(collective))
        add_ring_gathering(plan, circle);
}

/* ------------------------------------------------------------------ any */

struct wp_plan weft__coll_plan(const struct weft__coll_call *call, weft_algorithm algorithm)
{
    const weft_coll *coll = call->coll;
    const struct circle circle = {coll->comm->rank, coll->comm->num_ranks};
    struct wp_plan plan = {.num_parts = circle.num_ranks, .num_senders = 1};
    if (circle.num_ranks == 1)
        add_step(&plan, (struct wp_step){.flags = (uint16_t)(WP_STEP_FROM_IN | WP_STEP_TO_OUT |
                                                             (weft__coll_reduces(call->collective)
                                                                  ? WP_STEP_REDUCE
                                                                  : 0u))});
    else if (algorithm == WEFT_ALGORITHM_TWOSHOT_PUSH)
        plan_push(&plan, circle, call->collective, coll->num_slots);
    else if (algorithm == WEFT_ALGORITHM_RELAY)
        plan_relay(&plan, circle, call->root);
    else
        plan_ring(&plan, circle, call->collective, call->root);
    return plan;
}

int weft__coll_is_pipelined(weft_algorithm algorithm)
{
    return algorithm == WEFT_ALGORITHM_TWOSHOT_PUSH || algorithm == WEFT_ALGORITHM_RELAY ||
           algorithm == WEFT_ALGORITHM_RING;
}

enum weft__coll_reach weft__coll_reach(weft_collective collective, weft_algorithm algorithm)
{
    if (algorithm == WEFT_ALGORITHM_RING)
        return writes_all(collective) ? WEFT__COLL_MAY_REACH_OUT : WEFT__COLL_REACHES_NO_OUT;
    if (algorithm == WEFT_ALGORITHM_TWOSHOT ||
        (weft__coll_is_pipelined(algorithm) && writes_all(collective)))
        return WEFT__COLL_REACHES_OUT;
    return WEFT__COLL_REACHES_NO_OUT;
}
