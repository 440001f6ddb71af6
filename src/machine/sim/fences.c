/* SPDX-License-Identifier: MIT */
/*
 * The fences at both ends of every launch, by which packets order launches.
 *
 * A packet brings what its sender's rank had done by the end of the launches before the one that sends
 * it. Only launches after the one that takes it have that in their past: they begin with an acquire.
 */
#include <stdlib.h>

#include "machine/sim/world.h"

static struct sim_fences *all; /* of the run, the last launch first */

/* Whether the launch has ended in the past of the running fiber. */
static int is_past(const struct sim_fences *launch)
{
    return launch->end_time > 0 && sim_current()->clock.of[launch->fiber] >= launch->end_time;
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
    launch->next = all;
    all = launch;
    return launch;
}

void sim_fences_end(struct sim_fences *launch)
{
    launch->end_time = sim_current()->clock.of[launch->fiber];
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
