/* SPDX-License-Identifier: MIT */
/* Several communicators, several weft_eps, several streams, all at once. */
#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/memory.h"
#include "oracle/ep_trials.h"

static const struct ep_case usual = {.seed = 40,
                                     .num_ranks = 4,
                                     .max_tokens = 10,
                                     .num_topk = 2,
                                     .num_experts = 8,
                                     .tokens = EP_TOKENS_RAGGED,
                                     .num_blocks = 2,
                                     .num_warps = 2};

enum { NUM_SEATS = 3, NUM_ROUNDS = 6 };

/* One of several users of the library on the same rank. */
struct seat {
    struct ep_rank rank;
    struct ep_pass passes[NUM_ROUNDS];
};

static int issue(struct seat *seat, int round)
{
    return ep_route(&seat->rank) ||
           ep_pass_issue(&seat->rank, ep_dispatch_shape_of(30 + 2 * (uint64_t)round),
                         ep_combine_shape_of(WEFT_FP32, 9 + round), (uint64_t)round,
                         &seat->passes[round]);
}

/* The ranks interleave the seats differently: only the order within a seat is promised. */
static int issue_and_verify(struct ranks_context *context, struct seat *seats)
{
    for (int i = 0; i < NUM_SEATS; i++)
        for (int round = 0; round < NUM_ROUNDS; round++)
            if (context->rank % 2 == 0 && issue(&seats[i], round))
                return 1;
    for (int round = 0; round < NUM_ROUNDS; round++)
        for (int i = NUM_SEATS - 1; i >= 0; i--)
            if (context->rank % 2 == 1 && issue(&seats[i], round))
                return 1;
    for (int i = 0; i < NUM_SEATS; i++)
        if (ep_passes_verify(&seats[i].rank, seats[i].passes, NUM_ROUNDS))
            return 1;
    return 0;
}

static int in_several_comms(struct ranks_context *context)
{
    struct ep_world **worlds = context->argument;
    struct seat *seats = tests_alloc(sizeof *seats * NUM_SEATS);
    if (ep_rank_open(&seats[0].rank, context, worlds[0]->spec.num_nodes, 2 << 20))
        return 1;
    for (int i = 1; i < NUM_SEATS; i++) {
        weft_comm *comm;
        CHECK_OK(weft_comm_split(seats[0].rank.comm, 0, 0, NULL, &comm));
        if (ep_rank_open_on(&seats[i].rank, context, comm, 2 << 20))
            return 1;
    }
    for (int i = 0; i < NUM_SEATS; i++)
        if (ep_rank_enter(&seats[i].rank, worlds[i]))
            return 1;
    if (issue_and_verify(context, seats))
        return 1;
    for (int i = NUM_SEATS - 1; i >= 0; i--)
        if (ep_rank_leave(&seats[i].rank) || ep_rank_close(&seats[i].rank))
            return 1;
    tests_free(seats);
    return 0;
}

static int in_several_eps(struct ranks_context *context)
{
    struct ep_world **worlds = context->argument;
    struct seat *seats = tests_alloc(sizeof *seats * NUM_SEATS);
    struct ep_rank self;
    if (ep_rank_open(&self, context, worlds[0]->spec.num_nodes, 6 << 20))
        return 1;
    for (int i = 0; i < NUM_SEATS; i++) {
        seats[i].rank = self;
        CHECK_OK(weft_stream_create(self.comm, &seats[i].rank.stream));
        if (ep_rank_enter(&seats[i].rank, worlds[i]))
            return 1;
    }
    if (issue_and_verify(context, seats))
        return 1;
    for (int i = 0; i < NUM_SEATS; i++) {
        if (ep_rank_leave(&seats[i].rank))
            return 1;
        CHECK_OK(weft_stream_destroy(seats[i].rank.stream));
    }
    tests_free(seats);
    return ep_rank_close(&self);
}

static void run_with_worlds_of(rank_function function, int32_t num_nodes)
{
    struct ep_world *worlds[NUM_SEATS];
    for (int i = 0; i < NUM_SEATS; i++) {
        struct ep_case spec = usual;
        spec.seed = (uint64_t)i;
        spec.num_nodes = num_nodes;
        spec.num_topk = i + 1;
        worlds[i] = ep_world_create(&spec);
    }
    assert_int_equal(ranks_run(RANKS_THREADS, usual.num_ranks, function, &worlds), 0);
    assert_int_equal(ranks_run(RANKS_PROCESSES, usual.num_ranks, function, &worlds), 0);
    for (int i = 0; i < NUM_SEATS; i++)
        ep_world_destroy(worlds[i]);
}

static void run_with_worlds(rank_function function)
{
    const int32_t max_nodes = tests_max_nodes(2);
    for (int32_t num_nodes = 1; num_nodes <= max_nodes; num_nodes++)
        run_with_worlds_of(function, num_nodes);
}

TEST_CALL(communicators_at_once, run_with_worlds(in_several_comms))
TEST_CALL(eps_at_once_on_one_communicator, run_with_worlds(in_several_eps))

/* The operations of one ep are ordered even when each is given another stream. */
static int issue_alternating(struct seat *seat, weft_stream *const *streams)
{
    struct ep_rank *rank = &seat->rank;
    weft_ep_layout_args args;
    if (ep_layout_args(rank, &args))
        return 1;
    CHECK_OK(weft_ep_layout(rank->handle, &args, streams[0]));
    CHECK_OK(weft_ep_notify(rank->handle, streams[1]));
    for (int round = 0; round < NUM_ROUNDS; round++) {
        struct ep_dispatch_shape dispatch = ep_dispatch_shape_of(48);
        struct ep_combine_shape combine = ep_combine_shape_of(WEFT_BF16, 13);
        dispatch.round = combine.round = (uint64_t)round;
        seat->rank.stream = streams[(round + rank->context->rank) % NUM_SEATS];
        if (ep_dispatch_issue(&seat->rank, &dispatch, &seat->passes[round].dispatch))
            return 1;
        seat->rank.stream = streams[(2 * round + 1) % NUM_SEATS];
        if (ep_combine_issue(&seat->rank, &combine, &seat->passes[round].combine))
            return 1;
    }
    return 0;
}

static int on_alternating_streams(struct ranks_context *context)
{
    struct seat *seat = tests_alloc(sizeof *seat);
    struct ep_rank self;
    weft_stream *streams[NUM_SEATS];
    const struct ep_world *world = context->argument;
    if (ep_rank_open(&self, context, world->spec.num_nodes, 2 << 20))
        return 1;
    for (int i = 0; i < NUM_SEATS; i++)
        CHECK_OK(weft_stream_create(self.comm, &streams[i]));
    seat->rank = self;
    if (ep_rank_enter(&seat->rank, world) || issue_alternating(seat, streams))
        return 1;
    for (int i = 0; i < NUM_SEATS; i++)
        CHECK_OK(weft_stream_synchronize(streams[i]));
    if (ep_passes_verify(&seat->rank, seat->passes, NUM_ROUNDS) || ep_rank_leave(&seat->rank))
        return 1;
    for (int i = 0; i < NUM_SEATS; i++)
        CHECK_OK(weft_stream_destroy(streams[i]));
    tests_free(seat);
    return ep_rank_close(&self);
}

TEST(alternating_streams)
{
    const int32_t max_nodes = tests_max_nodes(2);
    for (int32_t num_nodes = 1; num_nodes <= max_nodes; num_nodes++) {
        struct ep_case spec = usual;
        spec.num_nodes = num_nodes;
        assert_int_equal(ep_case_run(&spec, RANKS_THREADS, on_alternating_streams), 0);
        assert_int_equal(ep_case_run(&spec, RANKS_PROCESSES, on_alternating_streams), 0);
    }
}
