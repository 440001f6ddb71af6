/* SPDX-License-Identifier: MIT */
/*
 * The steps of `pipeline` (programs/pipeline.h) for each collective and algorithm.
 *
 * Two shots by pushes and relays: every rank, or the root, sends each owner its part; the owner reduces what comes in
 * ascending rank order, or takes it as it is, and writes it to the outputs of all. What is sent runs ahead of what is
 * reduced by as many pieces as there are slots, less one, so that waits are for what was sent long before.
 *
 * Rings: part c goes from rank to rank, beginning with the one after c, and each reduces its own into it: so the order
 * is c + 1, c + 2, ..., c, and every hop rounds. What is complete goes around once more, directly to the outputs.
 */
#include "coll/coll.h"
#include "programs/pipeline.h"

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

static void add_step(struct wp_plan *plan, uint32_t flags, int32_t part, int32_t lag)
{
    plan->steps[plan->num_steps++] = (struct wp_step){(uint16_t)flags, (uint8_t)part, (uint8_t)lag};
    plan->most_lag = lag > plan->most_lag ? lag : plan->most_lag;
}

static int writes_all(weft_collective collective)
{
    return collective != WEFT_REDUCE_SCATTER && collective != WEFT_REDUCE;
}

/* ------------------------------------------------------------------ pushes */

static void plan_push(struct wp_plan *plan, struct circle circle, weft_collective collective,
                      int32_t num_slots)
{
    const struct wp_peers others = {after(circle, 1), circle.num_ranks - 1};
    plan->senders = plan->receivers = others;
    add_step(plan, WP_STEP_SEND | WP_STEP_FROM_IN | WP_STEP_TO_SLOTS | WP_STEP_SPREAD,
             after(circle, 1), 0);
    add_step(plan,
             REDUCE_WHAT_COMES | WP_STEP_TO_OUT | (writes_all(collective) ? WP_STEP_TO_OUTS : 0u),
             circle.rank, num_slots - 1);
}

/* The root has no part. */
static void plan_relay(struct wp_plan *plan, struct circle circle, int32_t root)
{
    const struct wp_peers others = {after(circle, 1), circle.num_ranks - 1};
    plan->num_parts = circle.num_ranks - 1;
    plan->receivers = others;
    plan->skipped = root;
    if (circle.rank == root) {
        add_step(plan,
                 WP_STEP_SEND | WP_STEP_FROM_IN | WP_STEP_TO_OUT | WP_STEP_TO_OUTS | WP_STEP_SPREAD,
                 0, 0);
        return;
    }
    plan->senders = (struct wp_peers){root, 1};
    add_step(plan, WP_STEP_RECEIVE | WP_STEP_FROM_OUT | WP_STEP_TO_OUTS, after(circle, -1 - root),
             0);
}

/* ------------------------------------------------------------------ rings */

/* Leaves this rank's part reduced; `then` is what else is done with it. */
static void add_ring_reduction(struct wp_plan *plan, struct circle circle, uint32_t then)
{
    add_step(plan, WP_STEP_SEND | WP_STEP_FROM_IN | WP_STEP_TO_SLOTS, after(circle, -1), 0);
    for (int32_t i = 2; i < circle.num_ranks; i++)
        add_step(plan, REDUCE_WHAT_COMES | WP_STEP_SEND | WP_STEP_TO_SLOTS, after(circle, -i), 0);
    add_step(plan, REDUCE_WHAT_COMES | WP_STEP_TO_OUT | then, circle.rank, 0);
}

/* Behind a step that has sent this rank's part. */
static void add_ring_gathering(struct wp_plan *plan, struct circle circle)
{
    for (int32_t i = 1; i < circle.num_ranks - 1; i++)
        add_step(plan, WP_STEP_RECEIVE | WP_STEP_SEND | WP_STEP_FROM_OUT | WP_STEP_TO_OUTS,
                 after(circle, -i), 0);
    add_step(plan, WP_STEP_RECEIVE | WP_STEP_FROM_OUT, after(circle, 1), 0);
}

static void add_ring_broadcast(struct wp_plan *plan, struct circle circle, int32_t root)
{
    const int is_last = after(circle, 1) == root;
    plan->num_parts = 1;
    if (circle.rank == root)
        add_step(plan, WP_STEP_SEND | WP_STEP_FROM_IN | WP_STEP_TO_OUT | WP_STEP_TO_OUTS, 0, 0);
    else if (is_last)
        add_step(plan, WP_STEP_RECEIVE | WP_STEP_FROM_OUT, 0, 0);
    else
        add_step(plan, WP_STEP_RECEIVE | WP_STEP_SEND | WP_STEP_FROM_OUT | WP_STEP_TO_OUTS, 0, 0);
    if (circle.rank == root)
        plan->senders.num = 0;
    if (is_last)
        plan->receivers.num = 0;
}

/* Begins with the rank after the root. */
static void add_ring_to_root(struct wp_plan *plan, struct circle circle, int32_t root)
{
    const int is_first = after(circle, -1) == root;
    plan->num_parts = 1;
    if (circle.rank == root)
        add_step(plan, REDUCE_WHAT_COMES | WP_STEP_TO_OUT, 0, 0);
    else if (is_first)
        add_step(plan, WP_STEP_SEND | WP_STEP_FROM_IN | WP_STEP_TO_SLOTS, 0, 0);
    else
        add_step(plan, REDUCE_WHAT_COMES | WP_STEP_SEND | WP_STEP_TO_SLOTS, 0, 0);
    if (is_first)
        plan->senders.num = 0;
    if (circle.rank == root)
        plan->receivers.num = 0;
}

static void plan_ring(struct wp_plan *plan, struct circle circle, weft_collective collective,
                      int32_t root)
{
    plan->senders = (struct wp_peers){after(circle, -1), 1};
    plan->receivers = (struct wp_peers){after(circle, 1), 1};
    plan->first_source = plan->senders.first;
    if (collective == WEFT_BROADCAST) {
        add_ring_broadcast(plan, circle, root);
        return;
    }
    if (collective == WEFT_REDUCE) {
        add_ring_to_root(plan, circle, root);
        return;
    }
    if (collective == WEFT_ALL_GATHER)
        add_step(plan, WP_STEP_SEND | WP_STEP_FROM_IN | WP_STEP_TO_OUT | WP_STEP_TO_OUTS,
                 circle.rank, 0);
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
    struct wp_plan plan = {.num_parts = circle.num_ranks, .skipped = WP_NO_RANK};
    if (circle.num_ranks == 1)
        add_step(&plan,
                 WP_STEP_FROM_IN | WP_STEP_TO_OUT |
                     (weft__coll_reduces(call->collective) ? WP_STEP_REDUCE : 0u),
                 0, 0);
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
    if (algorithm == WEFT_ALGORITHM_RING && writes_all(collective))
        return WEFT__COLL_MAY_REACH_OUT;
    if (algorithm == WEFT_ALGORITHM_TWOSHOT ||
        (weft__coll_is_pipelined(algorithm) && writes_all(collective)))
        return WEFT__COLL_REACHES_OUT;
    return WEFT__COLL_REACHES_NO_OUT;
}
