/* SPDX-License-Identifier: MIT */
/* A mismatch that one rank alone can see is told to all; and ranks that end as soon as they know of
 * one do not hide it from the others. */
#include <signal.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "oracle/coll_call.h"

enum { NUM_RANKS = 4, TIMEOUT_MS = 5000, ARENA_BYTES = 1 << 20 };

/* ---------------------------------------------------------------- two ranks differ */

enum { SENDER = 0, RECEIVER = 1, COUNT = 10 };

struct bytes_call {
    struct ep_array send, recv;
    int64_t send_counts[NUM_RANKS], recv_counts[NUM_RANKS], offsets[NUM_RANKS];
};

static int bytes_call_create(struct ep_rank *self, struct bytes_call *call)
{
    *call = (struct bytes_call){.send = {0}};
    for (int32_t rank = 0; rank < NUM_RANKS; rank++) {
        call->send_counts[rank] = call->recv_counts[rank] = COUNT;
        call->offsets[rank] = (int64_t)rank * COUNT;
    }
    return ep_array_alloc(self, &call->send, EP_HEAP, NUM_RANKS * COUNT, 0) ||
           ep_array_push(self, &call->send) ||
           ep_array_alloc(self, &call->recv, EP_HEAP, NUM_RANKS * COUNT, 0);
}

static weft_result bytes_call_run(struct ep_rank *self, const struct bytes_call *call,
                                  weft_coll *coll)
{
    weft_coll_all_to_all_v_args args = WEFT_INIT(weft_coll_all_to_all_v_args);
    args.send = call->send.data;
    args.recv = call->recv.data;
    args.dtype = WEFT_UINT8;
    args.send_counts = call->send_counts;
    args.recv_counts = call->recv_counts;
    args.send_offsets = args.recv_offsets = call->offsets;
    const weft_result result = weft_coll_all_to_all_v(coll, &args, self->stream);
    return result == WEFT_OK ? weft_stream_synchronize(self->stream) : result;
}

/* The receiver alone sees that the sender has too little for it. Packets need nothing from the
 * receiver but what it has sent before it looks; so the call may end well on the others, whom the
 * next one tells. */
static int differ_in_one_pair(struct ranks_context *context)
{
    const weft_algorithm *algorithm = context->argument;
    weft_coll_config coll_config = WEFT_INIT(weft_coll_config);
    struct ep_rank self;
    struct bytes_call call;
    weft_coll *coll;
    coll_config.choices =
        WEFT_ARGS(weft_coll_choice, .collective = WEFT_ALL_TO_ALL, .algorithm = *algorithm);
    coll_config.num_choices = 1;
    if (ep_rank_open_with(&self, context, WEFT_ARGS(weft_comm_config, .timeout_ms = TIMEOUT_MS),
                          ARENA_BYTES) ||
        bytes_call_create(&self, &call))
        return 1;
    CHECK_OK(weft_coll_create(self.comm, &coll_config, &coll));
    CHECK_OK(bytes_call_run(&self, &call, coll));
    CHECK_OK(weft_comm_host_barrier(self.comm)); /* else a slow rank is told in that call */
    if (context->rank == SENDER)
        call.send_counts[RECEIVER]--;
    weft_result result = bytes_call_run(&self, &call, coll);
    CHECK(context->rank != RECEIVER || result != WEFT_OK, "no error");
    if (context->rank == SENDER)
        call.send_counts[RECEIVER]++;
    if (*algorithm == WEFT_ALGORITHM_ONESHOT && result == WEFT_OK)
        result = bytes_call_run(&self, &call, coll);
    CHECK_ERROR(result, WEFT_ERROR_MISMATCH, "10 on rank 1, 9 on rank 0");
    (void)weft_stream_synchronize(self.stream);
    if (ep_array_free(&self, &call.send) || ep_array_free(&self, &call.recv))
        return 1;
    CHECK_OK(weft_coll_destroy(coll));
    return ep_rank_close(&self);
}

TEST(one_pair)
{
    weft_algorithm algorithms[] = {WEFT_ALGORITHM_AUTO, WEFT_ALGORITHM_ONESHOT};
    for (size_t i = 0; i < sizeof algorithms / sizeof *algorithms; i++) {
        assert_int_equal(ranks_run(RANKS_THREADS, NUM_RANKS, differ_in_one_pair, &algorithms[i]),
                         0);
        assert_int_equal(ranks_run(RANKS_PROCESSES, NUM_RANKS, differ_in_one_pair, &algorithms[i]),
                         0);
    }
}

/* ---------------------------------------------------------------- ranks that end at once */

/* By a signal, which is as abrupt as an exit, and leaves nothing that sanitizers look for. */
static int end_at_once(struct ranks_context *context)
{
    const int32_t *odd_one = context->argument;
    struct coll_case spec =
        coll_case_random(0, NUM_RANKS, COLL_ALL_REDUCE, WEFT_FP32, WEFT_SUM, COUNT);
    struct ep_rank self;
    struct coll_call call;
    weft_coll *coll;
    if (ep_rank_open_with(&self, context, WEFT_ARGS(weft_comm_config, .timeout_ms = TIMEOUT_MS),
                          ARENA_BYTES))
        return 1;
    CHECK_OK(ranks_coll_create(self.comm, &coll));
    if (coll_check(&self, coll, &spec, "before"))
        return 1;
    CHECK_OK(weft_comm_host_barrier(self.comm)); /* else a slow rank is told in that call */
    spec.count -= context->rank == *odd_one;
    if (coll_call_create(&self, &spec, &call))
        return 1;
    weft_result result = coll_call_issue(&call, context->rank, coll, self.stream);
    if (result == WEFT_OK)
        result = weft_stream_synchronize(self.stream);
    char name[32];
    snprintf(name, sizeof name, "on rank %d", *odd_one);
    CHECK_ERROR(result, WEFT_ERROR_MISMATCH, name);
    return raise(SIGKILL);
}

/* The rendezvous is in a process that stays, or in that of a rank. */
TEST(ends)
{
    for (int32_t round = 0; round < tests_rounds(4, 2) * NUM_RANKS; round++) {
        int32_t odd_one = round % NUM_RANKS;
        const struct ranks_options options = {.mode = RANKS_PROCESSES,
                                              .id = round / NUM_RANKS % 2 == 0 ? RANKS_ID_BY_RANK_0
                                                                               : RANKS_ID_BY_HOST,
                                              .num_ranks = NUM_RANKS,
                                              RANKS_ARGUMENT(&odd_one),
                                              .may_die = (1u << NUM_RANKS) - 1};
        assert_int_equal(ranks_run_with(&options, end_at_once), 0);
    }
}

/* ---------------------------------------------------------------- a deadline */

enum { LATE = 0, MANY_MS = 20000 };

/* What the late rank waits for has come long ago: nothing but the news tells it that the others
 * have given up. */
TEST_ON_RANKS(a_deadline_is_told_to_the_late_rank, RANKS_PROCESSES, NUM_RANKS)
{
    struct ep_rank self;
    struct bytes_call call;
    weft_coll *coll;
    int32_t failed_rank = -1;
    if (ranks_warm_up(context) ||
        ep_rank_open_with(&self, context,
                          WEFT_ARGS(weft_comm_config, .timeout_ms = tests_deadline_ms(500)),
                          ARENA_BYTES) ||
        bytes_call_create(&self, &call))
        return 1;
    CHECK_OK(ranks_coll_create(self.comm, &coll));
    CHECK_OK(bytes_call_run(&self, &call, coll));
    if (context->rank == LATE)
        ranks_barrier(context);
    const double begin_s = clock_s();
    while (context->rank == LATE && weft_comm_status(self.comm, NULL) == WEFT_OK &&
           clock_s() < begin_s + MANY_MS / 1000.0)
        continue;
    CHECK_ERROR(bytes_call_run(&self, &call, coll), WEFT_ERROR_TIMEOUT, "rank 0");
    CHECK_ERROR(weft_comm_status(self.comm, &failed_rank), WEFT_ERROR_TIMEOUT, "rank 0");
    CHECK(failed_rank == LATE, "failed_rank is %d", failed_rank);
    if (context->rank != LATE)
        ranks_barrier(context);
    (void)weft_stream_synchronize(self.stream);
    if (ep_array_free(&self, &call.send) || ep_array_free(&self, &call.recv))
        return 1;
    CHECK_OK(weft_coll_destroy(coll));
    return ep_rank_close(&self);
}
