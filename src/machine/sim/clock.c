/* SPDX-License-Identifier: MIT */
/* Vector clocks: what happened before what. */
#include <stdlib.h>

#include "machine/sim/world.h"

/* More than a fiber releases while a row operation is under way. */
#define ROWS_TIME_AHEAD ((uint32_t)1 << 14)

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

uint32_t sim_rows_time(void)
{
    struct sim_fiber *fiber = sim_current();
    const uint32_t now = fiber->clock.of[fiber->id];
    if (fiber->rows_time == 0)
        fiber->rows_time = now + ROWS_TIME_AHEAD;
    if (fiber->rows_time <= now)
        abort(); /* a checker that takes what is under way for done would miss races */
    return fiber->rows_time;
}

void sim_rows_end(struct sim_fiber *fiber)
{
    sim_stores_commit(fiber, SIM_ROW_STORE);
    if (fiber->rows_time > fiber->clock.of[fiber->id])
        fiber->clock.of[fiber->id] = fiber->rows_time;
    fiber->rows_time = 0;
}
