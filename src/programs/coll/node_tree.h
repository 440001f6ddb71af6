/* SPDX-License-Identifier: MIT */
/*
 * Small messages go along a tree of the nodes, in as many hops as it is deep, where a ring takes as
 * many as there are nodes. Rings to and from neighbours in the tree are the same however many nodes
 * there are, and whatever the root.
 *
 *     all-reduce   sums go up: a node adds what its first child has sent, its own sum, and what its
 *                  second child has. The highest node's goes down to all
 *     reduce       the same, but down only to the root's node
 *     broadcast    from the root's node each passes on to all other neighbours
 *
 * Steps have lags by depth: a node that sends a chunk has one less than the node that receives it.
 * In its turn t a node does what goes down for chunk t - num_levels - depth, then what goes up for
 * chunk t - num_levels + depth, or a broadcast's for chunk t - hops_to_root. So it waits for what
 * was sent in the turn before. With a window (ring.h) of two or more it waits for the slots of
 * chunks that were sent two turns before or earlier, which have been taken in the turn before. So
 * of all warps of a channel the one that is least far waits for nobody.
 */
#pragma once

#include "programs/coll/rail_rows.h"

/* One channel of a rail along the tree. */
struct wp_tree_walk {
    const struct wp_carrier *carrier;
    struct wp_ring rings[WP_TREE_NUM_NEIGHBOURS];
    uint64_t num_sent[WP_TREE_NUM_NEIGHBOURS], num_received[WP_TREE_NUM_NEIGHBOURS]; /* chunks */
};

WP_FN int wp_tree_has(const struct wp_node_tree *tree, int32_t neighbour)
{
    return tree->rings.num_tree_ways > 0 && tree->nodes[neighbour] != WP_NO_RANK;
}

WP_FN struct wp_tree_walk wp_tree_walk_of(const struct wp_carrier *carrier)
{
    const struct wp_node_tree *tree = &carrier->args->tree;
    struct wp_tree_walk walk;
    walk.carrier = carrier;
    for (int32_t i = 0; i < WP_TREE_NUM_NEIGHBOURS; i++) {
        if (!wp_tree_has(tree, i))
            continue;
        const int32_t child = i == WP_TREE_PARENT ? tree->child : i - WP_TREE_FIRST_CHILD;
        walk.rings[i] = wp_tree_ring_of(&tree->rings, (enum wp_tree_neighbour)i, tree->nodes[i],
                                        child, carrier->channel);
        walk.num_sent[i] =
            *wp_ring_counter(&walk.rings[i], tree->rings.num_sent, carrier->op->sequence);
        walk.num_received[i] =
            *wp_ring_counter(&walk.rings[i], tree->rings.num_received, carrier->op->sequence);
    }
    return walk;
}

/* For the next operation, also by one that does not go along the tree. */
WP_FN void wp_tree_note(const struct wp_tree_walk *walk)
{
    const struct wp_operation *op = walk->carrier->op;
    const struct wp_node_tree *tree = &walk->carrier->args->tree;
    for (int32_t i = 0; i < WP_TREE_NUM_NEIGHBOURS && wp_lane_idx(op->warp) == 0; i++) {
        if (!wp_tree_has(tree, i))
            continue;
        *wp_ring_counter(&walk->rings[i], tree->rings.num_sent, op->sequence + 1) =
            walk->num_sent[i];
        *wp_ring_counter(&walk->rings[i], tree->rings.num_received, op->sequence + 1) =
            walk->num_received[i];
    }
}

/* ------------------------------------------------------------------ steps */

/* The step of a node with a chunk. From and to are bits of neighbours; those that are not there are
 * left out. */
struct wp_tree_step {
    uint32_t from, to;
    int is_added_to;
    int is_complete;
    int is_delivered;
};

enum {
    WP_TREE_TO_PARENT = 1 << WP_TREE_PARENT,
    WP_TREE_TO_CHILDREN = 1 << WP_TREE_FIRST_CHILD | 1 << WP_TREE_SECOND_CHILD,
    WP_TREE_TO_ALL = WP_TREE_TO_PARENT | WP_TREE_TO_CHILDREN
};

WP_FN int wp_tree_goes(const struct wp_tree_walk *walk, uint32_t neighbours, int32_t i)
{
    return (neighbours >> i & 1) != 0 && wp_tree_has(&walk->carrier->args->tree, i);
}

/* Warp-wide: the slot of the chunk that comes next from a neighbour; NULL if it does not. */
WP_FN const char *wp_tree_receive(const struct wp_tree_walk *walk, int32_t i)
{
    const struct wp_operation *op = walk->carrier->op;
    const struct wp_relay relay = {walk->rings[i], op, 0, 0, 0};
    if (wp_ring_receive(op, &walk->rings[i], walk->num_received[i]) != WP_STATUS_OK)
        return NULL;
    const char *slot = wp_ring_in_slot(&walk->rings[i], walk->num_received[i]);
    return wp_relay_check(&relay, slot) == WP_STATUS_OK ? slot : NULL;
}

/* Warp-wide: what the step needs. */
WP_FN enum wp_status wp_tree_await(const struct wp_tree_walk *walk, const struct wp_tree_step *step,
                                   struct wp_passage *passage)
{
    for (int32_t i = 0; i < WP_TREE_NUM_NEIGHBOURS; i++) {
        if (!wp_tree_goes(walk, step->from, i))
            continue;
        const char *slot = wp_tree_receive(walk, i);
        if (slot == NULL)
            return WP_STATUS_FAILED;
        if (step->is_added_to && i == WP_TREE_SECOND_CHILD)
            passage->behind = slot;
        else
            passage->in = slot;
    }
    for (int32_t i = 0; i < WP_TREE_NUM_NEIGHBOURS; i++) {
        if (!wp_tree_goes(walk, step->to, i))
            continue;
        const struct wp_relay relay = {walk->rings[i], walk->carrier->op, 0, 0, 0};
        char *slot = wp_relay_reserve(&relay, walk->num_sent[i]);
        if (slot == NULL)
            return WP_STATUS_FAILED;
        passage->out.slots[passage->out.num_slots++] = slot;
    }
    return WP_STATUS_OK;
}

WP_CALLED_FN enum wp_status wp_tree_take_step(struct wp_tree_walk *walk,
                                              const struct wp_stream *stream, uint64_t chunk,
                                              const struct wp_tree_step *step)
{
    const struct wp_carrier *carrier = walk->carrier;
    struct wp_passage passage = {
        *stream,
        wp_stream_chunk(&carrier->args->tree.rings, stream, carrier->channel, chunk),
        NULL,
        NULL,
        NULL,
        wp_no_targets(),
        step->is_added_to,
        step->is_complete,
        step->is_delivered};
    if (wp_tree_await(walk, step, &passage) != WP_STATUS_OK)
        return WP_STATUS_FAILED;
    wp_move_chunk(carrier, &passage);
    for (int32_t i = 0; i < WP_TREE_NUM_NEIGHBOURS; i++)
        if (wp_tree_goes(walk, step->to, i))
            wp_ring_send(carrier->op->warp, &walk->rings[i], walk->num_sent[i]++,
                         WP_CHUNK_HEADER_BYTES + passage.chunk.bytes);
    for (int32_t i = 0; i < WP_TREE_NUM_NEIGHBOURS; i++)
        if (wp_tree_goes(walk, step->from, i))
            wp_ring_consume(carrier->op->warp, &walk->rings[i], walk->num_received[i]++);
    return WP_STATUS_OK;
}

/* ------------------------------------------------------------------ ways */

/* A chunk that goes up, or turns at the highest node. */
WP_FN struct wp_tree_step wp_tree_step_up(const struct wp_internode_collective_args *args)
{
    const struct wp_node_tree *tree = &args->tree;
    const int is_highest = tree->depth == 0, is_for_all = args->collective == WEFT_ALL_REDUCE;
    struct wp_tree_step step = {WP_TREE_TO_CHILDREN, WP_TREE_TO_PARENT, 1, is_highest, 0};
    if (!is_highest)
        return step;
    step.to = is_for_all ? (uint32_t)WP_TREE_TO_CHILDREN : (uint32_t)1 << tree->toward_root;
    step.is_delivered = is_for_all || tree->hops_to_root == 0;
    return step;
}

/* A chunk that goes down below the highest node; in a reduce, to the root's node. */
WP_FN struct wp_tree_step wp_tree_step_down(const struct wp_internode_collective_args *args)
{
    const struct wp_node_tree *tree = &args->tree;
    struct wp_tree_step step = {WP_TREE_TO_PARENT, WP_TREE_TO_CHILDREN, 0, 0, 1};
    if (args->collective == WEFT_ALL_REDUCE)
        return step;
    step.to = (uint32_t)1 << tree->toward_root;
    step.is_delivered = tree->hops_to_root == 0;
    if (tree->toward_root == WP_TREE_PARENT) /* it does not come by here */
        step.from = step.to = 0;
    return step;
}

/* Away from the root's node. */
WP_FN struct wp_tree_step wp_tree_step_away(const struct wp_internode_collective_args *args)
{
    const uint32_t from = (uint32_t)1 << args->tree.toward_root;
    const struct wp_tree_step step = {from, WP_TREE_TO_ALL & ~from, 0, 0,
                                      args->tree.hops_to_root > 0};
    return step;
}

/* The step of the chunk that a turn with that lag does, if there is one. */
WP_FN enum wp_status wp_tree_turn(struct wp_tree_walk *walk, const struct wp_stream *stream,
                                  uint64_t turn, int32_t lag, const struct wp_tree_step *step)
{
    const struct wp_carrier *carrier = walk->carrier;
    const uint64_t num_chunks =
        wp_stream_chunks(&carrier->args->tree.rings, stream, carrier->channel, 0);
    const uint64_t chunk = turn - (uint64_t)lag;
    if (turn < (uint64_t)lag || chunk >= num_chunks || (step->from | step->to) == 0)
        return WP_STATUS_OK;
    return wp_tree_take_step(walk, stream, chunk, step);
}

WP_FN enum wp_status wp_tree_carry(struct wp_tree_walk *walk)
{
    const struct wp_internode_collective_args *args = walk->carrier->args;
    const struct wp_node_tree *tree = &args->tree;
    const int is_broadcast = args->collective == WEFT_BROADCAST;
    const struct wp_stream stream =
        is_broadcast ? wp_stream_of(args, args->root_node, args->rings.nodes.node)
                     : wp_stream_of(args, 0, args->root_node);
    const struct wp_tree_step up = wp_tree_step_up(args), down = wp_tree_step_down(args),
                              away = wp_tree_step_away(args);
    const uint64_t num_turns = wp_stream_chunks(&tree->rings, &stream, walk->carrier->channel, 0) +
                               2 * (uint64_t)tree->num_levels;
    enum wp_status status = WP_STATUS_OK;
    for (uint64_t turn = 0; turn < num_turns && status == WP_STATUS_OK; turn++) {
        if (is_broadcast) {
            status = wp_tree_turn(walk, &stream, turn, tree->hops_to_root, &away);
            continue;
        }
        if (tree->depth > 0)
            status = wp_tree_turn(walk, &stream, turn, tree->num_levels + tree->depth, &down);
        if (status == WP_STATUS_OK)
            status = wp_tree_turn(walk, &stream, turn, tree->num_levels - tree->depth, &up);
    }
    return status;
}
