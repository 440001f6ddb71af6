/* SPDX-License-Identifier: MIT */
/* Operations that one rank never joins: they end at the deadline, or at once when somebody aborts
 * or when that rank destroys its communicator. */
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "oracle/ep_operation.h"
#include "oracle/ep_trials.h"

enum { NUM_RANKS = 3, MISSING = 1, HIDDEN = 8 };

struct plan {
    enum ep_operation operation;
    int32_t aborter; /* whose other thread calls weft_comm_abort; -1: nobody */
    uint32_t timeout_ms;
    struct ep_world *world;
};

static int open_with_timeout(struct ep_rank *self, struct ranks_context *context,
                             const struct plan *plan)
{
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    config.timeout_ms = plan->timeout_ms;
    config.num_nodes = plan->world->spec.num_nodes;
    return ranks_warm_up(context) || ep_rank_open_with(self, context, &config, 1 << 16) ||
           ep_rank_enter(self, plan->world) || ep_route(self);
}

static int close_all(struct ep_rank *self)
{
    CHECK_OK(weft_ep_handle_destroy(self->handle));
    CHECK_OK(weft_ep_destroy(self->ep));
    return ep_rank_close(self);
}

/* The waiting ranks name the one that never came, and the operation; it is not told. */
static int check_timeout(struct ep_rank *self, const struct plan *plan, weft_result result)
{
    weft_ep_counts counts = WEFT_INIT(weft_ep_counts);
    int32_t failed_rank = -1;
    char text[32];
    snprintf(text, sizeof text, "rank %d", MISSING);
    CHECK(result == WEFT_ERROR_TIMEOUT, "\"%s\": %s", weft_result_string(result),
          weft_last_error());
    CHECK(strstr(weft_last_error(), text) != NULL, "%s", weft_last_error());
    CHECK(strstr(weft_last_error(), ep_operation_name(plan->operation)) != NULL, "%s",
          weft_last_error());
    CHECK_ERROR(weft_comm_status(self->comm, &failed_rank), WEFT_ERROR_TIMEOUT, text);
    CHECK(failed_rank == MISSING, "failed_rank is %d", failed_rank);
    CHECK_ERROR(weft_ep_wait_counts(self->handle, &counts), WEFT_ERROR_TIMEOUT, text);
    return 0;
}

static int miss_deadline(struct ranks_context *context)
{
    const struct plan *plan = context->argument;
    struct ep_buffers buffers;
    struct ep_rank self;
    if (open_with_timeout(&self, context, plan) || ep_buffers_create(&self, HIDDEN, &buffers))
        return 1;
    if (plan->operation == EP_COMBINE) /* which between nodes else begins with one */
        CHECK_OK(ep_operation_issue(&self, &buffers, EP_DISPATCH));
    CHECK_OK(weft_stream_synchronize(self.stream));
    if (context->rank != MISSING) {
        const weft_result result = ep_operation_run(&self, &buffers, plan->operation);
        if (check_timeout(&self, plan, result))
            return 1;
    }
    ranks_barrier(context);
    return ep_buffers_destroy(&self, &buffers) || close_all(&self);
}

static void *abort_later(void *argument)
{
    const struct timespec pause = {.tv_nsec = 30000000};
    nanosleep(&pause, NULL);
    weft_comm_abort(argument);
    return NULL;
}

static int be_aborted(struct ranks_context *context)
{
    const struct plan *plan = context->argument;
    struct ep_buffers buffers;
    struct ep_rank self;
    pthread_t thread;
    if (open_with_timeout(&self, context, plan) || ep_buffers_create(&self, HIDDEN, &buffers))
        return 1;
    CHECK_OK(weft_stream_synchronize(self.stream));
    ranks_barrier(context);
    const double begin_s = clock_s();
    if (context->rank == plan->aborter)
        CHECK(pthread_create(&thread, NULL, abort_later, self.comm) == 0, "no thread");
    if (context->rank != MISSING) {
        const weft_result result = ep_operation_run(&self, &buffers, plan->operation);
        CHECK(result == WEFT_ERROR_ABORTED, "\"%s\": %s", weft_result_string(result),
              weft_last_error());
        CHECK(clock_s() - begin_s < 5, "it took %.1f s", clock_s() - begin_s);
    }
    if (context->rank == plan->aborter)
        pthread_join(thread, NULL);
    while (weft_comm_status(self.comm, NULL) == WEFT_OK && clock_s() - begin_s < 5)
        sched_yield();
    CHECK_ERROR(weft_comm_status(self.comm, NULL), WEFT_ERROR_ABORTED, "abort");
    ranks_barrier(context);
    return ep_buffers_destroy(&self, &buffers) || close_all(&self);
}

/* The missing rank leaves in good order while the others wait for it, which ends their wait. */
static int be_left(struct ranks_context *context)
{
    const struct plan *plan = context->argument;
    struct ep_buffers buffers;
    struct ep_rank self;
    char text[32];
    if (open_with_timeout(&self, context, plan) || ep_buffers_create(&self, HIDDEN, &buffers))
        return 1;
    CHECK_OK(weft_stream_synchronize(self.stream));
    ranks_barrier(context);
    const double begin_s = clock_s();
    if (context->rank != MISSING) {
        snprintf(text, sizeof text, "rank %d", MISSING);
        CHECK_ERROR(ep_operation_run(&self, &buffers, plan->operation), WEFT_ERROR_RANK_FAILED,
                    text);
        CHECK(clock_s() - begin_s < 5, "it took %.1f s", clock_s() - begin_s);
    }
    return ep_buffers_destroy(&self, &buffers) || close_all(&self);
}

struct trials {
    rank_function function;
    struct plan plan; /* but for the operation */
};

/* In one communicator after another. */
static int try_each_operation(struct ranks_context *context)
{
    const struct trials *trials = context->argument;
    for (int operation = 0; operation < EP_NUM_OPERATIONS; operation++) {
        struct plan plan = trials->plan;
        struct ranks_context of_one = *context;
        plan.operation = (enum ep_operation)operation;
        of_one.argument = &plan;
        CHECK(trials->function(&of_one) == 0, "%s, aborted by %d: %.900s",
              ep_operation_name(plan.operation), plan.aborter, context->failure);
        ranks_barrier(context);
    }
    return 0;
}

static void run_on_nodes(enum ranks_mode mode, int32_t num_nodes, rank_function function,
                         int32_t aborter, uint32_t timeout_ms)
{
    const struct ep_case spec = {.seed = 90,
                                 .num_ranks = NUM_RANKS,
                                 .num_nodes = num_nodes,
                                 .max_tokens = 4,
                                 .num_topk = num_nodes > 1 ? 6 : 2,
                                 .num_experts = 6};
    struct trials trials = {function, {.aborter = aborter, .timeout_ms = timeout_ms}};
    trials.plan.world = ep_world_create(&spec);
    assert_int_equal(ranks_run(mode, NUM_RANKS, try_each_operation, &trials), 0);
    ep_world_destroy(trials.plan.world);
}

static void run(enum ranks_mode mode, rank_function function, int32_t aborter, uint32_t timeout_ms)
{
    run_on_nodes(mode, 1, function, aborter, timeout_ms);
}

TEST(deadlines)
{
    run(RANKS_THREADS, miss_deadline, -1, tests_deadline_ms(1000));
    run(RANKS_PROCESSES, miss_deadline, -1, tests_deadline_ms(1000));
}

/* By a rank that waits itself, and by the one that never came. */
TEST(aborts)
{
    run(RANKS_THREADS, be_aborted, 0, 60000);
    run(RANKS_PROCESSES, be_aborted, 0, 60000);
    run(RANKS_THREADS, be_aborted, MISSING, 60000);
    run(RANKS_PROCESSES, be_aborted, MISSING, 60000);
}

TEST(departures)
{
    run(RANKS_THREADS, be_left, -1, 60000);
    run(RANKS_PROCESSES, be_left, -1, 60000);
}

/* Where each rank is a node, and waits for those alone that send it something: all, with all experts. */
TEST_OVER(over_nodes, "auto")
{
    run_on_nodes(RANKS_PROCESSES, NUM_RANKS, miss_deadline, -1, tests_deadline_ms(1000));
    run_on_nodes(RANKS_THREADS, NUM_RANKS, be_aborted, 0, 60000);
    run_on_nodes(RANKS_PROCESSES, NUM_RANKS, be_aborted, MISSING, 60000);
    run_on_nodes(RANKS_THREADS, NUM_RANKS, be_left, -1, 60000);
    run_on_nodes(RANKS_PROCESSES, NUM_RANKS, be_left, -1, 60000);
}
