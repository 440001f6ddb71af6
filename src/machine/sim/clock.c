/* SPDX-License-Identifier: MIT */
/* Vector clocks: what happened before what. */
#include "machine/sim/world.h"

void sim_clock_join(struct sim_clock *clock, const struct sim_clock *other)
{
    const int32_t num_fibers = sim_world->num_fibers;
    for (int32_t i = 0; i < num_fibers; i++) {
        if (clock->of[i] < other->of[i])
            clock->of[i] = other->of[i];
    }
}

void sim_release(struct sim_clock *clock)
{
    struct sim_fiber *fiber = sim_current();
    sim_clock_join(clock, &fiber->clock);
    fiber->clock.of[fiber->id]++;
}

void sim_acquire(const struct sim_clock *clock)
{
    sim_clock_join(&sim_current()->clock, clock);
}
