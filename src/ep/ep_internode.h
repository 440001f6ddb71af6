/* SPDX-License-Identifier: MIT */
/* A weft_ep over several nodes has this beside the rest: rings, and memory for counts. */
#pragma once

#include "ep/expert_placement.h"
#include "memory/node_table.h"
#include "programs/ep/internode_combine.h"
#include "programs/ep/internode_notify.h"

struct weft__internode {
    struct weft__nodes nodes;
    struct wp_rings rings; /* what partners tell lies behind them in memory of the network */
    /* No node has more, of this placement or of fewer experts spread evenly (a handle's own). */
    int32_t num_node_experts;
    weft_dtype combine_wire; /* 0: of the dtype that is combined */
    void *own_sums;          /* of combine, in slots for its warps, if combine_wire is not 0 */
    uint64_t own_sums_bytes;
    void *counters; /* those of the rings, num_notifies, and num_rows_read */
    uint64_t *num_notifies;
};

/* Rings as configured, of a communicator with several nodes; checks that they are like those of all
 * ranks. */
weft_result weft__internode_plan(weft_comm *comm, const weft_ep_config *config,
                                 struct weft__internode *internode);
/* Collective. num_combine_warps: the most of any combine on this rank. */
weft_result weft__internode_create(weft_comm *comm, const struct weft__placement *placement,
                                   int32_t num_combine_warps, struct weft__internode *internode);
void weft__internode_destroy(weft_comm *comm, struct weft__internode *internode);

uint64_t weft__internode_told_bytes(const struct weft__internode *internode);
/* Bytes of memory that the network reaches. */
uint64_t weft__internode_bytes(const struct weft__internode *internode);

/* In which directions an operation's rings have warps of their own. */
enum { WEFT__RINGS_ONE_WAY = 1, WEFT__RINGS_BOTH_WAYS = 2 };

/* Blocks that the rings take beside the others, at most, if blocks have num_warps, or 0: as
 * suits. */
int32_t weft__internode_max_blocks(const struct weft__internode *internode, int32_t num_warps);
/* A grid with these warps, and those of `local` for the rest. */
struct weft__grid weft__internode_grid(const struct weft__internode *internode,
                                       int32_t num_directions, struct weft__grid local,
                                       int32_t num_warps_wanted);

/* Warps of these grids, at most, if no operation has more of its own than `local`. */
int32_t weft__internode_most_warps(const struct weft__internode *internode, int32_t num_directions,
                                   struct weft__grid local);

/* The grid of warps that take tokens whose sums come through rings: no more warps than the slots
 * have rows. More would wait in vain, and on GPUs get in the way of what they wait for. Nor more
 * than own_sums has room for, whatever the caller of combine asks for. */
struct weft__grid weft__internode_takers(const struct weft__internode *internode,
                                         uint64_t wire_row_bytes, struct weft__grid local);

/* Whether a slot holds a row of so many bytes on the wire. */
weft_result weft__internode_check_row(const struct weft__internode *internode,
                                      uint64_t wire_row_bytes);
