/* SPDX-License-Identifier: MIT */
/*
 * The steps of `pipeline` for trees. There are two over the same ranks (coll/trees.h), each for one half of the row:
 * who has children in one is a leaf in the other, so that all links carry about as much.
 *
 * A sum goes up: a rank reduces what its first child has sent, its own row, and what its second child has sent, rounded
 * at each rank. The root's goes down again, directly to the outputs, or to the root of a reduce. In a broadcast the root
 * is above two trees of the others.
 *
 * A rank has a lag for each step by its depth, so that in a turn everybody does what was posted in the turn before, and
 * all of them are busy: what goes up has most_depth - depth, what goes down most_depth + depth. Who sends has one less
 * than who receives, in both trees; and each rank does the steps of the first tree before those of the second. So two
 * ranks that are neighbours in both have their steps in the same order. In a turn, steps of one tree wait for slots that
 * are read in that turn at the earliest, and those that go down, which come first, for others that go down, the deepest
 * of which waits for none; so nobody waits for ever.
 */
#include "coll/plans.h"
#include "coll/trees.h"

enum { NUM_TREES = 2 };

/* Ranks in two trees. */
struct forest {
    int32_t num_ranks;
    weft_collective collective;
    int32_t root; /* of collectives that have one */
};

/* A rank's neighbours in a tree, or NO_PLACE. */
struct links {
    int32_t up, down[2];
};

/* ------------------------------------------------------------------ who is where */

static int32_t rank_at(const struct forest *forest, int32_t place)
{
    if (forest->collective != WEFT_BROADCAST || place == WEFT__NO_PLACE)
        return place;
    return (forest->root + 1 + place) % forest->num_ranks;
}

static struct weft__tree_place place_of(const struct forest *forest, int32_t rank, int tree)
{
    struct weft__tree_place places[NUM_TREES];
    if (forest->collective == WEFT_BROADCAST)
        weft__double_tree(forest->num_ranks - 1,
                          (rank - forest->root - 1 + forest->num_ranks) % forest->num_ranks,
                          places);
    else
        weft__double_tree(forest->num_ranks, rank, places);
    return places[tree];
}

static int is_above_all(const struct forest *forest, int32_t rank)
{
    return forest->collective == WEFT_BROADCAST && rank == forest->root;
}

static int32_t first_of_tree(const struct forest *forest, int tree)
{
    const int is_below_root = forest->collective == WEFT_BROADCAST;
    return rank_at(forest, weft__double_tree_root(forest->num_ranks - is_below_root, tree));
}

static struct links links_of(const struct forest *forest, int32_t rank, int tree)
{
    if (is_above_all(forest, rank))
        return (struct links){WEFT__NO_PLACE, {first_of_tree(forest, tree), WEFT__NO_PLACE}};
    const struct weft__tree_place place = place_of(forest, rank, tree);
    struct links links = {rank_at(forest, place.up),
                          {rank_at(forest, place.down[0]), rank_at(forest, place.down[1])}};
    if (place.up == WEFT__NO_PLACE && forest->collective == WEFT_BROADCAST)
        links.up = forest->root;
    return links;
}

static int32_t depth_of(const struct forest *forest, int32_t rank, int tree)
{
    int32_t depth = 0;
    for (int32_t above = links_of(forest, rank, tree).up; above != WEFT__NO_PLACE;
         above = links_of(forest, above, tree).up)
        depth++;
    return depth;
}

/* Of any rank, or more. */
static int32_t most_depth(const struct forest *forest)
{
    int32_t depth = 0;
    while (1 << depth < forest->num_ranks)
        depth++;
    return depth;
}

/* ------------------------------------------------------------------ slots */

enum { NUM_SENDERS = 3 * NUM_TREES };

/* Who sends what goes down, or, to the root of a reduce, the sum. */
static int32_t result_from(const struct forest *forest, int32_t rank, int tree)
{
    if (forest->collective != WEFT_REDUCE)
        return links_of(forest, rank, tree).up;
    const int32_t first = first_of_tree(forest, tree);
    return rank == forest->root && rank != first ? first : (int32_t)WEFT__NO_PLACE;
}

/* Which of a rank's slots a sender has: the same in both trees, since the two have one fifo. */
static int32_t slots_of(const struct forest *forest, int32_t rank, int32_t sender)
{
    for (int tree = 0; tree < NUM_TREES; tree++) {
        const struct links links = links_of(forest, rank, tree);
        if (result_from(forest, rank, tree) == sender)
            return 3 * tree;
        for (int i = 0; i < 2; i++)
            if (links.down[i] == sender)
                return 3 * tree + 1 + i;
    }
    return 0; /* it sends nothing */
}

static void add_peer(struct wp_plan *plan, const struct forest *forest, int32_t own, int32_t rank)
{
    if (rank != WEFT__NO_PLACE)
        weft__plan_add_peer(plan, rank, slots_of(forest, own, rank), slots_of(forest, rank, own));
}

/* ------------------------------------------------------------------ steps */

/* Of a rank in a tree: who is where in the plan's peers. */
struct seat {
    struct wp_peers children; /* the second one first: it comes behind the own row (wp_step) */
    struct wp_peers above;    /* to which sums go */
    struct wp_peers source;   /* of results */
    int32_t depth;
    int has_first_child;
};

static struct wp_peers added_since(const struct wp_plan *plan, int32_t first)
{
    return (struct wp_peers){(uint8_t)first, (uint8_t)(plan->num_peers - first)};
}

static struct seat take_seat(struct wp_plan *plan, const struct forest *forest, int32_t rank,
                             int tree)
{
    const struct links links = links_of(forest, rank, tree);
    struct seat seat = {.depth = depth_of(forest, rank, tree),
                        .has_first_child = links.down[0] != WEFT__NO_PLACE};
    int32_t first = plan->num_peers;
    add_peer(plan, forest, rank, links.down[1]);
    add_peer(plan, forest, rank, links.down[0]);
    seat.children = added_since(plan, first);
    first = plan->num_peers;
    add_peer(plan, forest, rank, links.up);
    if (links.up == WEFT__NO_PLACE && forest->collective == WEFT_REDUCE && rank != forest->root)
        add_peer(plan, forest, rank, forest->root);
    seat.above = added_since(plan, first);
    first = plan->num_peers;
    add_peer(plan, forest, rank, result_from(forest, rank, tree));
    seat.source = added_since(plan, first);
    return seat;
}

static void add_step(struct wp_plan *plan, uint32_t flags, int tree, int32_t lag,
                     struct wp_peers senders, struct wp_peers receivers, const struct seat *seat)
{
    weft__plan_add_step(plan, (struct wp_step){(uint16_t)flags, (uint8_t)tree, (uint8_t)lag,
                                               senders, receivers, (uint8_t)seat->has_first_child});
}

/* What comes from above, or from the tree's root to that of a reduce. */
static void add_way_down(struct wp_plan *plan, const struct forest *forest, const struct seat *seat,
                         int tree, int32_t lag)
{
    const int passes_on = seat->children.num > 0 && forest->collective != WEFT_REDUCE;
    if (seat->source.num > 0)
        add_step(plan,
                 WP_STEP_RECEIVE | WP_STEP_FROM_OUT |
                     (passes_on ? WP_STEP_SEND | WP_STEP_TO_OUTS : 0u),
                 tree, lag, seat->source, seat->children, seat);
    else if (forest->collective == WEFT_BROADCAST)
        add_step(plan, WP_STEP_SEND | WP_STEP_FROM_IN | WP_STEP_TO_OUT | WP_STEP_TO_OUTS, tree, lag,
                 seat->source, seat->children, seat);
}

static void add_way_up(struct wp_plan *plan, const struct forest *forest, const struct seat *seat,
                       int32_t rank, int tree, int32_t lag)
{
    const uint32_t sum =
        seat->children.num > 0 ? (uint32_t)WEFT__REDUCE_WHAT_COMES : WP_STEP_FROM_IN;
    const int is_wanted = forest->collective == WEFT_ALL_REDUCE || rank == forest->root;
    if (seat->depth > 0)
        add_step(plan,
                 sum | WP_STEP_SEND | WP_STEP_TO_SLOTS |
                     (seat->children.num > 0 ? WP_STEP_PARTIAL : 0u),
                 tree, lag, seat->children, seat->above, seat);
    else if (forest->collective == WEFT_ALL_REDUCE)
        add_step(plan, sum | WP_STEP_TO_OUT | WP_STEP_SEND | WP_STEP_TO_OUTS, tree, lag,
                 seat->children, seat->children, seat);
    else
        add_step(plan, sum | (is_wanted ? WP_STEP_TO_OUT : WP_STEP_SEND | WP_STEP_TO_OUTS), tree,
                 lag, seat->children, seat->above, seat);
}

void weft__plan_tree(const struct weft__coll_call *call, struct wp_plan *plan)
{
    const struct forest forest = {call->coll->comm->num_ranks, call->collective, call->root};
    const int32_t rank = call->coll->comm->rank;
    const int has_sums = weft__coll_reduces(call->collective);
    const int32_t turning = has_sums ? most_depth(&forest) : 0;
    plan->num_parts = NUM_TREES;
    plan->num_senders = NUM_SENDERS;
    for (int tree = 0; tree < NUM_TREES; tree++) {
        const struct seat seat = take_seat(plan, &forest, rank, tree);
        const int32_t after_turn = forest.collective == WEFT_REDUCE ? 1 : seat.depth;
        add_way_down(plan, &forest, &seat, tree, turning + after_turn);
        if (has_sums)
            add_way_up(plan, &forest, &seat, rank, tree, turning - seat.depth);
    }
}
