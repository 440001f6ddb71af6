/* SPDX-License-Identifier: MIT */
/* Vector clocks: what happened before what. */
#include <stdlib.h>
#include <string.h>

#include "machine/sim/world.h"

/* More than a fiber releases while a row operation is under way. */
#define ROWS_TIME_AHEAD ((uint32_t)1 << 14)

/* ---------------------------------------------------------------- pieces */

static struct sim_piece *unused;

void sim_clocks_reset(void)
{
    unused = NULL;
}

static struct sim_piece *take_piece(void)
{
    struct sim_piece *piece = unused;
    if (piece == NULL)
        piece = sim_run_alloc(sizeof *piece);
    else
        unused = piece->next_unused;
    piece->num_owners = 1;
    return piece;
}

static void drop_piece(struct sim_piece **place)
{
    struct sim_piece *piece = *place;
    *place = NULL;
    if (piece == NULL || --piece->num_owners > 0)
        return;
    piece->next_unused = unused;
    unused = piece;
}

/* So that no other clock changes with it. */
static struct sim_piece *own_piece(struct sim_piece **place)
{
    struct sim_piece *shared = *place;
    if (shared != NULL && shared->num_owners == 1)
        return shared;
    *place = take_piece();
    if (shared != NULL) {
        memcpy((*place)->of, shared->of, sizeof shared->of);
        shared->num_owners--;
    } else {
        memset((*place)->of, 0, sizeof(*place)->of);
    }
    return *place;
}

static void share_piece(struct sim_piece **place, struct sim_piece *piece)
{
    piece->num_owners++;
    drop_piece(place);
    *place = piece;
}

static void join_piece(struct sim_piece **place, struct sim_piece *other)
{
    uint32_t is_behind = 0, is_ahead = 0;
    for (int i = 0; i < SIM_PIECE_TIMES; i++) {
        is_behind |= (*place)->of[i] < other->of[i];
        is_ahead |= (*place)->of[i] > other->of[i];
    }
    if (is_behind && !is_ahead)
        share_piece(place, other);
    if (!is_behind || !is_ahead)
        return;
    struct sim_piece *piece = own_piece(place);
    for (int i = 0; i < SIM_PIECE_TIMES; i++)
        piece->of[i] = piece->of[i] > other->of[i] ? piece->of[i] : other->of[i];
}

/* ---------------------------------------------------------------- clocks */

static void grow(struct sim_times *times, int32_t num_pieces)
{
    enum { MIN_PIECES = 2 };
    int32_t num_new = times->num_pieces > 0 ? times->num_pieces : MIN_PIECES;
    while (num_new < num_pieces)
        num_new *= 2;
    struct sim_piece **pieces = sim_run_alloc((size_t)num_new * sizeof(*pieces));
    if (times->num_pieces > 0)
        memcpy(pieces, times->pieces, (size_t)times->num_pieces * sizeof(*pieces));
    *times = (struct sim_times){pieces, num_new};
}

static void join(struct sim_times *times, const struct sim_times *other)
{
    if (times->num_pieces < other->num_pieces)
        grow(times, other->num_pieces);
    for (int32_t i = 0; i < other->num_pieces; i++) {
        if (other->pieces[i] == NULL || times->pieces[i] == other->pieces[i])
            continue;
        if (times->pieces[i] == NULL)
            share_piece(&times->pieces[i], other->pieces[i]);
        else
            join_piece(&times->pieces[i], other->pieces[i]);
    }
}

static void clear(struct sim_times *times)
{
    for (int32_t i = 0; i < times->num_pieces; i++)
        drop_piece(&times->pieces[i]);
}

void sim_clock_join(struct sim_clock *clock, const struct sim_clock *other)
{
    join(&clock->all, &other->all);
    join(&clock->loads, &other->loads);
}

void sim_clock_set(struct sim_clock *clock, int32_t fiber, uint32_t time)
{
    const int32_t piece = fiber / SIM_PIECE_TIMES;
    if (clock->all.num_pieces <= piece)
        grow(&clock->all, piece + 1);
    own_piece(&clock->all.pieces[piece])->of[fiber % SIM_PIECE_TIMES] = time;
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
