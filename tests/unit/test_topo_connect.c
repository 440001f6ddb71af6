/* SPDX-License-Identifier: MIT */
/* Rings and trees over several machines: rings visit all ranks and close, trees have one root and
 * no circle, and who is above somebody knows it. */
#include <stdlib.h>
#include <string.h>

#include "comm/host/error.h"
#include "harness/cmocka.h"
#include "topo/connect.h"
#include "topo/double_tree.h"
#include "topo_files.h"

/* ---------------------------------------------------------------- double trees */

static int num_children(const struct weft__tree_place *place)
{
    return (place->down[0] != WEFT__NO_PLACE) + (place->down[1] != WEFT__NO_PLACE);
}

static int depth_of(int32_t num_places, int which, int32_t place)
{
    struct weft__tree_place trees[2];
    int depth = 0;
    for (topo_double_tree(num_places, place, trees); trees[which].up != WEFT__NO_PLACE; depth++) {
        assert_true(depth <= num_places);
        topo_double_tree(num_places, trees[which].up, trees);
    }
    return depth;
}

TEST(both_trees_have_one_root_and_everybody_is_a_leaf_of_one)
{
    for (int32_t n = 1; n <= 70; n++) {
        int num_roots[2] = {0, 0}, log2 = 0;
        while (1 << log2 < n)
            log2++;
        for (int32_t place = 0; place < n; place++) {
            struct weft__tree_place trees[2], above[2];
            topo_double_tree(n, place, trees);
            for (int which = 0; which < 2; which++) {
                num_roots[which] += trees[which].up == WEFT__NO_PLACE;
                assert_true(depth_of(n, which, place) <= log2 + 1);
                if (trees[which].up == WEFT__NO_PLACE)
                    continue;
                topo_double_tree(n, trees[which].up, above);
                assert_int_equal(above[which].down[trees[which].child], place);
            }
            assert_true(num_children(&trees[0]) < 2 || num_children(&trees[1]) < 2);
            if (n % 2 == 0)
                assert_true(num_children(&trees[0]) == 0 || num_children(&trees[1]) == 0);
        }
        assert_int_equal(num_roots[0], 1);
        assert_int_equal(num_roots[1], 1);
    }
}

/* The tree that NCCL draws for 14. */
TEST(the_tree_of_fourteen_is_as_it_is_drawn)
{
    static const int32_t up[14] = {-1, 2, 4, 2, 8, 6, 4, 6, 0, 10, 12, 10, 8, 12};
    for (int32_t place = 0; place < 14; place++) {
        struct weft__tree_place trees[2];
        topo_double_tree(14, place, trees);
        assert_int_equal(trees[0].up, up[place]);
        assert_int_equal(trees[1].up, up[13 - place] < 0 ? -1 : 13 - up[13 - place]);
    }
}

/* ---------------------------------------------------------------- machines */

struct party {
    struct topo *topo;
    struct channel_sets found;
    struct channel_sets *sets; /* of each machine */
    struct topo_nodes nodes;
    struct connections connections;
};

static void gather(struct party *party, const struct topo_machine *machine, int32_t num_nodes)
{
    struct xml *system = topo_completed(machine);
    *party = (struct party){.topo = topo_graph(system, NULL)};
    xml_remove(system);
    assert_ok(
        search_all(party->topo, num_nodes > 1 ? TOPO_SEVERAL_NODES : TOPO_ONE_NODE, &party->found));
    party->sets = calloc((size_t)num_nodes, sizeof *party->sets);
    for (int32_t n = 0; n < num_nodes; n++)
        for (int id = 0; id < NUM_CHANNELS_IDS; id++)
            if (party->found.of[id] != NULL)
                assert_ok(channels_of_node(party->found.of[id], n, &party->sets[n].of[id]));
    party->nodes = (struct topo_nodes){party->sets, num_nodes,
                                       num_nodes * topo_count(party->topo, TOPO_GPU), machine->sm};
}

static void part(struct party *party)
{
    for (int32_t n = 0; n < party->nodes.num_nodes; n++)
        channel_sets_free(&party->sets[n]);
    free(party->sets);
    channel_sets_free(&party->found);
    connections_free(&party->connections);
    topo_free(party->topo);
}

static void must_close(const struct connections *all, int32_t c)
{
    int32_t rank = 0;
    for (int32_t i = 0; i < all->num_ranks; i++) {
        const int32_t next = links_of(all, c, rank)->ring_next;
        assert_int_equal(links_of(all, c, next)->ring_prev, rank);
        rank = next;
        assert_int_equal(rank == 0, i == all->num_ranks - 1);
    }
}

static int is_child(const struct rank_links *links, int32_t rank)
{
    int count = 0;
    for (int i = 0; i < TREE_MAX_CHILDREN; i++)
        count += links->tree_down[i] == rank;
    return count == 1;
}

static void must_be_a_tree(const struct connections *all, int32_t c)
{
    int num_roots = 0, num_children_told = 0;
    for (int32_t rank = 0; rank < all->num_ranks; rank++) {
        const struct rank_links *links = links_of(all, c, rank);
        int32_t at = rank;
        for (int steps = 0; links_of(all, c, at)->tree_up >= 0; steps++) {
            assert_true(steps < all->num_ranks);
            at = links_of(all, c, at)->tree_up;
        }
        num_roots += links->tree_up < 0;
        if (links->tree_up >= 0)
            assert_true(is_child(links_of(all, c, links->tree_up), rank));
        for (int i = 0; i < TREE_MAX_CHILDREN; i++)
            num_children_told += links->tree_down[i] >= 0;
    }
    assert_int_equal(num_roots, 1);
    assert_int_equal(num_children_told, all->num_ranks - 1);
}

static const struct topo_machine machines[] = {
    {"azure-ndv5.partial.topo.xml", TOPO_ORDER_OF_FILE, 90, 18, 400000},
    {"azure-ndv4.partial.topo.xml", TOPO_ORDER_OF_BUS_IDS, 80, 12, 200000},
    {"aws-p4d-24xl.partial.topo.xml", TOPO_ORDER_OF_BUS_IDS, 80, 12, 100000}};

TEST(rings_close_and_trees_have_one_root_over_any_number_of_machines)
{
    static const int32_t counts[] = {1, 2, 3, 4, 5, 8, 13};
    for (size_t m = 0; m < 3; m++)
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            struct party party;
            gather(&party, &machines[m], counts[i]);
            assert_ok(channels_connect(&party.nodes, &party.connections));
            assert_true(party.connections.num_channels > 0);
            for (int32_t c = 0; c < party.connections.num_channels; c++) {
                must_close(&party.connections, c);
                must_be_a_tree(&party.connections, c);
            }
            part(&party);
        }
}

/* 8 rings are doubled; where they carry more than 45 GB/s each, and there are few, once more: not
 * 16. */
TEST(channels_are_doubled)
{
    static const struct {
        size_t machine;
        int32_t num_nodes, num_channels;
    } cases[] = {{0, 1, 24}, {0, 2, 16}, {1, 2, 16}, {2, 2, 8}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct party party;
        gather(&party, &machines[cases[i].machine], cases[i].num_nodes);
        assert_ok(channels_connect(&party.nodes, &party.connections));
        assert_int_equal(party.connections.num_channels, cases[i].num_channels);
        part(&party);
    }
}

static int32_t port_of(const struct party *party, int32_t node, int32_t c, int end)
{
    const struct channels *rings = party->sets[node].of[CHANNELS_RING];
    return rings->channel[c].nets[end];
}

/* The channel of a machine's ring that ends, or begins, with a rank. */
static int32_t channel_of(const struct party *party, int32_t node, int end, int32_t rank)
{
    const struct channels *rings = party->sets[node].of[CHANNELS_RING];
    int32_t c = 0;
    while (rings->channel[c].ranks[end * (rings->num_gpus - 1)] != rank)
        c++;
    return c;
}

/* What leaves by a port arrives at the same of the next machine, if their number is even. */
TEST(rings_stay_on_their_rail)
{
    struct party party;
    gather(&party, &machines[0], 4);
    assert_int_equal(party.found.of[CHANNELS_RING]->cross_nic, 2);
    assert_ok(channels_connect(&party.nodes, &party.connections));
    for (int32_t c = 0; c < 8; c++)
        for (int32_t rank = 0; rank < party.nodes.num_ranks; rank++) {
            const int32_t next = links_of(&party.connections, c, rank)->ring_next;
            if (next / 8 == rank / 8)
                continue;
            assert_int_equal(port_of(&party, rank / 8, channel_of(&party, rank / 8, 1, rank), 1),
                             port_of(&party, next / 8, channel_of(&party, next / 8, 0, next), 0));
        }
    part(&party);
}

TEST(heads_are_those_of_all_machines)
{
    struct party party;
    gather(&party, &machines[0], 3);
    assert_ok(channels_connect(&party.nodes, &party.connections));
    assert_int_equal(party.connections.num_heads, 8);
    for (int32_t h = 0; h < 8; h++)
        for (int32_t n = 0; n < 3; n++)
            assert_int_equal(party.connections.heads[3 * h + n], 8 * n + h);
    part(&party);
}

TEST(ranks_that_do_not_fit_are_an_error)
{
    struct party party;
    gather(&party, &machines[2], 2);
    party.nodes.num_ranks = 12;
    assert_error(channels_connect(&party.nodes, &party.connections), WEFT_ERROR_INVALID_ARGUMENT,
                 "allowed are 0..11");
    party.nodes.num_ranks = 17; /* one that no machine has */
    assert_error(channels_connect(&party.nodes, &party.connections), WEFT_ERROR_INVALID_ARGUMENT,
                 "comes to 16 of 17 ranks");
    part(&party);
}
