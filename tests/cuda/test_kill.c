/* SPDX-License-Identifier: MIT */
/* A rank is killed, or aborts, while the others wait for it in a replayed graph with more
 * replays queued behind: all of them end within two seconds, and the GPU goes on with a new
 * communicator. */
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "cuda/driver.h"
#include "cuda/layer.h"
#include "harness/cmocka.h"

enum { NUM_RANKS = 4, NUM_QUEUED = 30, TIMEOUT_MS = 60000, PAUSE_MS = 100 };

enum fault { KILLED, ABORTED };

struct plan {
    enum fault fault;
    int32_t victim;
};

struct board {
    double fault_time_s;
    weft_unique_id fresh_id[2]; /* of the survivors, for either machine */
};

/* A layer in a graph. */
struct replayer {
    struct ranks_context *context;
    struct layer layer;
    CUstream native;
    weft_stream *stream;
    CUgraphExec graph;
};

static const struct layer_shape usual = {.max_tokens = 32,
                                         .num_topk = 3,
                                         .num_experts = 16,
                                         .capacity = 100,
                                         .hidden = 128,
                                         .num_blocks = 2,
                                         .num_warps = 4};

static int capture(struct replayer *replayer)
{
    CUgraph graph;
    DRIVER_CHECK(
        driver.stream_begin_capture(replayer->native, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    if (layer_issue(&replayer->layer, replayer->stream))
        return 1;
    DRIVER_CHECK(driver.stream_end_capture(replayer->native, &graph));
    DRIVER_CHECK(driver.graph_instantiate(&replayer->graph, graph, 0));
    DRIVER_CHECK(driver.graph_destroy(graph));
    return 0;
}

static int open_replayer(struct replayer *replayer, struct ranks_context *context,
                         const weft_unique_id *id)
{
    weft_comm *comm;
    replayer->context = context;
    CHECK_OK(weft_comm_create(
        id, context->rank, context->num_ranks,
        WEFT_ARGS(weft_comm_config, .machine = WEFT_MACHINE_CUDA, .timeout_ms = TIMEOUT_MS),
        &comm));
    DRIVER_CHECK(driver.stream_create(&replayer->native, CU_STREAM_NON_BLOCKING));
    CHECK_OK(weft_stream_wrap(comm, replayer->native, &replayer->stream));
    return layer_open(&replayer->layer, context, comm, &usual) || capture(replayer) ||
           layer_fill(&replayer->layer, 0);
}

static int close_replayer(struct replayer *replayer)
{
    DRIVER_CHECK(driver.graph_exec_destroy(replayer->graph));
    if (layer_close(&replayer->layer))
        return 1;
    CHECK_OK(weft_stream_destroy(replayer->stream));
    DRIVER_CHECK(driver.stream_destroy(replayer->native));
    CHECK_OK(weft_comm_destroy(replayer->layer.comm));
    return 0;
}

static int replay(struct replayer *replayer)
{
    DRIVER_CHECK(driver.graph_launch(replayer->graph, replayer->native));
    return 0;
}

/* ---------------------------------------------------------------- the fault */

/* While the others wait in their kernels. */
static int cause_fault(struct replayer *replayer, const struct plan *plan)
{
    struct board *board = replayer->context->shared;
    const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000L};
    nanosleep(&pause, NULL);
    board->fault_time_s = clock_s();
    if (plan->fault == KILLED)
        kill(getpid(), SIGKILL);
    CHECK_OK(weft_comm_abort(replayer->layer.comm));
    return 0;
}

static int check_failure(struct replayer *replayer, const struct plan *plan)
{
    struct ranks_context *context = replayer->context;
    const struct board *board = context->shared;
    const weft_result expected =
        plan->fault == KILLED ? WEFT_ERROR_RANK_FAILED : WEFT_ERROR_ABORTED;
    const double delay_s = clock_s() - board->fault_time_s;
    weft_comm *comm = replayer->layer.comm;
    int32_t failed_rank = -1;
    char text[32];
    snprintf(text, sizeof text, "rank %d", plan->victim);
    CHECK(board->fault_time_s > 0, "the replays ended before the fault");
    CHECK(delay_s < 2, "it took %.3f s to learn of the fault", delay_s);
    CHECK_ERROR(weft_comm_status(comm, &failed_rank), expected, text);
    CHECK(plan->fault == ABORTED || failed_rank == plan->victim, "failed_rank is %d", failed_rank);
    CHECK_ERROR(weft_comm_barrier(comm, replayer->stream), expected, text);
    CHECK_ERROR(weft_ep_check(replayer->layer.handle, NULL), expected, text);
    return 0;
}

/* Graphs are nobody's call: that they failed is told by the communicator. */
static int be_struck(struct replayer *replayer, const struct plan *plan)
{
    struct ranks_context *context = replayer->context;
    if (replay(replayer))
        return 1;
    CHECK_OK(weft_stream_synchronize(replayer->stream));
    CHECK_OK(weft_comm_status(replayer->layer.comm, NULL));
    ranks_barrier(context);
    if (context->rank == plan->victim)
        return cause_fault(replayer, plan);
    for (int i = 0; i < NUM_QUEUED; i++)
        if (replay(replayer))
            return 1;
    (void)weft_stream_synchronize(replayer->stream);
    return check_failure(replayer, plan);
}

/* ---------------------------------------------------------------- after it */

static int replay_beside_cpu(struct replayer *replayer, struct layer *cpu)
{
    weft_stream *stream;
    CHECK_OK(weft_stream_create(cpu->comm, &stream));
    for (uint64_t round = 0; round < 4; round++) {
        if (layer_fill(&replayer->layer, round) || layer_fill(cpu, round) || replay(replayer) ||
            layer_issue(cpu, stream))
            return 1;
        CHECK_OK(weft_stream_synchronize(stream));
        CHECK_OK(weft_stream_synchronize(replayer->stream));
        if (layer_compare(&replayer->layer, cpu))
            return 1;
    }
    CHECK_OK(weft_stream_destroy(stream));
    return 0;
}

/* All that still live, in the same processes and contexts; `fresh` numbers them anew. */
static int go_on(struct ranks_context *of_run, struct ranks_context *fresh)
{
    struct board *board = of_run->shared;
    struct replayer replayer;
    struct layer cpu;
    weft_comm *comm;
    for (int i = 0; fresh->rank == 0 && i < 2; i++)
        CHECK_OK(weft_unique_id_create(&board->fresh_id[i]));
    ranks_barrier(of_run);
    CHECK_OK(weft_comm_create(&board->fresh_id[0], fresh->rank, fresh->num_ranks,
                              WEFT_ARGS(weft_comm_config, .machine = WEFT_MACHINE_CPU), &comm));
    if (open_replayer(&replayer, fresh, &board->fresh_id[1]) ||
        layer_open(&cpu, fresh, comm, &usual) || replay_beside_cpu(&replayer, &cpu) ||
        layer_close(&cpu) || close_replayer(&replayer))
        return 1;
    CHECK_OK(weft_comm_destroy(comm));
    ranks_barrier(of_run); /* rank 0's process serves them */
    return 0;
}

static int live_through_a_fault(struct ranks_context *context)
{
    const struct plan *plan = context->argument;
    struct ranks_context fresh = *context;
    struct replayer replayer;
    if (driver_use_device(context->rank) || open_replayer(&replayer, context, &context->id) ||
        be_struck(&replayer, plan))
        return 1;
    ranks_barrier(context);
    if (close_replayer(&replayer))
        return 1;
    if (plan->fault == KILLED) {
        fresh.num_ranks--;
        fresh.rank -= context->rank > plan->victim;
    }
    CHECK(go_on(context, &fresh) == 0, "after the fault: %.900s", context->failure);
    return driver_leave_device(context->rank);
}

static void run(struct plan plan)
{
    const struct ranks_options options = {.mode = RANKS_PROCESSES,
                                          .num_ranks = NUM_RANKS,
                                          RANKS_ARGUMENT(&plan),
                                          .shared_bytes = sizeof(struct board),
                                          .may_die =
                                              plan.fault == KILLED ? UINT64_C(1) << plan.victim : 0,
                                          .deadline_s = 60};
    if (ranks_run_with(&options, live_through_a_fault) != 0)
        fail_msg("fault %d, victim %d", (int)plan.fault, plan.victim);
}

TEST(a_death_ends_replays)
{
    for (int32_t victim = 0; victim < NUM_RANKS; victim += NUM_RANKS - 1)
        run((struct plan){KILLED, victim});
}

TEST_CALL(an_abort_ends_replays, run((struct plan){ABORTED, 1}))
