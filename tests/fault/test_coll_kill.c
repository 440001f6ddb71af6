/* SPDX-License-Identifier: MIT */
/* A rank is killed (SIGKILL) before or during a collective, by packets or by direct access. Every survivor
 * learns of it by number within two seconds, gets rid of its objects without leaving anything behind, and
 * goes on with a communicator of the survivors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "harness/machine.h"
#include "harness/stock.h"
#include "harness/victim.h"
#include "oracle/coll_call.h"

enum { NUM_RANKS = 4, MAX_CALLS = 1000000, PACKET_BYTES = 4096 };
enum { SMALL = 200, LARGE = 50000 }; /* elements of 4 bytes: by packets, and not */

enum moment {
    BEFORE_OPERATION, /* the others wait for it to start */
    AT_RANDOM         /* while the operation is repeated */
};

struct plan {
    enum coll_operation operation;
    enum moment moment;
    enum ranks_id id;
    int32_t victim;
    uint64_t count;
    uint64_t seed;
};

/* What one rank has. */
struct seat {
    struct ep_rank rank;
    weft_coll *coll;
    struct coll_call call;
};

static struct coll_case case_of(const struct plan *plan, int32_t num_ranks)
{
    struct coll_case spec =
        coll_case_random(plan->seed, num_ranks, plan->operation, WEFT_FP32, WEFT_SUM, plan->count);
    spec.root = num_ranks - 1;
    return spec;
}

static int seat_open(struct seat *seat, struct ranks_context *context, const struct plan *plan)
{
    enum { ARENA_BYTES = 4 << 20 };
    weft_coll_config config = WEFT_INIT(weft_coll_config);
    const struct coll_case spec = case_of(plan, context->num_ranks);
    config.packet_bytes = PACKET_BYTES;
    config.num_blocks = 2;
    config.num_warps = 2;
    if (ep_rank_open(&seat->rank, context, 0, ARENA_BYTES))
        return 1;
    RANK_CHECK_OK(context, weft_coll_create(seat->rank.comm, &config, &seat->coll));
    return coll_check(&seat->rank, seat->coll, &spec, "before") ||
           coll_call_create(&seat->rank, &spec, &seat->call);
}

static weft_result call_once(const struct seat *seat)
{
    const weft_result result =
        coll_call_issue(&seat->call, seat->rank.context->rank, seat->coll, seat->rank.stream);
    return result != WEFT_OK ? result : weft_stream_synchronize(seat->rank.stream);
}

static weft_result call_until_failure(const struct seat *seat)
{
    weft_result result = WEFT_OK;
    for (int i = 0; i < MAX_CALLS && result == WEFT_OK; i++)
        result = call_once(seat);
    return result;
}

/* From now on everything fails at once. */
static int check_calls_fail(const struct seat *seat)
{
    RANK_CHECK_ERROR(seat->rank.context, call_once(seat), WEFT_ERROR_RANK_FAILED, "died");
    return 0;
}

static int seat_close(struct seat *seat)
{
    /* An error of a call can come before those of what it has enqueued already. */
    (void)weft_stream_synchronize(seat->rank.stream);
    if (coll_call_destroy(&seat->rank, &seat->call))
        return 1;
    RANK_CHECK_OK(seat->rank.context, weft_coll_destroy(seat->coll));
    return ep_rank_close(&seat->rank);
}

static int begin(struct ranks_context *context)
{
    struct seat seat;
    return seat_open(&seat, context, context->argument) || seat_close(&seat);
}

static int survive(struct ranks_context *context)
{
    const struct plan *plan = context->argument;
    struct seat seat;
    RANK_CHECK_OK(context, tests_warm_up(&context->id));
    const struct stock before = stock_take();
    if (seat_open(&seat, context, plan))
        return 1;
    victim_choose(context, plan->victim);
    if (victim_is_self(context) && plan->moment == BEFORE_OPERATION)
        victim_strike(context, SIGKILL);
    if (victim_is_self(context) && victim_strike_later(context, SIGKILL, plan->seed))
        return 1;
    const weft_result result = call_until_failure(&seat);
    if (victim_check_death(context, seat.rank.comm, result) || check_calls_fail(&seat) ||
        seat_close(&seat))
        return 1;
    return stock_check(context, before, stock_take()) || victim_go_on_without(context, begin);
}

static void run(struct plan plan)
{
    const struct ranks_options options = {.mode = RANKS_PROCESSES,
                                          .id = plan.id,
                                          .num_ranks = NUM_RANKS,
                                          .argument = &plan,
                                          .shared_bytes = sizeof(struct victim),
                                          .may_die = 1u << plan.victim,
                                          .deadline_s = 60};
    if (ranks_run_with(&options, survive) != 0)
        fail_msg("%s of %llu elements, victim %d, seed %llu", coll_operation_name(plan.operation),
                 (unsigned long long)plan.count, plan.victim, (unsigned long long)plan.seed);
}

static void before_each_operation(void **state)
{
    (void)state;
    for (int operation = 0; operation < COLL_NUM_OPERATIONS; operation++)
        run((struct plan){.operation = (enum coll_operation)operation,
                          .moment = BEFORE_OPERATION,
                          .victim = operation % NUM_RANKS,
                          .count = operation % 2 == 0 ? SMALL : LARGE});
}

static void at_random_moments(void **state)
{
    (void)state;
    for (int32_t seed = 0; seed < tests_rounds(ep_grid_size(2, 1), 1); seed++)
        for (int operation = 0; operation < COLL_NUM_OPERATIONS; operation++) {
            struct plan plan = {.operation = (enum coll_operation)operation,
                                .moment = AT_RANDOM,
                                .victim = (seed + operation) % NUM_RANKS,
                                .count = SMALL,
                                .seed = 100 + (uint64_t)seed};
            run(plan);
            plan.count = LARGE;
            run(plan);
        }
}

/* The rendezvous dies with the rank that made the id. */
static void together_with_the_rendezvous(void **state)
{
    (void)state;
    run((struct plan){.operation = COLL_ALL_REDUCE,
                      .moment = AT_RANDOM,
                      .id = RANKS_ID_BY_RANK_0,
                      .count = SMALL,
                      .seed = 5});
}

int main(void)
{
    tests_choose_machine();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(before_each_operation),
        cmocka_unit_test(at_random_moments),
        cmocka_unit_test(together_with_the_rendezvous),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
