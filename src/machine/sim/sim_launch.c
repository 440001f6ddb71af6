/* SPDX-License-Identifier: MIT */
#include "machine/sim/sim_launch.h"

#include <stdlib.h>

static void run_lane(struct sim_fiber *fiber)
{
    struct sim_launch *launch = fiber->argument;
    (void)launch->request->program->run(&fiber->warp, launch->request->args);
    launch->num_live--;
}

static weft_result prepare(struct sim_launch *launch)
{
    const int32_t num_blocks = launch->request->grid.num_blocks;
    const int32_t num_warps = launch->request->grid.num_warps;
    launch->blocks = calloc((size_t)num_blocks, sizeof(*launch->blocks));
    launch->warps = calloc((size_t)num_blocks * (size_t)num_warps, sizeof(*launch->warps));
    launch->fences = sim_fences_begin();
    if (launch->blocks == NULL || launch->warps == NULL || launch->fences == NULL)
        return weft__no_memory("no memory for a launch");
    for (int32_t i = 0; i < num_blocks * num_warps; i++) {
        struct weft__sim_warp *warp = &launch->warps[i];
        warp->block = &launch->blocks[i / num_warps];
        warp->launch = launch;
        warp->block->sync.num_members = num_warps * WP_WARP_SIZE;
        warp->sync.num_members = WP_WARP_SIZE;
        warp->ballot.num_members = WP_WARP_SIZE;
        warp->put.num_members = WP_WARP_SIZE;
    }
    return WEFT_OK;
}

/* Programs access little of this memory: only that has a past to be forgotten. */
static void release(struct sim_launch *launch)
{
    const int32_t num_warps = launch->request->grid.num_blocks * launch->request->grid.num_warps;
    for (int32_t i = 0; launch->warps != NULL && launch->blocks != NULL && i < num_warps; i++) {
        sim_shadow_forget(launch->warps[i].pointers, sizeof launch->warps[i].pointers);
        sim_shadow_forget(launch->warps[i].shared, sizeof launch->warps[i].shared);
        sim_shadow_forget(launch->warps[i].block->shared, sizeof launch->warps[i].block->shared);
    }
    sim_free(launch->blocks);
    sim_free(launch->warps);
}

/* Before any lane begins: it would wait for the others in vain. */
static weft_result check_room(const struct sim_lanes *lanes, const struct sim_launch *launch,
                              int32_t num_lanes)
{
    const int32_t num_more = num_lanes - lanes->num_fibers;
    if (num_more <= SIM_MAX_FIBERS - sim_world->num_fibers)
        return WEFT_OK;
    return weft__no_memory("a launch of %s needs %d more fibers; the sim machine has %d of %d left",
                           launch->request->program->name, num_more,
                           SIM_MAX_FIBERS - sim_world->num_fibers, SIM_MAX_FIBERS);
}

static weft_result start_lane(struct sim_lanes *lanes, struct sim_launch *launch, int32_t i)
{
    if (i == lanes->num_fibers) {
        struct sim_fiber **fibers =
            realloc(lanes->fibers, (size_t)(i + 1) * sizeof(*lanes->fibers));
        WEFT__CHECK_MEMORY(fibers, "no memory for a lane");
        lanes->fibers = fibers;
        lanes->fibers[i] = sim_fiber_start(sim_current()->rank, SIM_LANE_STACK, run_lane, launch);
        WEFT__CHECK_MEMORY(lanes->fibers[i], "no memory for a lane");
        lanes->num_fibers++;
    } else {
        sim_fiber_restart(lanes->fibers[i], run_lane, launch);
    }
    const struct weft__launch *request = launch->request;
    const int32_t warp = i / WP_WARP_SIZE;
    lanes->fibers[i]->warp = (struct wp_warp){.block_idx = warp / request->grid.num_warps,
                                              .num_blocks = request->grid.num_blocks,
                                              .warp_idx = warp % request->grid.num_warps,
                                              .num_warps = request->grid.num_warps,
                                              .lane_idx = i % WP_WARP_SIZE,
                                              .shared = &launch->warps[warp]};
    launch->num_live++;
    return WEFT_OK;
}

static int all_lanes_are_done(struct sim_fiber *fiber)
{
    return ((const struct sim_launch *)fiber->wait_argument)->num_live == 0;
}

weft_result sim_launch_run(struct sim_lanes *lanes, const struct weft__launch *request,
                           struct wp_failure *failure)
{
    struct sim_launch launch = {.request = request};
    const int32_t num_lanes = request->grid.num_blocks * request->grid.num_warps * WP_WARP_SIZE;
    weft_result result = prepare(&launch);
    if (result == WEFT_OK)
        result = check_room(lanes, &launch, num_lanes);
    for (int32_t i = 0; i < num_lanes && result == WEFT_OK; i++)
        result = start_lane(lanes, &launch, i);
    if (launch.num_live > 0)
        sim_wait_until(all_lanes_are_done, &launch, INT64_MAX);
    for (int32_t i = 0; i < num_lanes && i < lanes->num_fibers; i++)
        sim_acquire(&lanes->fibers[i]->clock);
    if (launch.fences != NULL)
        sim_fences_end(launch.fences);
    *failure = launch.failure;
    release(&launch);
    return result;
}

void sim_lanes_free(struct sim_lanes *lanes)
{
    free(lanes->fibers);
}
