/* SPDX-License-Identifier: MIT */
#include "comm/topology.h"

#include <stdlib.h>

#include "comm/host/error.h"

static int32_t node_size(const struct weft__topology *topology, int32_t node)
{
    int32_t num_members = 0;
    for (int32_t rank = 0; rank < topology->num_ranks; rank++)
        num_members += topology->node_of_rank[rank] == node;
    return num_members;
}

weft_result weft__topology_init(struct weft__topology *topology, const uint64_t *node_keys,
                                int32_t num_ranks)
{
    *topology = (struct weft__topology){.num_ranks = num_ranks};
    topology->node_of_rank = malloc((size_t)num_ranks * sizeof(int32_t));
    topology->local_of_rank = malloc((size_t)num_ranks * sizeof(int32_t));
    if (topology->node_of_rank == NULL || topology->local_of_rank == NULL) {
        weft__topology_destroy(topology);
        return weft__no_memory("no memory for the nodes of %d ranks", num_ranks);
    }
    for (int32_t rank = 0; rank < num_ranks; rank++) {
        int32_t mate = rank - 1; /* the last rank before this one on the same node */
        while (mate >= 0 && node_keys[mate] != node_keys[rank])
            mate--;
        topology->node_of_rank[rank] =
            mate >= 0 ? topology->node_of_rank[mate] : topology->num_nodes++;
        topology->local_of_rank[rank] = mate >= 0 ? topology->local_of_rank[mate] + 1 : 0;
    }
    return WEFT_OK;
}

void weft__topology_destroy(struct weft__topology *topology)
{
    free(topology->node_of_rank);
    free(topology->local_of_rank);
    *topology = (struct weft__topology){0};
}

static weft_team_info local_team(const struct weft__topology *topology, int32_t rank)
{
    int32_t node = topology->node_of_rank[rank];
    return (weft_team_info){.num_ranks = node_size(topology, node),
                            .rank_idx = topology->local_of_rank[rank],
                            .num_teams = topology->num_nodes,
                            .team_idx = node};
}

/* Nodes may differ in size: a rail has a member only on the nodes that are large enough. */
static weft_team_info rail_team(const struct weft__topology *topology, int32_t rank)
{
    weft_team_info info = {.team_idx = topology->local_of_rank[rank]};
    for (int32_t other = 0; other < topology->num_ranks; other++) {
        int32_t local = topology->local_of_rank[other];
        if (local >= info.num_teams)
            info.num_teams = local + 1;
        if (local != info.team_idx)
            continue;
        info.num_ranks++;
        info.rank_idx += topology->node_of_rank[other] < topology->node_of_rank[rank];
    }
    return info;
}

void weft__topology_team(const struct weft__topology *topology, int32_t rank, weft_team team,
                         weft_team_info *info)
{
    switch (team) {
    case WEFT_TEAM_WORLD:
        *info = (weft_team_info){
            .num_ranks = topology->num_ranks, .rank_idx = rank, .num_teams = 1, .team_idx = 0};
        break;
    case WEFT_TEAM_LOCAL:
        *info = local_team(topology, rank);
        break;
    case WEFT_TEAM_RAIL:
        *info = rail_team(topology, rank);
        break;
    }
}

int32_t weft__topology_world_rank(const struct weft__topology *topology, int32_t rank,
                                  weft_team team, int32_t rank_idx)
{
    weft_team_info mine, theirs;
    weft__topology_team(topology, rank, team, &mine);
    for (int32_t other = 0; other < topology->num_ranks; other++) {
        weft__topology_team(topology, other, team, &theirs);
        if (theirs.team_idx == mine.team_idx && theirs.rank_idx == rank_idx)
            return other;
    }
    return -1;
}
