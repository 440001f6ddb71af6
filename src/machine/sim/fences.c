/* SPDX-License-Identifier: MIT */
/*
 * The fences at both ends of every launch, by which packets order launches.
 *
 * A packet brings what its sender's rank had done before the launch that sends it. Launches after
 * the one that takes it have that in their past, for they begin with an acquire, and the lane that
 * takes it, once it acquires packets.
 */
#include <stdlib.h>

#include "machine/sim/world.h"

static struct sim_fences *all; /* of the run, the last launch first */

/* Whether the launch has ended in the past of the running fiber. */
static int is_past(const struct sim_fences *launch)
{
    return launch->end_time > 0 &&
           sim_clock_of(&sim_current()->clock, launch->fiber) >= launch->end_time;
}

struct sim_fences *sim_fences_begin(void)
{
    struct sim_fences *launch = calloc(1, sizeof *launch);
    if (launch == NULL)
        return NULL;
    launch->rank = sim_current()->rank;
    launch->fiber = sim_current()->id;
    for (const struct sim_fences *earlier = all; earlier != NULL; earlier = earlier->next) {
        if (earlier->rank != launch->rank || !is_past(earlier))
            continue;
        sim_clock_join(&launch->released, &earlier->ended);
        sim_acquire(&earlier->taken);
    }
    sim_release(&launch->released); /* what the host did for this launch, too */
    launch->next = all;
    all = launch;
    return launch;
}

void sim_fences_end(struct sim_fences *launch)
{
    launch->end_time = sim_now(sim_current());
    sim_release(&launch->ended);
}

void sim_fences_reset(void)
{
    while (all != NULL) {
        struct sim_fences *next = all->next;
        free(all);
        all = next;
    }
}
