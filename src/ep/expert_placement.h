/* SPDX-License-Identifier: MIT */
/* Which experts are on which ranks (programs/placement.h): the user's table, or the default, and
 * its inverse. */
#pragma once

#include "machine/host.h"
#include "programs/placement.h"

struct weft__placement {
    struct wp_placement host;   /* points into the arrays below */
    struct wp_placement device; /* the same in memory of the programs, once uploaded */
    int32_t num_entries;
    int32_t *expert_offsets; /* where the memory of all of them begins */
    int32_t *rank_offsets, *entry_ranks, *entry_local, *rank_entries;
    int32_t *entry_experts;
};

/* config has been zero-extended; its table is checked here. */
weft_result weft__placement_create(struct weft__placement *placement, const weft_ep_config *config,
                                   int32_t num_ranks);
void weft__placement_destroy(struct weft__placement *placement);
weft_result weft__placement_upload(struct weft__placement *placement, weft_comm *comm);
void weft__placement_unload(struct weft__placement *placement, weft_comm *comm);

int32_t weft__placement_num_local(const struct weft__placement *placement, int32_t rank);
int32_t weft__placement_max_local(const struct weft__placement *placement);
/* How many tokens can come to `rank` at worst when every rank has num_tokens. */
int64_t weft__placement_max_rows(const struct weft__placement *placement, int32_t rank,
                                 int32_t num_tokens);
/* Equal placements have equal hashes. */
uint64_t weft__placement_hash(const struct weft__placement *placement);
