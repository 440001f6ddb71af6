/* SPDX-License-Identifier: MIT */
/*
 * Who goes on, of those that can.
 *
 * To ask a fiber whether its wait is over takes longer than a step of its own. So fibers are asked
 * one by one, in an order that makes the first answer the choice, and few are asked while many can
 * go on.
 */
#include "machine/sim/world.h"

enum {
    PCT_EXPECTED_STEPS = 1500,
    SLEEP_ONE_IN = 64, /* steps, under the delay policy */
    SLEEP_STEPS = 400
};

/* Those that have something to do, in no order. */
static struct sim_fiber *listed[SIM_MAX_FIBERS];
static int32_t num_listed;

void sim_draw_policy(void)
{
    num_listed = 0;
    sim_world->policy = sim_world->config->policy == WEFT__SIM_MIXED
                            ? (enum weft__sim_policy)sim_random(WEFT__SIM_MIXED)
                            : sim_world->config->policy;
    sim_world->favourite_rank = (int32_t)sim_random((uint64_t)sim_world->config->num_ranks);
    for (int32_t i = 0; i < SIM_PCT_CHANGE_POINTS; i++)
        sim_world->change_points[i] = sim_random(PCT_EXPECTED_STEPS);
}

void sim_policy_add(struct sim_fiber *fiber)
{
    fiber->priority = (uint32_t)sim_random(1u << 30) + SIM_PCT_CHANGE_POINTS;
    listed[num_listed++] = fiber;
}

void sim_policy_remove(const struct sim_fiber *fiber)
{
    for (int32_t i = 0; i < num_listed; i++) {
        if (listed[i] != fiber)
            continue;
        listed[i] = listed[--num_listed];
        return;
    }
}

/* ---------------------------------------------------------------- who can go on */

int64_t sim_stalled_until_ns(const struct sim_fiber *fiber)
{
    return fiber->rank == SIM_NO_RANK ? 0 : sim_world->rank_stalled_until_ns[fiber->rank];
}

static int can_go_on(struct sim_fiber *fiber)
{
    if (sim_world->now_ns < sim_stalled_until_ns(fiber))
        return 0;
    if (fiber->state == SIM_READY)
        return 1;
    fiber->wait_ended = fiber->is_over(fiber);
    return fiber->wait_ended || sim_world->now_ns >= fiber->deadline_ns;
}

/* ---------------------------------------------------------------- policies */

/* Shuffles as far as it must: member i of a random order. */
static struct sim_fiber *draw_fiber(int32_t i)
{
    const int32_t drawn = i + (int32_t)sim_random((uint64_t)(num_listed - i));
    struct sim_fiber *fiber = listed[drawn];
    listed[drawn] = listed[i];
    listed[i] = fiber;
    return fiber;
}

static struct sim_fiber *choose_any(void)
{
    for (int32_t i = 0; i < num_listed; i++) {
        struct sim_fiber *fiber = draw_fiber(i);
        if (can_go_on(fiber))
            return fiber;
    }
    return NULL;
}

static struct sim_fiber *choose_by_priority(void)
{
    struct sim_fiber *best = NULL;
    for (int32_t i = 0; i < num_listed; i++) {
        if ((best == NULL || listed[i]->priority > best->priority) && can_go_on(listed[i]))
            best = listed[i];
    }
    for (uint32_t i = 0; i < SIM_PCT_CHANGE_POINTS && best != NULL; i++) {
        if (sim_world->step == sim_world->change_points[i])
            best->priority = i; /* below all others, from its next step on */
    }
    return best;
}

static struct sim_fiber *choose_awake(void)
{
    struct sim_fiber *asleep = NULL; /* goes on only if all are */
    for (int32_t i = 0; i < num_listed; i++) {
        struct sim_fiber *fiber = draw_fiber(i);
        const int is_asleep = fiber->asleep_until > sim_world->step;
        if ((is_asleep && asleep != NULL) || !can_go_on(fiber))
            continue;
        if (!is_asleep && sim_random(SLEEP_ONE_IN) != 0)
            return fiber;
        if (!is_asleep)
            fiber->asleep_until = sim_world->step + sim_random(SLEEP_STEPS);
        asleep = fiber;
    }
    return asleep;
}

static struct sim_fiber *choose_favourite(void)
{
    for (int32_t i = 0; i < num_listed; i++) {
        struct sim_fiber *fiber = draw_fiber(i);
        if (fiber->rank == sim_world->favourite_rank && can_go_on(fiber))
            return fiber;
    }
    return choose_any();
}

struct sim_fiber *sim_choose(void)
{
    switch (sim_world->policy) {
    case WEFT__SIM_PCT:
        return choose_by_priority();
    case WEFT__SIM_DELAY:
        return choose_awake();
    case WEFT__SIM_AHEAD:
        return choose_favourite();
    default:
        return choose_any();
    }
}
