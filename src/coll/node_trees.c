/* SPDX-License-Identifier: MIT */
/* The tree of a communicator's nodes (programs/coll/node_tree.h): coll/trees.h, whose places are
 * nodes. */
#include "coll/coll_internode.h"
#include "coll/trees.h"

static int is_wanted(const weft_coll *coll)
{
    return coll->comm->topology.num_nodes > 1 &&
           (weft__coll_chooses_trees(coll->comm) ||
            weft__coll_is_asked_for(coll, WEFT_ALGORITHM_TREE));
}

static int32_t or_none(int32_t place)
{
    return place == WEFT__NO_PLACE ? (int32_t)WP_NO_RANK : place;
}

static int32_t depth_of(int32_t num_nodes, int32_t node)
{
    int32_t depth = 0;
    for (; node != 0; node = weft__binary_tree(num_nodes, node).up)
        depth++;
    return depth;
}

weft_result weft__coll_tree_create(weft_coll *coll)
{
    const struct weft__machine *machine = weft__machine_of(coll->comm);
    const struct wp_rings *ring = &coll->internode->rings;
    struct wp_node_tree *tree = &coll->internode->tree;
    const int32_t num_nodes = ring->nodes.num_nodes;
    if (!is_wanted(coll))
        return WEFT_OK;
    const struct weft__tree_place place = weft__binary_tree(num_nodes, ring->nodes.node);
    *tree = (struct wp_node_tree){
        .rings = *ring,
        .depth = depth_of(num_nodes, ring->nodes.node),
        .child = place.child,
        .nodes = {or_none(place.up), or_none(place.down[0]), or_none(place.down[1])}};
    while (1 << tree->num_levels < num_nodes)
        tree->num_levels++;
    tree->rings.reach = 0;
    tree->rings.num_tree_ways = WP_TREE_NUM_WAYS;
    tree->rings.words = tree->rings.slots = NULL;
    if (tree->rings.slot_bytes > WEFT__COLL_TREE_SLOT_BYTES)
        tree->rings.slot_bytes = WEFT__COLL_TREE_SLOT_BYTES;
    WEFT__TRY(weft__comm_agree(coll->comm,
                               machine->alloc(coll->comm, weft__rings_counters_bytes(&tree->rings),
                                              &coll->internode->tree_counters),
                               "have a weft_coll's tree"));
    weft__rings_lay_counters(&tree->rings, coll->internode->tree_counters);
    return weft__rings_allocate(coll->comm, 0, &tree->rings);
}

void weft__coll_tree_destroy(weft_coll *coll)
{
    const struct weft__machine *machine = weft__machine_of(coll->comm);
    weft__rings_free(coll->comm, &coll->internode->tree.rings);
    machine->free(coll->comm, coll->internode->tree_counters);
}

struct wp_node_tree weft__coll_tree_toward(const weft_coll *coll, int32_t root_node)
{
    struct wp_node_tree tree = coll->internode->tree;
    const int32_t num_nodes = tree.rings.nodes.num_nodes, node = tree.rings.nodes.node;
    int32_t from = root_node;
    tree.toward_root = root_node == node ? WP_TREE_NUM_NEIGHBOURS : WP_TREE_PARENT;
    for (int32_t above = root_node; above != node && above != 0; from = above) {
        above = weft__binary_tree(num_nodes, from).up;
        if (above == node)
            tree.toward_root = WP_TREE_FIRST_CHILD + weft__binary_tree(num_nodes, from).child;
    }
    for (int32_t other = node; other != root_node; tree.hops_to_root++) {
        /* The deeper one is nearer to where their ways meet. */
        if (depth_of(num_nodes, other) >= depth_of(num_nodes, root_node))
            other = weft__binary_tree(num_nodes, other).up;
        else
            root_node = weft__binary_tree(num_nodes, root_node).up;
    }
    return tree;
}
