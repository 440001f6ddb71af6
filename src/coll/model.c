/* SPDX-License-Identifier: MIT */
#include "coll/model.h"

#include <math.h>
#include <stddef.h>

/* ------------------------------------------------------------------ what algorithms move */

/* For D nodes of L ranks, R in all. */
struct node_moves {
    /* Messages that follow each other: these, more for each other node, for each two nodes, and for
     * each time that the nodes can be halved. */
    double hops, node_hops, pair_hops, level_hops;
    /* Messages of a node and rail, on the average: these, more for each other node, and for each
     * two. */
    int8_t messages, node_messages, pair_messages;
    /* Rows that the busiest node sends: these, for each rank of the other nodes, and for each two
     * ranks of each two nodes; to so many others, which share them. */
    int8_t rows, other_rows, pair_rows, receivers;
    /* Rows that a node's ranks read and write there: of each rank L, R and L R. */
    int8_t local_rows, all_rows, table_rows;
};

/* Rails: nodes are a ring (programs/coll/internode_collective.c). */
static const struct node_moves swaps_sums = {
    .hops = 1, .rows = 1, .receivers = 1, .local_rows = 2, .messages = 1};
static const struct node_moves sums_and_passes_on = {
    .node_hops = 2, .rows = 2, .receivers = 1, .local_rows = 2, .messages = 2};
/* Or sums of them. */
static const struct node_moves passes_rows = {
    .node_hops = 1, .other_rows = 1, .receivers = 1, .table_rows = 1, .node_messages = 1};
static const struct node_moves passes_rows_of_pairs = {
    .pair_hops = 1, .pair_rows = 1, .receivers = 1, .table_rows = 1, .pair_messages = 1};
static const struct node_moves passes_row = {
    .node_hops = 1, .rows = 1, .receivers = 1, .local_rows = 1, .messages = 2};
static const struct node_moves passes_rows_of_root = {
    .node_hops = 1, .other_rows = 1, .receivers = 1, .all_rows = 1, .node_messages = 1};

/* Trees of nodes (programs/coll/node_tree.h), after the word that goes around; of roots on the
 * average. */
static const struct node_moves up_and_down = {
    .hops = 1, .level_hops = 2, .rows = 3, .receivers = 3, .local_rows = 2, .messages = 3};
static const struct node_moves away_from_root = {
    .hops = -1, .level_hops = 1.5, .rows = 2, .receivers = 2, .local_rows = 1, .messages = 2};
static const struct node_moves up_and_to_root = {
    .hops = 1, .level_hops = 1.5, .rows = 2, .receivers = 2, .local_rows = 1, .messages = 3};

static const struct node_moves *const by_rails[WEFT_SCATTER + 1] = {
    [WEFT_ALL_REDUCE] = &sums_and_passes_on, [WEFT_REDUCE_SCATTER] = &passes_rows,
    [WEFT_ALL_GATHER] = &passes_rows,        [WEFT_ALL_TO_ALL] = &passes_rows_of_pairs,
    [WEFT_BROADCAST] = &passes_row,          [WEFT_REDUCE] = &passes_row,
    [WEFT_GATHER] = &passes_rows_of_root,    [WEFT_SCATTER] = &passes_rows_of_root,
};
static const struct node_moves *const by_tree[WEFT_SCATTER + 1] = {
    [WEFT_ALL_REDUCE] = &up_and_down,
    [WEFT_BROADCAST] = &away_from_root,
    [WEFT_REDUCE] = &up_and_to_root,
};

static const struct node_moves *moves_of(const struct weft__coll_work *work, int32_t num_nodes)
{
    if (work->algorithm == WEFT_ALGORITHM_TREE)
        return by_tree[work->collective];
    if (work->algorithm != WEFT_ALGORITHM_RAILS)
        return NULL;
    return work->collective == WEFT_ALL_REDUCE && num_nodes == 2 ? &swaps_sums
                                                                 : by_rails[work->collective];
}

double weft__coll_hops(const struct weft__coll_work *work, int32_t num_nodes)
{
    const struct node_moves *moves = moves_of(work, num_nodes);
    const double num_others = num_nodes - 1;
    if (moves == NULL)
        return 0;
    return fmax(1, moves->hops + moves->node_hops * num_others +
                       moves->pair_hops * num_others * num_nodes / 2 +
                       moves->level_hops * ceil(log2(num_nodes)));
}

/* ------------------------------------------------------------------ what that takes */

/*
 * Machine cpu over TCP, fitted by the least sum of logarithms to 2 to 16 nodes on 2 cores that had
 * other work too, as virtual nodes and as hosts in network namespaces (docs/performance.md has how
 * far off it is). Cores that do nothing else are faster.
 */
static const struct {
    /* Until the ranks of a node have met, and the end, for each that shares a core. */
    double start_us;
    double message_us; /* what both ends do for one, and the wake-up */
    double chunk_us;   /* the same of one that follows at once */
    double wire_gbps;  /* of a core that sends and one that receives */
    double copy_gbps;  /* of a core that reads or writes rows */
} costs = {.start_us = 23, .message_us = 25, .chunk_us = 0.4, .wire_gbps = 1.75, .copy_gbps = 15};

double weft__coll_latency_us(const struct weft__coll_wire *wire)
{
    enum { ASSUMED_LATENCY_US = 10 };
    return wire->latency_us > 0 ? wire->latency_us : ASSUMED_LATENCY_US;
}

/* The time of an operation, for a node. */
struct load {
    double num_cores; /* that the node has to itself */
    double hops, hop_us;
    double sent, touched; /* bytes */
    double of_ring;       /* of the bytes that are sent, over one ring */
    double chunk;
};

static struct load load_of(const struct weft__coll_between *between,
                           const struct weft__coll_work *work, const struct node_moves *moves)
{
    const double num_others = between->num_nodes - 1, num_local = between->most_local;
    const double num_pairs = num_others * between->num_nodes / 2;
    const double row_bytes = (double)work->row_bytes, num_ranks = work->num_ranks;
    struct load load = {
        .num_cores = num_local / fmax(1, between->wire.ranks_per_core),
        .hops = weft__coll_hops(work, between->num_nodes),
        .hop_us = weft__coll_latency_us(&between->wire) + costs.message_us,
        .sent = row_bytes * (moves->rows + moves->other_rows * num_others * num_local +
                             moves->pair_rows * num_local * num_local * num_pairs),
        .touched = row_bytes * (moves->local_rows * num_local + moves->all_rows * num_ranks +
                                moves->table_rows * num_local * num_ranks)};
    load.of_ring =
        load.sent / moves->receivers / ((double)between->num_rails * between->num_channels);
    load.chunk = fmin(load.of_ring,
                      (double)(work->algorithm == WEFT_ALGORITHM_TREE ? between->tree_chunk_bytes
                                                                      : between->chunk_bytes));
    return load;
}

/* Messages follow each other, or it is the cores that have no rest. */
static double latency_us(const struct weft__coll_between *between, const struct node_moves *moves,
                         const struct load *load)
{
    const double num_others = between->num_nodes - 1;
    const double num_messages =
        between->num_rails * (moves->messages + moves->node_messages * num_others +
                              moves->pair_messages * num_others * between->num_nodes / 2);
    return costs.start_us * fmax(1, between->wire.ranks_per_core) +
           fmax(load->hops * load->hop_us, num_messages * costs.message_us / load->num_cores);
}

/* The longest of four times: of a core, which may be the node's only one; of the port; of a ring,
 * where more chunks wait for credits; of a chunk on its way through all nodes. */
static double transfer_us(const struct weft__coll_between *between, const struct node_moves *moves,
                          const struct load *load)
{
    enum { BYTES_PER_US = 1000 }; /* at 1 GB/s */
    const double more_chunks = load->chunk > 0 ? load->of_ring / load->chunk - 1 : 0;
    const double num_chunks =
        more_chunks * moves->receivers * between->num_rails * between->num_channels;
    const double cores_us =
        (load->sent / (costs.wire_gbps * fmin(between->num_rails, load->num_cores)) +
         load->touched / (costs.copy_gbps * load->num_cores)) /
            BYTES_PER_US +
        num_chunks * costs.chunk_us / load->num_cores;
    const double port_gbps = between->wire.port_gbps > 0 ? between->wire.port_gbps : INFINITY;
    const double under_way = load->chunk * between->window;
    const double num_waits = under_way > 0 ? fmax(load->of_ring / under_way - 1, 0) : 0;
    const double path_us = ((load->hops - 1) * load->chunk + load->of_ring * moves->receivers) /
                           costs.wire_gbps / BYTES_PER_US;
    return fmax(fmax(cores_us, load->sent / port_gbps / BYTES_PER_US),
                fmax(num_waits * 2 * load->hop_us, path_us));
}

int weft__coll_expect_between(const struct weft__coll_between *between,
                              const struct weft__coll_work *work,
                              struct weft__coll_expectation *expectation)
{
    const struct node_moves *moves = moves_of(work, between->num_nodes);
    if (moves == NULL)
        return 0;
    const struct load load = load_of(between, work, moves);
    *expectation =
        (struct weft__coll_expectation){.latency_us = latency_us(between, moves, &load),
                                        .transfer_us = transfer_us(between, moves, &load),
                                        .link_bytes = (uint64_t)load.sent};
    return 1;
}
