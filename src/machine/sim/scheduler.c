/* SPDX-License-Identifier: MIT */
/* The run of all fibers, one step at a time, drawn from the seed. */
#include <stdlib.h>
#include <string.h>

#include "machine/sim/world.h"

enum { MAX_STEPS = 16000000 };

struct sim_world *sim_world;

uint64_t sim_random(uint64_t bound)
{
    uint64_t z = sim_world->random_state += 0x9e3779b97f4a7c15u; /* splitmix64 */
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % bound;
}

int weft__sim_fault_has_struck(void)
{
    return sim_world != NULL && sim_world->result->fault_struck;
}

/* ---------------------------------------------------------------- fibers */

static void enter_fiber(void *argument)
{
    struct sim_fiber *fiber = argument;
    fiber->main(fiber);
    sim_rows_end(fiber);
    sim_stores_commit(fiber, SIM_PLAIN_STORE);
    fiber->state = SIM_DONE;
}

void sim_fiber_restart(struct sim_fiber *fiber, void (*main)(struct sim_fiber *), void *argument)
{
    fiber->main = main;
    fiber->argument = argument;
    fiber->state = SIM_READY;
    sim_policy_add(fiber);
    /* Whoever starts a fiber is in its past. */
    if (sim_current() != NULL) {
        sim_clock_join(&fiber->clock, &sim_current()->clock);
        sim_tick(sim_current());
    }
    sim_tick(fiber);
    weft__fiber_start(fiber->stack, enter_fiber, fiber);
}

/* Stacks of finished fibers, kept from run to run: mapping them would take longer than a small
 * run. */
enum { NUM_STACK_KINDS = 2 };
static struct weft__fiber *free_stacks[NUM_STACK_KINDS][SIM_MAX_FIBERS];
static int32_t num_free_stacks[NUM_STACK_KINDS];

static weft_result take_stack(struct sim_fiber *fiber, enum sim_stack_kind kind)
{
    static const size_t stack_bytes[NUM_STACK_KINDS] = {
        [SIM_HOST_STACK] = SIM_HOST_STACK_BYTES, [SIM_LANE_STACK] = WEFT__FIBER_STACK_BYTES};
    fiber->stack_kind = kind;
    if (num_free_stacks[kind] == 0)
        return weft__fiber_create(&fiber->stack, stack_bytes[kind]);
    fiber->stack = free_stacks[kind][--num_free_stacks[kind]];
    return WEFT_OK;
}

static void give_stack_back(struct sim_fiber *fiber)
{
    const enum sim_stack_kind kind = fiber->stack_kind;
    if (fiber->state == SIM_DONE && num_free_stacks[kind] < SIM_MAX_FIBERS)
        free_stacks[kind][num_free_stacks[kind]++] = fiber->stack;
    else /* suspended in the middle of something */
        weft__fiber_destroy(fiber->stack);
}

struct sim_fiber *sim_fiber_start(int32_t rank, enum sim_stack_kind stack_kind,
                                  void (*main)(struct sim_fiber *), void *argument)
{
    struct sim_fiber *fiber =
        sim_world->num_fibers < SIM_MAX_FIBERS ? calloc(1, sizeof *fiber) : NULL;
    if (fiber == NULL)
        return NULL;
    if (take_stack(fiber, stack_kind) != WEFT_OK) {
        free(fiber);
        return NULL;
    }
    fiber->id = sim_world->num_fibers;
    fiber->rank = rank;
    sim_world->fibers[sim_world->num_fibers++] = fiber;
    sim_fiber_restart(fiber, main, argument);
    return fiber;
}

static void free_fibers(struct sim_world *world)
{
    for (int32_t i = 0; i < world->num_fibers; i++) {
        give_stack_back(world->fibers[i]);
        free(world->fibers[i]->stores);
        free(world->fibers[i]);
    }
}

void sim_yield(void)
{
    weft__fiber_yield(sim_current()->stack);
}

static int wait_until(int (*is_over)(struct sim_fiber *fiber), void *argument, int64_t deadline_ns)
{
    struct sim_fiber *fiber = sim_current();
    fiber->is_over = is_over;
    fiber->wait_argument = argument;
    fiber->deadline_ns = deadline_ns;
    fiber->state = SIM_WAITING;
    sim_yield();
    return fiber->wait_ended;
}

int sim_wait_until(int (*is_over)(struct sim_fiber *fiber), void *argument, int64_t timeout_ms)
{
    return wait_until(is_over, argument,
                      timeout_ms == INT64_MAX ? INT64_MAX
                                              : sim_world->now_ns + timeout_ms * 1000000);
}

static int never(struct sim_fiber *fiber)
{
    (void)fiber;
    return 0;
}

void sim_sleep(uint64_t num_steps)
{
    wait_until(never, NULL, sim_world->now_ns + (int64_t)num_steps * sim_step_ns());
}

/* ---------------------------------------------------------------- when nobody can go on */

/* Stores reach memory in the end, also without a release. */
static int drain_stores(void)
{
    int any = 0;
    for (int32_t i = 0; i < sim_world->num_fibers; i++) {
        struct sim_fiber *fiber = sim_world->fibers[i];
        if (fiber->num_stores > 0) {
            sim_stores_show(fiber);
            sim_stores_commit(fiber, SIM_PLAIN_STORE);
            sim_stores_commit(fiber, SIM_ROW_STORE);
            any = 1;
        }
    }
    return any;
}

/* To the next deadline or the end of a stall. */
static int advance_time(void)
{
    int64_t next_ns = INT64_MAX;
    for (int32_t i = 0; i < sim_world->num_fibers; i++) {
        const struct sim_fiber *fiber = sim_world->fibers[i];
        if (fiber->state == SIM_DONE || fiber->state == SIM_KILLED)
            continue;
        const int64_t stalled_ns = sim_stalled_until_ns(fiber);
        if (stalled_ns > sim_world->now_ns && stalled_ns < next_ns)
            next_ns = stalled_ns;
        if (fiber->state == SIM_WAITING && stalled_ns <= sim_world->now_ns &&
            fiber->deadline_ns < next_ns)
            next_ns = fiber->deadline_ns;
    }
    if (next_ns == INT64_MAX)
        return 0;
    sim_world->now_ns = next_ns;
    return 1;
}

/* ---------------------------------------------------------------- faults */

static void kill_rank(int32_t rank)
{
    for (int32_t i = 0; i < sim_world->num_fibers; i++) {
        struct sim_fiber *fiber = sim_world->fibers[i];
        if (fiber->rank == rank && fiber->state != SIM_DONE) {
            fiber->state = SIM_KILLED;
            sim_policy_remove(fiber);
            fiber->num_stores = 0; /* what was not visible yet never will be */
        }
    }
    sim_world->rank_is_dead[rank] = 1;
    sim_comm_lose_rank(rank);
}

static void strike(void)
{
    const struct weft__sim_config *config = sim_world->config;
    if (config->fault == WEFT__SIM_NO_FAULT || sim_world->result->fault_struck ||
        sim_world->step < config->fault_step)
        return;
    sim_world->result->fault_struck = 1;
    if (config->fault == WEFT__SIM_KILL)
        kill_rank(config->fault_rank);
    else if (config->fault == WEFT__SIM_STALL)
        sim_world->rank_stalled_until_ns[config->fault_rank] =
            sim_world->now_ns + (config->stall_ns > 0 ? config->stall_ns : SIM_STALL_NS);
}

/* ---------------------------------------------------------------- the run */

static void switch_to(struct sim_fiber *fiber)
{
    sim_world->current = fiber;
    fiber->state = SIM_READY;
    sim_stores_show(fiber);
    if (fiber->is_host)
        weft__set_last_error(fiber->last_error);
    weft__current_call = fiber->current_call;
    weft__fiber_resume(fiber->stack);
    fiber->current_call = weft__current_call;
    if (fiber->is_host)
        memcpy(fiber->last_error, weft__last_error(), sizeof fiber->last_error);
    sim_stores_hide(fiber);
    sim_world->current = NULL;
}

static void take_step(struct sim_fiber *fiber)
{
    sim_world->step++;
    sim_world->now_ns += sim_step_ns();
    sim_world->result->schedule_hash =
        (sim_world->result->schedule_hash ^ (uint64_t)fiber->id) * 0x100000001b3u;
    switch_to(fiber);
    if (fiber->state == SIM_DONE)
        sim_policy_remove(fiber);
}

static void report_hang(void)
{
    int32_t num_hanging = 0;
    for (int32_t i = 0; i < sim_world->num_fibers; i++) {
        const struct sim_fiber *fiber = sim_world->fibers[i];
        if (fiber->state == SIM_DONE || fiber->state == SIM_KILLED)
            continue;
        if (num_hanging++ == 0 && sim_world->step < MAX_STEPS)
            sim_report("hang: nobody can go on\n");
        else if (num_hanging == 1)
            sim_report("hang: no end after %d steps\n", MAX_STEPS);
        if (!fiber->is_host)
            sim_report("  rank %d block %d warp %d lane %d waits\n", fiber->rank,
                       fiber->warp.block_idx, fiber->warp.warp_idx, fiber->warp.lane_idx);
    }
    sim_world->result->num_hangs = num_hanging > 0;
}

static void run_all(void)
{
    while (sim_world->step < MAX_STEPS) {
        strike();
        struct sim_fiber *next = sim_choose();
        if (next != NULL)
            take_step(next);
        else if (!drain_stores() && !advance_time())
            break;
    }
    report_hang();
}

/* A signal that no one waits for orders nothing: it is a mistake, or superfluous. */
static void check_signals(void)
{
    const struct sim_word *word = sim_unawaited_word();
    if (word == NULL)
        return;
    sim_world->result->num_races++;
    sim_report(
        "signal that no one waits for: %s was set to %llu, the last value awaited was %llu\n",
        sim_name_of(word->address),
        (unsigned long long)word->signals[(word->num_signals - 1) % SIM_KEPT_SIGNALS].value,
        (unsigned long long)word->awaited);
}

static void run_host(struct sim_fiber *fiber)
{
    fiber->is_host = 1;
    if (sim_world->config->rank_main(fiber->rank, fiber->argument) != 0)
        sim_world->result->num_wrong++;
}

int weft__sim_run(const struct weft__sim_config *config, struct weft__sim_result *result)
{
    struct sim_world *world = calloc(1, sizeof *world);
    if (world == NULL)
        return -1;
    memset(result, 0, sizeof *result);
    world->config = config;
    world->result = result;
    world->random_state = config->seed;
    sim_world = world;
    sim_draw_policy();
    int failed = 0;
    for (int32_t rank = 0; rank < config->num_ranks && !failed; rank++)
        failed = sim_fiber_start(rank, SIM_HOST_STACK, run_host, config->argument) == NULL;
    if (!failed) {
        run_all();
        if (!result->fault_struck && result->num_hangs == 0) {
            check_signals();
            sim_slots_check_taken(NULL, SIZE_MAX);
        }
    }
    result->num_steps = world->step;
    if (result->num_races > 0 || result->num_wrong > 0 || result->num_hangs > 0)
        sim_report_traces();
    sim_comm_reset();
    sim_fences_reset();
    sim_wire_reset();
    sim_clocks_reset();
    sim_run_memory_reset();
    free_fibers(world);
    free(world);
    sim_world = NULL;
    return failed ? -1 : 0;
}
