/* SPDX-License-Identifier: MIT */
/* Threads of a rank drive different objects of one communicator at the same time, as weft.h allows;
 * under the thread sanitizer this shows what they share without a lock. */
#include <pthread.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/ranks.h"

enum { NUM_SEATS = 3, NUM_ROUNDS = 100, MAX_COUNT = 20000 };

/* An object, and the thread that drives it. */
struct seat {
    struct ranks_context context; /* of its own, for what it finds wrong */
    weft_comm *comm;
    weft_coll *coll;
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
    weft_coll_args args = WEFT_INIT(weft_coll_args);
    args.send = seat->numbers;
    args.recv = seat->numbers;
    args.count = seat->count;
    args.dtype = WEFT_INT32;
    RANK_CHECK_OK(context, weft_coll_all_reduce(seat->coll, &args, seat->stream));
    RANK_CHECK_OK(context, weft_stream_synchronize(seat->stream));
    RANK_CHECK_OK(context, weft_comm_status(seat->comm, NULL));
    for (int64_t i = 0; i < seat->count; i++) {
        int32_t sum = 0;
        for (int32_t rank = 0; rank < context->num_ranks; rank++)
            sum += number_of(seat, rank, round, i);
        RANK_CHECK(context, seat->numbers[i] == sum,
                   "round %d of seat %d: element %d is %d, not %d", round, seat->idx, (int)i,
                   seat->numbers[i], sum);
    }
    return 0;
}

static void *drive(void *argument)
{
    struct seat *seat = argument;
    for (int round = 0; round < NUM_ROUNDS && !seat->has_failed; round++)
        seat->has_failed = reduce(seat, round);
    return NULL;
}

static int open_seat(struct seat *seat, struct ranks_context *context, weft_comm *comm, int32_t idx)
{
    static const int64_t counts[NUM_SEATS] = {7, 1000, MAX_COUNT};
    *seat = (struct seat){.context = *context, .comm = comm, .count = counts[idx], .idx = idx};
    void *numbers;
    RANK_CHECK_OK(context, weft_coll_create(comm, NULL, &seat->coll));
    RANK_CHECK_OK(context, weft_stream_create(comm, &seat->stream));
    if (idx % 2 == 0)
        RANK_CHECK_OK(context, weft_heap_alloc(comm, MAX_COUNT * sizeof(int32_t), &numbers));
    else
        RANK_CHECK_OK(context, weft_memory_alloc(comm, MAX_COUNT * sizeof(int32_t), &numbers));
    seat->numbers = numbers;
    return 0;
}

static int in_threads(struct ranks_context *context)
{
    weft_comm *comm;
    struct seat seats[NUM_SEATS];
    pthread_t threads[NUM_SEATS];
    RANK_CHECK_OK(context,
                  weft_comm_create(&context->id, context->rank, context->num_ranks, NULL, &comm));
    for (int32_t i = 0; i < NUM_SEATS; i++)
        if (open_seat(&seats[i], context, comm, i))
            return 1;
    for (int i = 0; i < NUM_SEATS; i++)
        RANK_CHECK(context, pthread_create(&threads[i], NULL, drive, &seats[i]) == 0, "seat %d", i);
    for (int i = 0; i < NUM_SEATS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < NUM_SEATS; i++) {
        RANK_CHECK(context, !seats[i].has_failed, "%s", seats[i].context.failure);
        RANK_CHECK_OK(context, weft_stream_destroy(seats[i].stream));
    }
    RANK_CHECK_OK(context, weft_comm_destroy(comm));
    return 0;
}

TEST(threads_drive_objects_of_one_communicator)
{
    if (tests_on_cuda()) /* the host writes and reads the numbers itself */
        skip();
    for (int32_t num_ranks = 2; num_ranks <= 3; num_ranks++)
        assert_int_equal(ranks_run(RANKS_PROCESSES, num_ranks, in_threads, NULL), 0);
}
