/* SPDX-License-Identifier: MIT */
/* A launch in the sim: its blocks and warps, and the lanes that run it. */
#pragma once

#include "machine/host.h"
#include "machine/sim/world.h"

/* Fibers that meet. Two clocks, used in turn: those of one meeting are still read while the next
 * one begins. */
struct sim_meeting {
    int32_t num_members;
    int32_t num_arrived;
    uint64_t number; /* meetings that are over */
    struct sim_clock clocks[2];
    uint64_t values[2]; /* of a ballot, a maximum, or 32 bits of each lane */
};

struct sim_block {
    struct sim_meeting sync;
    _Alignas(16) char shared[WP_BLOCK_SHARED_BYTES];
};

struct weft__sim_warp {
    struct sim_block *block;
    struct sim_launch *launch;
    struct sim_meeting sync;
    struct sim_meeting ballot;
    struct sim_meeting put;
    const void *pointers[WP_WARP_POINTERS];
    _Alignas(8) char shared[WP_WARP_SHARED_BYTES];
    uint64_t words[2]; /* that lane 0 has taken */
};

struct sim_launch {
    const struct weft__launch *request;
    struct sim_block *blocks;
    struct weft__sim_warp *warps;
    struct sim_fences *fences;
    int32_t num_live; /* lanes */
    struct wp_failure failure;
};

/* The lanes of a stream, which run one launch after another. */
struct sim_lanes {
    struct sim_fiber **fibers;
    int32_t num_fibers;
};

/* rows.c. The running fiber is about to write a part of a row. */
void sim_row_write(void *to, uint64_t num_bytes, const void *code);

/* A lane's share of a row: chunks a warp apart, from this one on. Which ones is not the program's
 * business, so it is the other lane's share the next time. */
static inline uint64_t sim_row_turn(const struct wp_warp *warp)
{
    const uint32_t turn = sim_current()->num_row_operations;
    return ((uint32_t)warp->lane_idx + turn) % WP_WARP_SIZE;
}

/* Called by a stream's fiber: runs the launch to its end. */
weft_result sim_launch_run(struct sim_lanes *lanes, const struct weft__launch *request,
                           struct wp_failure *failure);
void sim_lanes_free(struct sim_lanes *lanes);

/* primitives.c: meets the others; returns the number of the meeting, once all have come. */
uint64_t sim_meet(struct sim_meeting *meeting);
/* Waits until *word >= at_least, as wp_wait, but acquires nothing. */
enum wp_status sim_await(struct wp_warp *warp, const uint64_t *word, uint64_t at_least,
                         const struct wp_wait_site *site);
