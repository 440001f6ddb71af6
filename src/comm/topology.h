/* SPDX-License-Identifier: MIT */
/* Which ranks form a node, and the teams that follow from it. Pure integers. */
#pragma once

#include <stdint.h>

#include "weft.h"

struct weft__topology {
    int32_t num_ranks;
    int32_t num_nodes;
    int32_t *node_of_rank;  /* [num_ranks], nodes numbered by their first rank */
    int32_t *local_of_rank; /* [num_ranks] index of the rank in its node */
};

/* From one key per rank: equal keys, same node. */
weft_result weft__topology_init(struct weft__topology *topology, const uint64_t *node_keys,
                                int32_t num_ranks);
void weft__topology_destroy(struct weft__topology *topology);
void weft__topology_team(const struct weft__topology *topology, int32_t rank, weft_team team,
                         weft_team_info *info);
int32_t weft__topology_world_rank(const struct weft__topology *topology, int32_t rank,
                                  weft_team team, int32_t rank_idx);
