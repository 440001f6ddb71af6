/* SPDX-License-Identifier: MIT */
#include "ep/ep_internode.h"

#include <stdlib.h>

#include "memory/ring_memory.h"

enum { DEFAULT_SLOTS = 8, DEFAULT_SLOT_BYTES = 64 << 10 };

/* A warp of a GPU moves rows to memory of the host at 0.8 GB/s; on 2x H200 as two nodes over TCP,
 * 4096 tokens take 24 ms with 4 channels, 71 with 1, 33 with 8. Fibers share a core. */
static int32_t default_channels(const weft_comm *comm)
{
    return weft__machine_of(comm)->kind == WEFT_MACHINE_CUDA ? 4 : 1;
}

/* Warps of a block, if the caller gives no number. */
enum { NUM_WARPS = 8 };

/* ---------------------------------------------------------------- rings */

struct ring_terms {
    int64_t num_channels, num_staging_slots, staging_slot_bytes;
};
static const struct weft__term terms[] = {
    {WEFT__TERM(struct ring_terms, num_channels)},
    {WEFT__TERM(struct ring_terms, num_staging_slots)},
    {WEFT__TERM(struct ring_terms, staging_slot_bytes)},
};

weft_result weft__internode_plan(weft_comm *comm, const weft_ep_config *config,
                                 struct weft__internode *internode)
{
    struct ring_terms own = {config->num_channels, config->num_staging_slots,
                             (int64_t)config->staging_slot_bytes};
    own.num_channels = own.num_channels == 0 ? default_channels(comm) : own.num_channels;
    own.num_staging_slots = own.num_staging_slots == 0 ? DEFAULT_SLOTS : own.num_staging_slots;
    if (own.staging_slot_bytes == 0)
        own.staging_slot_bytes = DEFAULT_SLOT_BYTES;
    own.staging_slot_bytes = (int64_t)wp_wire_round_up((uint64_t)own.staging_slot_bytes);
    weft_result result;
    struct ring_terms *all = weft__comm_gather_new(comm, WEFT_OK, &own, sizeof own, &result);
    if (all != NULL)
        result = weft__comm_compare(comm, all, sizeof *all, terms, sizeof terms / sizeof *terms);
    free(all);
    internode->combine_wire = config->combine_wire;
    internode->rings = (struct wp_rings){
        .nodes = {.num_nodes = comm->topology.num_nodes}, /* until there are nodes */
        .reach = comm->topology.num_nodes - 1,
        .num_channels = (int32_t)own.num_channels,
        .num_slots = (int32_t)own.num_staging_slots,
        .num_credited = 1,
        .slot_bytes = (uint32_t)own.staging_slot_bytes,
    };
    return result;
}

weft_result weft__internode_check_row(const struct weft__internode *internode,
                                      uint64_t wire_row_bytes)
{
    const uint64_t needed = WP_CHUNK_HEADER_BYTES + wire_row_bytes;
    if (needed <= internode->rings.slot_bytes)
        return WEFT_OK;
    return weft__invalid("staging_slot_bytes is %u; a row of all planes with its top-k data takes "
                         "%llu between nodes",
                         internode->rings.slot_bytes, (unsigned long long)needed);
}

/* ---------------------------------------------------------------- memory */

uint64_t weft__internode_told_bytes(const struct weft__internode *internode)
{
    return wp_told_bytes(internode->nodes.device.num_local * internode->rings.nodes.num_nodes,
                         internode->num_node_experts);
}

/* The messages of notify are behind the rings' words. */
static uint64_t told_area_bytes(const struct weft__internode *internode)
{
    return wp_told_area_bytes(internode->rings.nodes.num_nodes,
                              weft__internode_told_bytes(internode));
}

uint64_t weft__internode_bytes(const struct weft__internode *internode)
{
    return wp_rings_words_bytes(&internode->rings) + told_area_bytes(internode) +
           wp_rings_slots_bytes(&internode->rings);
}

static weft_result allocate_counters(weft_comm *comm, struct weft__internode *internode)
{
    struct wp_rings *rings = &internode->rings;
    const uint64_t rows_bytes =
        wp_rings_num_counters(rings) * (uint64_t)rings->num_slots * sizeof(uint32_t);
    WEFT__TRY(weft__machine_of(comm)->alloc(
        comm, weft__rings_counters_bytes(rings) + sizeof(uint64_t) + rows_bytes,
        &internode->counters));
    internode->num_notifies = weft__rings_lay_counters(rings, internode->counters);
    rings->num_rows_read = (uint32_t *)(internode->num_notifies + 1);
    return WEFT_OK;
}

/* A sum is at most as long as a row on the wire, and a slot holds one of these. */
static weft_result allocate_own_sums(weft_comm *comm, int32_t num_combine_warps,
                                     struct weft__internode *internode)
{
    if (internode->combine_wire == 0)
        return WEFT_OK;
    internode->own_sums_bytes = (uint64_t)num_combine_warps * internode->rings.slot_bytes;
    return weft__machine_of(comm)->alloc(comm, internode->own_sums_bytes, &internode->own_sums);
}

static weft_result allocate_tables(weft_comm *comm, int32_t num_combine_warps,
                                   struct weft__internode *internode)
{
    WEFT__TRY(allocate_counters(comm, internode));
    return allocate_own_sums(comm, num_combine_warps, internode);
}

weft_result weft__internode_create(weft_comm *comm, const struct weft__placement *placement,
                                   int32_t num_combine_warps, struct weft__internode *internode)
{
    struct wp_rings *rings = &internode->rings;
    WEFT__TRY(weft__nodes_check(comm, "expert parallelism"));
    WEFT__TRY(weft__nodes_create(comm, &internode->nodes));
    rings->nodes = internode->nodes.device;
    internode->num_node_experts =
        internode->nodes.device.num_local * weft__placement_max_local(placement);
    WEFT__TRY(weft__comm_agree(comm, allocate_tables(comm, num_combine_warps, internode),
                               "have a weft_ep's rings"));
    return weft__rings_allocate(comm, told_area_bytes(internode), rings);
}

void weft__internode_destroy(weft_comm *comm, struct weft__internode *internode)
{
    const struct weft__machine *machine = weft__machine_of(comm);
    weft__rings_free(comm, &internode->rings);
    machine->free(comm, internode->counters);
    machine->free(comm, internode->own_sums);
    weft__nodes_destroy(comm, &internode->nodes);
}

/* ---------------------------------------------------------------- grids */

/* Warps that a launch needs to serve the rings of so many directions. */
static int32_t num_duties(const struct weft__internode *internode, int32_t num_directions)
{
    const struct wp_rings *rings = &internode->rings;
    return num_directions * (rings->nodes.num_nodes - 1) * rings->num_channels;
}

int32_t weft__internode_max_blocks(const struct weft__internode *internode, int32_t num_warps)
{
    const int32_t least = num_warps > 0 ? num_warps : NUM_WARPS;
    return (num_duties(internode, 2) + least - 1) / least + 1;
}

struct weft__grid weft__internode_grid(const struct weft__internode *internode,
                                       int32_t num_directions, struct weft__grid local,
                                       int32_t num_warps_wanted)
{
    const int32_t num_warps =
        num_duties(internode, num_directions) + local.num_blocks * local.num_warps;
    struct weft__grid grid = local;
    /* Copy engines of GPUs would need a fence of their own to see what the network has put into a
     * slot. */
    grid.copied_row_bytes = 0;
    if (num_warps_wanted == 0 && grid.num_warps < NUM_WARPS)
        grid.num_warps = num_warps < NUM_WARPS ? num_warps : NUM_WARPS;
    grid.num_blocks = (num_warps + grid.num_warps - 1) / grid.num_warps;
    return grid;
}

int32_t weft__internode_most_warps(const struct weft__internode *internode, int32_t num_directions,
                                   struct weft__grid local)
{
    const int32_t last_block = local.num_warps > NUM_WARPS ? local.num_warps : NUM_WARPS;
    return num_duties(internode, num_directions) + local.num_blocks * local.num_warps + last_block -
           1;
}

/* Where a node's own sums wait in slots, each warp of a launch needs one. */
static int64_t most_takers(const struct weft__internode *internode, int32_t num_warps)
{
    const struct weft__grid none = {.num_warps = num_warps};
    return internode->own_sums_bytes == 0
               ? INT64_MAX
               : (int64_t)(internode->own_sums_bytes / internode->rings.slot_bytes) -
                     weft__internode_most_warps(internode, WEFT__RINGS_ONE_WAY, none);
}

struct weft__grid weft__internode_takers(const struct weft__internode *internode,
                                         uint64_t wire_row_bytes, struct weft__grid local)
{
    const struct wp_rings *rings = &internode->rings;
    const int64_t num_rows =
        (int64_t)wp_rings_num_slots(rings) * wp_rows_per_chunk(rings, wire_row_bytes);
    const int64_t most = most_takers(internode, local.num_warps);
    const int64_t num_takers = num_rows < most ? num_rows : most;
    struct weft__grid grid = local;
    if (grid.num_warps > num_takers)
        grid.num_warps = (int32_t)num_takers;
    if ((int64_t)grid.num_blocks * grid.num_warps > num_takers)
        grid.num_blocks = (int32_t)(num_takers / grid.num_warps);
    return grid;
}
