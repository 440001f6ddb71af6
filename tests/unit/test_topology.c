/* SPDX-License-Identifier: MIT */
#include "comm/topology.h"
#include "harness/cmocka.h"

enum { MAX_RANKS = 12 };

/* Teams by their definition. */
static int same_team(const struct weft__topology *topology, weft_team team, int32_t a, int32_t b)
{
    if (team == WEFT_TEAM_LOCAL)
        return topology->node_of_rank[a] == topology->node_of_rank[b];
    if (team == WEFT_TEAM_RAIL)
        return topology->local_of_rank[a] == topology->local_of_rank[b];
    return 1;
}

/* The members of a rail are in the order of their nodes, those of other teams in that of ranks. */
static int comes_before(const struct weft__topology *topology, weft_team team, int32_t a, int32_t b)
{
    if (team == WEFT_TEAM_RAIL)
        return topology->node_of_rank[a] < topology->node_of_rank[b];
    return a < b;
}

static void check_member(const struct weft__topology *topology, weft_team team, int32_t rank)
{
    weft_team_info info = WEFT_INIT(weft_team_info);
    int32_t num_members = 0, num_before = 0, num_teams = 0;
    weft__topology_team(topology, rank, team, &info);
    for (int32_t other = 0; other < topology->num_ranks; other++) {
        int is_first = 1;
        for (int32_t earlier = 0; earlier < other; earlier++)
            is_first &= !same_team(topology, team, earlier, other);
        num_teams += is_first;
        num_members += same_team(topology, team, rank, other);
        num_before +=
            same_team(topology, team, rank, other) && comes_before(topology, team, other, rank);
    }
    assert_int_equal(info.num_ranks, num_members);
    assert_int_equal(info.rank_idx, num_before);
    assert_int_equal(info.num_teams, num_teams);
    assert_in_range(info.team_idx, 0, num_teams - 1);
    for (int32_t other = 0; other < topology->num_ranks; other++)
        if (same_team(topology, team, rank, other))
            assert_int_equal(weft__topology_world_rank(topology, other, team, num_before), rank);
    assert_int_equal(weft__topology_world_rank(topology, rank, team, num_members), -1);
    assert_int_equal(weft__topology_world_rank(topology, rank, team, -1), -1);
}

static void check_keys(const uint64_t *keys, int32_t num_ranks)
{
    struct weft__topology topology;
    assert_ok(weft__topology_init(&topology, keys, num_ranks));
    int32_t num_nodes = 0;
    for (int32_t rank = 0; rank < num_ranks; rank++) {
        int32_t local = 0, first = rank;
        for (int32_t other = rank - 1; other >= 0; other--) {
            local += keys[other] == keys[rank];
            first = keys[other] == keys[rank] ? other : first;
        }
        assert_int_equal(topology.local_of_rank[rank], local);
        if (first == rank)
            assert_int_equal(topology.node_of_rank[rank], num_nodes++);
        else
            assert_int_equal(topology.node_of_rank[rank], topology.node_of_rank[first]);
        for (int team = WEFT_TEAM_WORLD; team <= WEFT_TEAM_RAIL; team++)
            check_member(&topology, (weft_team)team, rank);
    }
    assert_int_equal(topology.num_nodes, num_nodes);
    weft__topology_destroy(&topology);
}

TEST(every_placement_of_few_ranks)
{
    for (int32_t num_ranks = 1; num_ranks <= 6; num_ranks++) {
        uint64_t num_placements = 1;
        for (int32_t rank = 0; rank < num_ranks; rank++)
            num_placements *= 3;
        for (uint64_t placement = 0; placement < num_placements; placement++) {
            uint64_t keys[MAX_RANKS], rest = placement;
            for (int32_t rank = 0; rank < num_ranks; rank++, rest /= 3)
                keys[rank] = UINT64_MAX - rest % 3;
            check_keys(keys, num_ranks);
        }
    }
}

TEST(nodes_of_different_sizes_have_partial_rails)
{
    const uint64_t keys[] = {7, 7, 7, 9, 9};
    struct weft__topology topology;
    weft_team_info info = WEFT_INIT(weft_team_info);
    check_keys(keys, 5);
    assert_ok(weft__topology_init(&topology, keys, 5));
    weft__topology_team(&topology, 2, WEFT_TEAM_RAIL, &info);
    assert_int_equal(info.num_ranks, 1);
    assert_int_equal(info.num_teams, 3);
    assert_int_equal(info.team_idx, 2);
    weft__topology_team(&topology, 4, WEFT_TEAM_RAIL, &info);
    assert_int_equal(info.num_ranks, 2);
    assert_int_equal(info.rank_idx, 1);
    assert_int_equal(weft__topology_world_rank(&topology, 4, WEFT_TEAM_RAIL, 0), 1);
    weft__topology_destroy(&topology);
}
