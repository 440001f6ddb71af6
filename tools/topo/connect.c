/* SPDX-License-Identifier: MIT */
#include "topo/connect.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "comm/host/error.h"
#include "topo/double_tree.h"

enum { MAX_CONNECTED = 64, FEW_CHANNELS = 16 };

/* ------------------------------------------------------------------ what the nodes have */

static const struct channels *rings_of(const struct topo_nodes *nodes, int32_t node)
{
    return nodes->sets[node].of[CHANNELS_RING];
}
static const struct channels *trees_of(const struct topo_nodes *nodes, int32_t node)
{
    return nodes->sets[node].of[CHANNELS_TREE];
}

static int32_t least_channels(const struct topo_nodes *nodes)
{
    int32_t least = MAX_CONNECTED;
    for (int32_t n = 0; n < nodes->num_nodes; n++) {
        const int32_t num_rings = rings_of(nodes, n)->num_channels;
        const int32_t num_trees = trees_of(nodes, n)->num_channels;
        least = num_rings < least ? num_rings : least;
        least = num_trees < least ? num_trees : least;
    }
    return least;
}

/* The ring channel of a node that is part of ring c: where rings leave by another rail than they
 * come by, every second node has pairs of channels the other way round, so that the rails meet. */
static const struct channel *ring_channel(const struct topo_nodes *nodes, int32_t node, int32_t c,
                                          int32_t num_channels)
{
    const struct channels *rings = rings_of(nodes, node);
    const int is_swapped = rings->cross_nic == 2 && num_channels % 2 == 0 && node % 2 == 1;
    return &rings->channel[is_swapped ? c ^ 1 : c];
}

/* ------------------------------------------------------------------ inside nodes */

static void begin_links(struct connections *connections)
{
    const int64_t count = (int64_t)connections->num_channels * connections->num_ranks;
    for (int64_t i = 0; i < count; i++)
        connections->links[i] = (struct rank_links){-1, -1, -1, {-1, -1, -1}};
}

static void connect_in_node(const struct topo_nodes *nodes, int32_t node, int32_t c,
                            int32_t num_channels, const struct connections *connections)
{
    const struct channel *ring = ring_channel(nodes, node, c, num_channels);
    const struct channel *tree = &trees_of(nodes, node)->channel[c];
    const int32_t num_gpus = rings_of(nodes, node)->num_gpus;
    for (int32_t i = 0; i + 1 < num_gpus; i++) {
        links_of(connections, c, ring->ranks[i])->ring_next = ring->ranks[i + 1];
        links_of(connections, c, ring->ranks[i + 1])->ring_prev = ring->ranks[i];
        links_of(connections, c, tree->ranks[i])->tree_down[0] = tree->ranks[i + 1];
        links_of(connections, c, tree->ranks[i + 1])->tree_up = tree->ranks[i];
    }
}

/* ------------------------------------------------------------------ between nodes */

static void connect_rings(const struct topo_nodes *nodes, int32_t c, int32_t num_channels,
                          const struct connections *connections)
{
    for (int32_t n = 0; n < nodes->num_nodes; n++) {
        const int32_t next = (n + 1) % nodes->num_nodes;
        const int32_t from =
            ring_channel(nodes, n, c, num_channels)->ranks[rings_of(nodes, n)->num_gpus - 1];
        const int32_t to = ring_channel(nodes, next, c, num_channels)->ranks[0];
        links_of(connections, c, from)->ring_next = to;
        links_of(connections, c, to)->ring_prev = from;
    }
}

/* Which rank of a node talks to other nodes. */
enum role { TO_PARENT, TO_CHILD_0, TO_CHILD_1 };

static int32_t rank_of_role(const struct topo_nodes *nodes, int32_t node, int32_t c, enum role role)
{
    const struct channels *trees = trees_of(nodes, node);
    int32_t index = 0;
    if (role == TO_CHILD_0)
        index = trees->pattern != PATTERN_TREE;
    else if (role == TO_CHILD_1)
        index = trees->pattern == PATTERN_SPLIT_TREE;
    return trees->channel[c].ranks[index < trees->num_gpus ? index : 0];
}

static weft_result add_child(struct rank_links *links, int32_t child)
{
    for (int i = 0; i < TREE_MAX_CHILDREN; i++)
        if (links->tree_down[i] == -1) {
            links->tree_down[i] = child;
            return WEFT_OK;
        }
    return weft__error(WEFT_ERROR_INVALID_ARGUMENT, "a rank of a tree has more than %d children",
                       TREE_MAX_CHILDREN);
}

/* Enters the node's neighbours in a tree, whose channels of the node are `c`, as channel
 * `target`. */
static weft_result connect_tree(const struct topo_nodes *nodes, int32_t node, int32_t c,
                                int32_t target, const struct weft__tree_place *place,
                                const struct connections *connections)
{
    struct rank_links *top = links_of(connections, target, rank_of_role(nodes, node, c, TO_PARENT));
    if (place->up != WEFT__NO_PLACE)
        top->tree_up =
            rank_of_role(nodes, place->up, c, place->child == 0 ? TO_CHILD_0 : TO_CHILD_1);
    for (int i = 0; i < 2; i++) {
        const enum role role = i == 0 ? TO_CHILD_0 : TO_CHILD_1;
        struct rank_links *links =
            links_of(connections, target, rank_of_role(nodes, node, c, role));
        if (place->down[i] != WEFT__NO_PLACE)
            WEFT__TRY(add_child(links, rank_of_role(nodes, place->down[i], c, TO_PARENT)));
    }
    return WEFT_OK;
}

static weft_result connect_trees(const struct topo_nodes *nodes, int32_t c, int32_t num_channels,
                                 const struct connections *connections)
{
    for (int32_t n = 0; n < nodes->num_nodes; n++) {
        struct weft__tree_place places[2];
        topo_double_tree(nodes->num_nodes, n, places);
        WEFT__TRY(connect_tree(nodes, n, c, c, &places[0], connections));
        if (c + num_channels < connections->num_channels)
            WEFT__TRY(connect_tree(nodes, n, c, c + num_channels, &places[1], connections));
    }
    return WEFT_OK;
}

/* ------------------------------------------------------------------ the whole */

static void copy_channels(const struct connections *connections, int32_t to, int32_t from)
{
    memcpy(links_of(connections, to, 0), links_of(connections, from, 0),
           (size_t)connections->num_ranks * sizeof *connections->links);
}

static weft_result check_ranks(const struct topo_nodes *nodes, const struct channels *channels)
{
    for (int32_t c = 0; c < channels->num_channels; c++)
        for (int32_t i = 0; i < channels->num_gpus; i++)
            if (channels->channel[c].ranks[i] >= nodes->num_ranks)
                return weft__error(WEFT_ERROR_INVALID_ARGUMENT,
                                   "a channel has rank %" PRId32 ", allowed are 0..%" PRId32,
                                   channels->channel[c].ranks[i], nodes->num_ranks - 1);
    return WEFT_OK;
}

static weft_result check_ring(const struct connections *connections, int32_t c)
{
    int32_t rank = 0, count = 0;
    do {
        rank = links_of(connections, c, rank)->ring_next;
        count++;
    } while (rank > 0 && count < connections->num_ranks);
    if (rank == 0 && count == connections->num_ranks)
        return WEFT_OK;
    return weft__error(WEFT_ERROR_INVALID_ARGUMENT,
                       "ring %" PRId32 " comes to %" PRId32 " of %" PRId32 " ranks", c, count,
                       connections->num_ranks);
}

static weft_result connect_channels(const struct topo_nodes *nodes, int32_t num_channels,
                                    struct connections *connections)
{
    begin_links(connections);
    for (int32_t n = 0; n < nodes->num_nodes; n++) {
        WEFT__TRY(check_ranks(nodes, rings_of(nodes, n)));
        WEFT__TRY(check_ranks(nodes, trees_of(nodes, n)));
    }
    for (int32_t c = 0; c < num_channels; c++) {
        for (int32_t n = 0; n < nodes->num_nodes; n++)
            connect_in_node(nodes, n, c, num_channels, connections);
        connect_rings(nodes, c, num_channels, connections);
        if (c + num_channels < connections->num_channels)
            copy_channels(connections, c + num_channels, c);
    }
    for (int32_t c = 0; c < num_channels; c++)
        WEFT__TRY(connect_trees(nodes, c, num_channels, connections));
    for (int32_t c = 2 * num_channels; c < connections->num_channels; c++)
        copy_channels(connections, c, c - 2 * num_channels);
    for (int32_t c = 0; c < connections->num_channels; c++)
        WEFT__TRY(check_ring(connections, c));
    return WEFT_OK;
}

/* Twice as many as were found, and again where few of them must carry much over the network. */
static int32_t count_channels(const struct topo_nodes *nodes, int32_t num_found)
{
    int32_t count = 2 * num_found < MAX_CONNECTED ? 2 * num_found : MAX_CONNECTED;
    if (nodes->oldest_sm >= 90 && nodes->num_nodes > 1 && rings_of(nodes, 0)->bw_intra > 45 &&
        count < FEW_CHANNELS)
        count *= 2;
    return count;
}

static int32_t count_heads(const struct topo_nodes *nodes, int32_t node)
{
    const struct channels *nvls = nodes->sets[node].of[CHANNELS_NVLS];
    return nvls != NULL ? nvls->num_channels : 0;
}

static void connect_heads(const struct topo_nodes *nodes, struct connections *connections)
{
    int32_t least = TOPO_MAX_CHANNELS;
    for (int32_t n = 0; n < nodes->num_nodes; n++)
        least = count_heads(nodes, n) < least ? count_heads(nodes, n) : least;
    connections->num_heads = least;
    for (int32_t n = 0; n < nodes->num_nodes; n++) {
        const struct channels *nvls = nodes->sets[n].of[CHANNELS_NVLS];
        for (int32_t h = 0; nvls != NULL && h < least; h++)
            connections->heads[h * nodes->num_nodes + n] = nvls->channel[h].ranks[0];
    }
}

weft_result channels_connect(const struct topo_nodes *nodes, struct connections *connections)
{
    const int32_t num_found = least_channels(nodes);
    *connections = (struct connections){.num_ranks = nodes->num_ranks,
                                        .num_nodes = nodes->num_nodes,
                                        .num_channels = count_channels(nodes, num_found)};
    connections->links = calloc((size_t)connections->num_channels * (size_t)nodes->num_ranks + 1,
                                sizeof *connections->links);
    connections->heads =
        calloc((size_t)TOPO_MAX_CHANNELS * (size_t)nodes->num_nodes, sizeof *connections->heads);
    weft_result result =
        connections->links != NULL && connections->heads != NULL
            ? connect_channels(nodes, num_found, connections)
            : weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for rings and trees");
    if (result == WEFT_OK)
        connect_heads(nodes, connections);
    else
        connections_free(connections);
    return result;
}

void connections_free(struct connections *connections)
{
    free(connections->links);
    free(connections->heads);
    *connections = (struct connections){0};
}

weft_result channels_of_node(const struct channels *first, int32_t node_idx,
                             struct channels **channels)
{
    WEFT__TRY(channels_create(first->num_gpus, channels));
    channels_copy(*channels, first);
    for (int32_t c = 0; c < first->num_channels; c++)
        for (int32_t i = 0; i < first->num_gpus; i++)
            (*channels)->channel[c].ranks[i] += node_idx * first->num_gpus;
    return WEFT_OK;
}
