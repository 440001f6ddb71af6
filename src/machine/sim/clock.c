/* SPDX-License-Identifier: MIT */
/* Vector clocks: what happened before what. */
#include <stdlib.h>
#include <string.h>

#include "machine/sim/world.h"

/* More than a fiber releases while a row operation is under way. */
#define ROWS_TIME_AHEAD ((uint32_t)1 << 14)

enum { MIN_SIZE = 32 };

static void grow(struct sim_clock *clock, int32_t size)
{
    int32_t new_size = clock->size > 0 ? clock->size : MIN_SIZE;
    while (new_size < size)
        new_size *= 2;
    uint32_t *of = sim_run_alloc((size_t)new_size * sizeof *of);
    if (clock->size > 0)
        memcpy(of, clock->of, (size_t)clock->size * sizeof *of);
    *clock = (struct sim_clock){of, new_size};
}

void sim_clock_join(struct sim_clock *clock, const struct sim_clock *other)
{
    const int32_t size = other->size < sim_world->num_fibers ? other->size : sim_world->num_fibers;
    if (clock->size < size)
        grow(clock, size);
    for (int32_t i = 0; i < size; i++) {
        if (clock->of[i] < other->of[i])
            clock->of[i] = other->of[i];
    }
}

void sim_clock_set(struct sim_clock *clock, int32_t fiber, uint32_t time)
{
    if (clock->size <= fiber)
        grow(clock, fiber + 1);
    clock->of[fiber] = time;
}

void sim_clock_clear(struct sim_clock *clock)
{
    if (clock->size > 0)
        memset(clock->of, 0, (size_t)clock->size * sizeof *clock->of);
}

uint32_t sim_now(const struct sim_fiber *fiber)
{
    return sim_clock_of(&fiber->clock, fiber->id);
}

void sim_tick(struct sim_fiber *fiber)
{
    sim_clock_set(&fiber->clock, fiber->id, sim_now(fiber) + 1);
}

void sim_release(struct sim_clock *clock)
{
    sim_clock_join(clock, &sim_current()->clock);
    sim_tick(sim_current());
}

void sim_acquire(const struct sim_clock *clock)
{
    sim_clock_join(&sim_current()->clock, clock);
}

uint32_t sim_rows_time(void)
{
    struct sim_fiber *fiber = sim_current();
    const uint32_t now = sim_now(fiber);
    if (fiber->rows_time == 0)
        fiber->rows_time = now + ROWS_TIME_AHEAD;
    if (fiber->rows_time <= now)
        abort(); /* a checker that takes what is under way for done would miss races */
    return fiber->rows_time;
}

void sim_rows_end(struct sim_fiber *fiber)
{
    sim_stores_commit(fiber, SIM_ROW_STORE);
    if (fiber->rows_time > sim_now(fiber))
        sim_clock_set(&fiber->clock, fiber->id, fiber->rows_time);
    fiber->rows_time = 0;
}
