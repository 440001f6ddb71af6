/* SPDX-License-Identifier: MIT */
/* Several weft_colls at once, on communicators of their own and on one; a weft_coll beside a
 * weft_ep; and one weft_coll on several streams. */

#include "harness/cmocka.h"
#include "harness/memory.h"
#include "oracle/coll_call.h"
#include "oracle/coll_rank.h"
#include "oracle/ep_trials.h"

enum { NUM_RANKS = 3, NUM_SEATS = 3, NUM_ROUNDS = 24, SEAT_ARENA_BYTES = 6 << 20 };

/* One of several users of the library on the same rank. */
struct seat {
    struct ep_rank rank;
    weft_coll *coll;
    struct coll_call calls[NUM_ROUNDS];
};

/* AUTO with large and with small buffers. */
static struct coll_setup setup_of(int seat)
{
    return coll_setup_of(seat % 2 == 0 ? 0 : COLL_NUM_SETUPS - 1, NUM_RANKS,
                         &(struct coll_nodes){0});
}

/* Every operation has its turn; most are small, some larger than most setups' buffers. */
static struct coll_case case_of(int seat, int round)
{
    const struct coll_setup setup = setup_of(seat);
    static const uint64_t counts[] = {5, 64, 1, 300, 0, 17, 9000};
    const uint64_t seed = 100 * (uint64_t)seat + (uint64_t)round;
    struct coll_case spec = coll_case_random(
        seed, NUM_RANKS, (enum coll_operation)(round % COLL_NUM_OPERATIONS),
        (weft_dtype)(1 + seed * 5 % 8), (weft_reduce_op)(seed % 5), counts[round % 7]);
    coll_setup_adapt(&setup, &spec);
    return spec;
}

static int seat_open(struct seat *seat, int idx)
{
    const struct coll_setup setup = setup_of(idx);
    CHECK_OK(coll_setup_create(seat->rank.comm, &setup, &seat->coll));
    return 0;
}

static int seat_leave(struct seat *seat)
{
    CHECK_OK(weft_stream_synchronize(seat->rank.stream));
    CHECK_OK(weft_comm_host_barrier(seat->rank.comm));
    CHECK_OK(weft_coll_destroy(seat->coll));
    return 0;
}

static int issue(struct seat *seat, int idx, int round)
{
    struct ranks_context *context = seat->rank.context;
    const struct coll_case spec = case_of(idx, round);
    if (coll_call_create(&seat->rank, &spec, &seat->calls[round]))
        return 1;
    CHECK_OK(coll_call_issue(&seat->calls[round], context->rank, seat->coll, seat->rank.stream));
    return 0;
}

static int verify(struct seat *seat)
{
    CHECK_OK(weft_stream_synchronize(seat->rank.stream));
    for (int round = 0; round < NUM_ROUNDS; round++)
        if (coll_call_verify(&seat->rank, &seat->calls[round], "a seat"))
            return 1;
    return 0;
}

/* The ranks interleave the seats differently: only the order within a seat is promised. */
static int issue_and_verify(struct ranks_context *context, struct seat *seats)
{
    for (int i = 0; i < NUM_SEATS; i++)
        for (int round = 0; round < NUM_ROUNDS; round++)
            if (context->rank % 2 == 0 && issue(&seats[i], i, round))
                return 1;
    for (int round = 0; round < NUM_ROUNDS; round++)
        for (int i = NUM_SEATS - 1; i >= 0; i--)
            if (context->rank % 2 == 1 && issue(&seats[i], i, round))
                return 1;
    for (int i = 0; i < NUM_SEATS; i++)
        if (verify(&seats[i]))
            return 1;
    return 0;
}

/* Each seat has a stream of its own. With the usual shares of a GPU, which are for two streams,
 * ranks of one H200 waited for each other in 7 of 12 runs of three copies at once, in none with
 * these. */
static const weft_comm_config config_of_seats = {.size = sizeof config_of_seats,
                                                 .num_streams = NUM_SEATS};

static int in_several_comms(struct ranks_context *context)
{
    struct seat *seats = tests_alloc(sizeof *seats * NUM_SEATS);
    if (ep_rank_open_with(&seats[0].rank, context, &config_of_seats, SEAT_ARENA_BYTES))
        return 1;
    for (int i = 1; i < NUM_SEATS; i++) {
        weft_comm *comm;
        CHECK_OK(weft_comm_split(seats[0].rank.comm, 0, 0, NULL, &comm));
        if (ep_rank_open_on(&seats[i].rank, context, comm, SEAT_ARENA_BYTES))
            return 1;
    }
    for (int i = 0; i < NUM_SEATS; i++)
        if (seat_open(&seats[i], i))
            return 1;
    if (issue_and_verify(context, seats))
        return 1;
    for (int i = NUM_SEATS - 1; i >= 0; i--)
        if (seat_leave(&seats[i]) || ep_rank_close(&seats[i].rank))
            return 1;
    tests_free(seats);
    return 0;
}

static int in_several_colls(struct ranks_context *context)
{
    struct seat *seats = tests_alloc(sizeof *seats * NUM_SEATS);
    struct ep_rank self;
    if (ep_rank_open_with(&self, context, &config_of_seats, NUM_SEATS * SEAT_ARENA_BYTES))
        return 1;
    for (int i = 0; i < NUM_SEATS; i++) {
        seats[i].rank = self;
        CHECK_OK(weft_stream_create(self.comm, &seats[i].rank.stream));
        if (seat_open(&seats[i], i))
            return 1;
    }
    if (issue_and_verify(context, seats))
        return 1;
    for (int i = 0; i < NUM_SEATS; i++) {
        if (seat_leave(&seats[i]))
            return 1;
        CHECK_OK(weft_stream_destroy(seats[i].rank.stream));
    }
    tests_free(seats);
    return ep_rank_close(&self);
}

static void run(rank_function function, const struct ep_world *world)
{
    assert_int_equal(ranks_run(RANKS_THREADS, NUM_RANKS, function, world), 0);
    assert_int_equal(ranks_run(RANKS_PROCESSES, NUM_RANKS, function, world), 0);
}

TEST_CALL(communicators_at_once, run(in_several_comms, NULL))
TEST_CALL(colls_at_once_on_one_communicator, run(in_several_colls, NULL))

/* The operations of one coll are ordered even when each is given another stream. */
static int on_alternating_streams(struct ranks_context *context)
{
    struct seat *seat = tests_alloc(sizeof *seat);
    weft_stream *streams[NUM_SEATS];
    if (ep_rank_open(&seat->rank, context, 0, SEAT_ARENA_BYTES) || seat_open(seat, 0))
        return 1;
    weft_stream *own_stream = seat->rank.stream;
    for (int i = 0; i < NUM_SEATS; i++)
        CHECK_OK(weft_stream_create(seat->rank.comm, &streams[i]));
    for (int round = 0; round < NUM_ROUNDS; round++) {
        seat->rank.stream = streams[(round * 2 + context->rank + round / 5) % NUM_SEATS];
        if (issue(seat, 0, round))
            return 1;
    }
    for (int i = 0; i < NUM_SEATS; i++)
        CHECK_OK(weft_stream_synchronize(streams[i]));
    seat->rank.stream = own_stream;
    if (verify(seat) || seat_leave(seat))
        return 1;
    for (int i = 0; i < NUM_SEATS; i++)
        CHECK_OK(weft_stream_destroy(streams[i]));
    const int failed = ep_rank_close(&seat->rank);
    tests_free(seat);
    return failed;
}

TEST_CALL(alternating_streams, run(on_alternating_streams, NULL))

/* ---------------------------------------------------------------- beside a weft_ep */

static int issue_layers(struct seat *seat, struct ep_pass *layers)
{
    struct ep_rank *rank = &seat->rank;
    for (int round = 0; round < NUM_ROUNDS; round++) {
        struct ep_dispatch_shape dispatch = ep_dispatch_shape_of(40 + (uint64_t)round);
        struct ep_combine_shape combine = ep_combine_shape_of(WEFT_BF16, 10 + round);
        dispatch.round = combine.round = (uint64_t)round;
        if (ep_dispatch_issue(rank, &dispatch, &layers[round].dispatch) || issue(seat, 0, round) ||
            ep_combine_issue(rank, &combine, &layers[round].combine))
            return 1;
        if (round % 5 == 0)
            CHECK_OK(weft_comm_barrier(rank->comm, rank->stream));
    }
    return 0;
}

static int beside_ep(struct ranks_context *context)
{
    struct ep_pass *layers = tests_alloc(sizeof *layers * NUM_ROUNDS);
    struct seat *seat = tests_alloc(sizeof *seat);
    struct ep_rank *rank = &seat->rank;
    if (ep_rank_open(rank, context, 0, 2 * SEAT_ARENA_BYTES) ||
        ep_rank_enter(rank, context->argument) || seat_open(seat, 0) || ep_route(rank) ||
        issue_layers(seat, layers) || verify(seat) || ep_passes_verify(rank, layers, NUM_ROUNDS))
        return 1;
    const int failed = seat_leave(seat) || ep_rank_leave(rank) || ep_rank_close(rank);
    tests_free(layers);
    tests_free(seat);
    return failed;
}

TEST(coll_and_ep_on_one_stream)
{
    const struct ep_case spec = {.seed = 41,
                                 .num_ranks = NUM_RANKS,
                                 .max_tokens = 10,
                                 .num_topk = 2,
                                 .num_experts = 8,
                                 .tokens = EP_TOKENS_RAGGED,
                                 .num_blocks = 2,
                                 .num_warps = 2};
    struct ep_world *world = ep_world_create(&spec);
    run(beside_ep, world);
    ep_world_destroy(world);
}
