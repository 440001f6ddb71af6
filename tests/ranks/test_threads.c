/* SPDX-License-Identifier: MIT */
/* Threads of a rank drive different objects of one communicator at the same time, as weft.h allows;
 * under the thread sanitizer this shows what they share without a lock. */
#include <pthread.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/ranks.h"

enum { NUM_COLLS = 3, NUM_SEATS = NUM_COLLS + 1, NUM_ROUNDS = 100, MAX_COUNT = 20000 };
/* Of the seat that has a weft_ep in place of a weft_coll: where its arrays are in its numbers. */
enum { NUM_TOKENS = 5, HIDDEN = 8, IDS = 0, TOKENS = 1000, ROWS = 2000, SUMS = 3000 };

/* An object, and the thread that drives it. */
struct seat {
    struct ranks_context context; /* of its own, for what it finds wrong */
    weft_comm *comm;
    weft_coll *coll;
    weft_ep_handle *handle;
    weft_stream *stream;
    int32_t *numbers; /* [count] */
    int64_t count;    /* few go in packets, many directly or by way of the heap */
    int32_t idx;
    int32_t has_failed;
};

static int32_t number_of(const struct seat *seat, int32_t rank, int round, int64_t i)
{
    return (rank + 1) * (seat->idx + 1) * 1000 + round + (int32_t)i;
}

static int reduce(struct seat *seat, int round)
{
    struct ranks_context *context = &seat->context;
    for (int64_t i = 0; i < seat->count; i++)
        seat->numbers[i] = number_of(seat, context->rank, round, i);
    CHECK_OK(
        weft_coll_all_reduce(seat->coll,
                             WEFT_ARGS(weft_coll_args, .send = seat->numbers, .recv = seat->numbers,
                                       .count = seat->count, .dtype = WEFT_INT32),
                             seat->stream));
    CHECK_OK(weft_stream_synchronize(seat->stream));
    CHECK_OK(weft_comm_status(seat->comm, NULL));
    for (int64_t i = 0; i < seat->count; i++) {
        int32_t sum = 0;
        for (int32_t rank = 0; rank < context->num_ranks; rank++)
            sum += number_of(seat, rank, round, i);
        CHECK(seat->numbers[i] == sum, "round %d of seat %d: element %d is %d, not %d", round,
              seat->idx, (int)i, seat->numbers[i], sum);
    }
    return 0;
}

/* Each token to one rank, and back. */
static int issue_exchange(struct seat *seat)
{
    weft_ep_counts counts = WEFT_INIT(weft_ep_counts);
    const weft_plane plane = {.size = sizeof plane,
                              .src = seat->numbers + TOKENS,
                              .dst = seat->numbers + ROWS,
                              .row_bytes = HIDDEN * sizeof(float)};
    CHECK_OK(weft_ep_layout(seat->handle,
                            WEFT_ARGS(weft_ep_layout_args, .num_tokens = NUM_TOKENS,
                                      .index_type = WEFT_INT32, .topk_idx = seat->numbers + IDS),
                            seat->stream));
    CHECK_OK(weft_ep_notify(seat->handle, seat->stream));
    CHECK_OK(weft_ep_wait_counts(seat->handle, &counts));
    CHECK_OK(weft_ep_dispatch(seat->handle,
                              WEFT_ARGS(weft_ep_dispatch_args, .planes = &plane, .num_planes = 1,
                                        .capacity = counts.num_recv_tokens),
                              seat->stream));
    CHECK_OK(weft_ep_combine(seat->handle,
                             WEFT_ARGS(weft_ep_combine_args, .x = seat->numbers + ROWS,
                                       .out = seat->numbers + SUMS, .hidden = HIDDEN,
                                       .dtype = WEFT_FP32, .capacity = counts.num_recv_tokens),
                             seat->stream));
    CHECK_OK(weft_stream_synchronize(seat->stream));
    return 0;
}

static int exchange(struct seat *seat, int round)
{
    struct ranks_context *context = &seat->context;
    float *tokens = (float *)seat->numbers + TOKENS;
    const float *sums = (const float *)seat->numbers + SUMS;
    for (int32_t token = 0; token < NUM_TOKENS; token++)
        seat->numbers[IDS + token] = (context->rank + token + round) % context->num_ranks;
    for (int32_t i = 0; i < NUM_TOKENS * HIDDEN; i++)
        tokens[i] = (float)number_of(seat, context->rank, round, i);
    if (issue_exchange(seat))
        return 1;
    for (int32_t i = 0; i < NUM_TOKENS * HIDDEN; i++)
        CHECK(sums[i] == tokens[i], "round %d: element %d is %g, not %g", round, i, (double)sums[i],
              (double)tokens[i]);
    return 0;
}

static void *drive(void *argument)
{
    struct seat *seat = argument;
    ranks_self = &seat->context;
    for (int round = 0; round < NUM_ROUNDS && !seat->has_failed; round++)
        seat->has_failed = seat->coll != NULL ? reduce(seat, round) : exchange(seat, round);
    return NULL;
}

static int create_object(struct seat *seat, struct ranks_context *context)
{
    weft_ep *ep;
    if (seat->idx < NUM_COLLS) {
        CHECK_OK(ranks_coll_create(seat->comm, &seat->coll));
        return 0;
    }
    CHECK_OK(weft_ep_create(seat->comm,
                            WEFT_ARGS(weft_ep_config, .num_experts = context->num_ranks), &ep));
    CHECK_OK(weft_ep_handle_create(
        ep, WEFT_ARGS(weft_ep_handle_config, .max_tokens = NUM_TOKENS, .num_topk = 1),
        &seat->handle));
    return 0;
}

static int open_seat(struct seat *seat, struct ranks_context *context, weft_comm *comm, int32_t idx)
{
    static const int64_t counts[NUM_SEATS] = {7, 1000, MAX_COUNT, 0};
    *seat = (struct seat){.context = *context, .comm = comm, .count = counts[idx], .idx = idx};
    void *numbers;
    if (create_object(seat, context))
        return 1;
    CHECK_OK(weft_stream_create(comm, &seat->stream));
    if (idx != 1)
        CHECK_OK(weft_heap_alloc(comm, MAX_COUNT * sizeof(int32_t), &numbers));
    else
        CHECK_OK(weft_memory_alloc(comm, MAX_COUNT * sizeof(int32_t), &numbers));
    seat->numbers = numbers;
    return 0;
}

static int in_threads(struct ranks_context *context)
{
    struct seat seats[NUM_SEATS];
    pthread_t threads[NUM_SEATS];
    weft_comm *const comm = ranks_comm(context, NULL);
    for (int32_t i = 0; i < NUM_SEATS; i++)
        if (open_seat(&seats[i], context, comm, i))
            return 1;
    for (int i = 0; i < NUM_SEATS; i++)
        CHECK(pthread_create(&threads[i], NULL, drive, &seats[i]) == 0, "seat %d", i);
    for (int i = 0; i < NUM_SEATS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < NUM_SEATS; i++) {
        CHECK(!seats[i].has_failed, "%s", seats[i].context.failure);
        CHECK_OK(weft_stream_destroy(seats[i].stream));
    }
    return 0;
}

TEST(threads_drive_objects_of_one_communicator)
{
    if (tests_on_cuda()) /* the host writes and reads the numbers itself */
        skip();
    for (int32_t num_ranks = 2; num_ranks <= 3; num_ranks++)
        assert_int_equal(ranks_run(RANKS_PROCESSES, num_ranks, in_threads, NULL), 0);
}
