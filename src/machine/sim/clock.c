/* SPDX-License-Identifier: MIT */
/* Vector clocks: what happened before what. */
#include <stdlib.h>
#include <string.h>

#include "machine/sim/world.h"

/* More than a fiber releases while a row operation is under way. */
#define ROWS_TIME_AHEAD ((uint32_t)1 << 14)

enum { MIN_SIZE = 32 };

static void grow(struct sim_times *times, int32_t size)
{
    int32_t new_size = times->size > 0 ? times->size : MIN_SIZE;
    while (new_size < size)
        new_size *= 2;
    uint32_t *of = sim_run_alloc((size_t)new_size * sizeof *of);
    if (times->size > 0)
        memcpy(of, times->of, (size_t)times->size * sizeof *of);
    *times = (struct sim_times){of, new_size};
}

static void join(struct sim_times *times, const struct sim_times *other)
{
    const int32_t size = other->size < sim_world->num_fibers ? other->size : sim_world->num_fibers;
    if (times->size < size)
        grow(times, size);
    for (int32_t i = 0; i < size; i++) {
        if (times->of[i] < other->of[i])
            times->of[i] = other->of[i];
    }
}

static void clear(struct sim_times *times)
{
    if (times->size > 0)
        memset(times->of, 0, (size_t)times->size * sizeof *times->of);
}

void sim_clock_join(struct sim_clock *clock, const struct sim_clock *other)
{
    join(&clock->all, &other->all);
    join(&clock->loads, &other->loads);
}

void sim_clock_set(struct sim_clock *clock, int32_t fiber, uint32_t time)
{
    if (clock->all.size <= fiber)
        grow(&clock->all, fiber + 1);
    clock->all.of[fiber] = time;
}

void sim_clock_clear(struct sim_clock *clock)
{
    clear(&clock->all);
    clear(&clock->loads);
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

void sim_release_loads(struct sim_clock *clock)
{
    const struct sim_fiber *fiber = sim_current();
    sim_clock_join(clock, &fiber->fenced);
    join(&clock->loads, &fiber->clock.all);
    join(&clock->loads, &fiber->clock.loads);
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
