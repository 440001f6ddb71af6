/* SPDX-License-Identifier: MIT */
/* Sends and receives: groups of two ranks which the others know nothing of, more than slots hold,
 * rows of many ranks; what is refused, what does not fit, and peers that do not come. Random groups
 * are among the cases of test_coll_shapes. */
#include <stdlib.h>
#include <string.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "oracle/coll_call.h"
#include "workload/collective.h"

enum { NUM_RANKS = 4, COUNT = 3000, TIMEOUT_MS = 1000 };

struct seat {
    struct ep_rank rank;
    weft_coll *coll;
    struct ep_array send, recv; /* [COUNT] of int32 */
};

/* With slots for less than a hundredth of the arrays. */
static int seat_open(struct seat *seat, struct ranks_context *context, uint32_t timeout_ms,
                     int32_t num_nodes)
{
    *seat = (struct seat){.coll = NULL};
    if (ep_rank_open_with(
            &seat->rank, context,
            WEFT_ARGS(weft_comm_config, .timeout_ms = timeout_ms, .num_nodes = num_nodes),
            1 << 20) ||
        ep_array_alloc(&seat->rank, &seat->send, EP_OWN, COUNT * 4, 0) ||
        ep_array_alloc(&seat->rank, &seat->recv, EP_OWN, COUNT * 4, 4))
        return 1;
    for (int32_t i = 0; i < COUNT; i++)
        ((int32_t *)seat->send.host)[i] = 1000000 * context->rank + i;
    CHECK_OK(weft_coll_create(seat->rank.comm,
                              WEFT_ARGS(weft_coll_config, .num_channels = 2, .num_staging_slots = 2,
                                        .staging_slot_bytes = 80),
                              &seat->coll));
    return ep_array_push(&seat->rank, &seat->send);
}

/* Also after a failure. */
static int seat_close(struct seat *seat)
{
    (void)weft_stream_synchronize(seat->rank.stream);
    if (ep_array_free(&seat->rank, &seat->send) || ep_array_free(&seat->rank, &seat->recv))
        return 1;
    CHECK_OK(weft_coll_destroy(seat->coll));
    return ep_rank_close(&seat->rank);
}

static weft_result send_to(const struct seat *seat, int32_t peer, int32_t begin, int64_t count)
{
    return weft_coll_send(seat->coll,
                          WEFT_ARGS(weft_coll_send_args,
                                    .send = (const int32_t *)seat->send.data + begin,
                                    .count = count, .dtype = WEFT_INT32, .peer = peer),
                          seat->rank.stream);
}

static weft_result recv_from(const struct seat *seat, int32_t peer, int32_t begin, int64_t count)
{
    return weft_coll_recv(seat->coll,
                          WEFT_ARGS(weft_coll_recv_args, .recv = (int32_t *)seat->recv.data + begin,
                                    .count = count, .dtype = WEFT_INT32, .peer = peer),
                          seat->rank.stream);
}

static weft_result wait_for(const struct seat *seat, weft_result issued)
{
    return issued != WEFT_OK ? issued : weft_stream_synchronize(seat->rank.stream);
}

/* What came from elements [first, first + count) of the peer to those from `begin` on. */
static int check_received(struct seat *seat, int32_t peer, int32_t first, int32_t begin,
                          int32_t count)
{
    const int32_t *got = (const int32_t *)seat->recv.host + begin;
    for (int32_t i = 0; i < count; i++)
        CHECK(got[i] == 1000000 * peer + first + i, "element %d from rank %d is %d", first + i,
              peer, got[i]);
    return 0;
}

/* ---------------------------------------------------------------- who takes part */

static weft_result sum_of_all(const struct seat *seat)
{
    return weft_coll_all_reduce(seat->coll,
                                WEFT_ARGS(weft_coll_args, .send = seat->send.data,
                                          .recv = seat->recv.data, .count = COUNT,
                                          .dtype = WEFT_INT32, .op = WEFT_SUM),
                                seat->rank.stream);
}

/* Both send before they receive, more than there are slots; all ranks' operations before and after
 * are none the wiser. */
static int check_two_alone(struct ranks_context *context, int32_t num_nodes)
{
    struct seat seat;
    const int32_t peer = 4 - context->rank; /* ranks 1 and 3 */
    if (seat_open(&seat, context, 0, num_nodes))
        return 1;
    for (int i = 0; i < 3; i++) {
        CHECK_OK(sum_of_all(&seat));
        if (context->rank % 2 == 0)
            continue;
        CHECK_OK(weft_coll_group_begin(seat.coll));
        CHECK_OK(send_to(&seat, peer, 0, COUNT - 10));
        CHECK_OK(send_to(&seat, peer, 7, 0));
        CHECK_OK(weft_coll_group_begin(seat.coll));
        CHECK_OK(send_to(&seat, peer, COUNT - 10, 10));
        CHECK_OK(weft_coll_group_end(seat.coll)); /* of the one within */
        CHECK_OK(recv_from(&seat, peer, 10, COUNT - 10));
        CHECK_OK(recv_from(&seat, peer, 0, 0));
        CHECK_OK(recv_from(&seat, peer, 0, 10));
        CHECK_OK(weft_coll_group_end(seat.coll));
    }
    CHECK_OK(weft_stream_synchronize(seat.rank.stream));
    if (context->rank % 2 == 1 &&
        (ep_array_pull(&seat.rank, &seat.recv) || check_received(&seat, peer, 0, 10, COUNT - 10) ||
         check_received(&seat, peer, COUNT - 10, 0, 10)))
        return 1;
    CHECK_OK(weft_comm_host_barrier(seat.rank.comm));
    return seat_close(&seat);
}

TEST_IN_BOTH_MODES(two_ranks_alone, NUM_RANKS)
{
    return check_two_alone(context, 1) || check_two_alone(context, 2) ||
           check_two_alone(context, 4);
}

/* Without groups: a pipeline, from rank to rank, in which the receiver does not take what it is
 * sent in the same groups. */
static int check_one_after_the_other(struct ranks_context *context, int32_t num_nodes)
{
    struct seat seat;
    const int32_t rank = context->rank;
    if (seat_open(&seat, context, 0, num_nodes))
        return 1;
    for (int32_t i = 0; i < 10; i += 2) {
        if (rank > 0) {
            CHECK_OK(recv_from(&seat, rank - 1, 100 * i, 100));
            CHECK_OK(recv_from(&seat, rank - 1, 100 * (i + 1), 100));
        }
        CHECK_OK(weft_coll_group_begin(seat.coll));
        if (rank < NUM_RANKS - 1) {
            CHECK_OK(send_to(&seat, rank + 1, 200 * i, 100));
            CHECK_OK(send_to(&seat, rank + 1, 200 * (i + 1), 100));
        }
        CHECK_OK(weft_coll_group_end(seat.coll));
    }
    CHECK_OK(weft_stream_synchronize(seat.rank.stream));
    if (ep_array_pull(&seat.rank, &seat.recv))
        return 1;
    for (int32_t i = 0; i < 10 && rank > 0; i++)
        if (check_received(&seat, rank - 1, 200 * i, 100 * i, 100))
            return 1;
    CHECK_OK(weft_comm_host_barrier(seat.rank.comm));
    return seat_close(&seat);
}

TEST_IN_BOTH_MODES(one_after_the_other, NUM_RANKS)
{
    return check_one_after_the_other(context, 1) || check_one_after_the_other(context, 2);
}

/* More than fit the arguments of a launch, three times without waiting. */
TEST_IN_BOTH_MODES(large_groups, NUM_RANKS)
{
    enum { NUM_TRANSFERS = 150 };
    struct seat seat;
    const int32_t rank = context->rank, next = (rank + 1) % NUM_RANKS;
    const int32_t last = (rank + NUM_RANKS - 1) % NUM_RANKS;
    if (seat_open(&seat, context, 0, 2))
        return 1;
    for (int32_t group = 0; group < 3; group++) {
        CHECK_OK(weft_coll_group_begin(seat.coll));
        for (int32_t i = 0; i < NUM_TRANSFERS; i++) {
            const int32_t begin = 5 * (NUM_TRANSFERS * group + i);
            CHECK_OK(recv_from(&seat, last, begin, i % 6));
            CHECK_OK(send_to(&seat, next, begin, i % 6));
        }
        CHECK_OK(weft_coll_group_end(seat.coll));
    }
    CHECK_OK(weft_stream_synchronize(seat.rank.stream));
    if (ep_array_pull(&seat.rank, &seat.recv))
        return 1;
    for (int32_t i = 0; i < 3 * NUM_TRANSFERS; i++)
        if (check_received(&seat, last, 5 * i, 5 * i, i % NUM_TRANSFERS % 6))
            return 1;
    CHECK_OK(weft_comm_host_barrier(seat.rank.comm));
    return seat_close(&seat);
}

/* ---------------------------------------------------------------- what is refused */

#define REFUSED(call, text) CHECK_ERROR(call, WEFT_ERROR_INVALID_ARGUMENT, text)

static int check_refused_transfers(struct ranks_context *context, struct seat *seat)
{
    weft_coll_send_args send = WEFT_INIT(weft_coll_send_args);
    send.send = seat->send.data;
    send.count = 1;
    send.dtype = WEFT_INT8;
    REFUSED(weft_coll_send(seat->coll, &send, seat->rank.stream), "dtype is WEFT_INT8");
    send.dtype = WEFT_INT32;
    send.send = NULL;
    REFUSED(weft_coll_send(seat->coll, &send, seat->rank.stream), "send is NULL");
    REFUSED(weft_coll_send(seat->coll, &send, NULL), "stream");
    REFUSED(weft_coll_send(seat->coll, NULL, seat->rank.stream), "args");
    REFUSED(weft_coll_recv(NULL, NULL, seat->rank.stream), "coll");
    REFUSED(send_to(seat, NUM_RANKS, 0, 1), "peer is 4, allowed are 0..3");
    REFUSED(recv_from(seat, -1, 0, 1), "peer is -1");
    REFUSED(recv_from(seat, 0, 0, -1), "count is -1");
    REFUSED(send_to(seat, context->rank, 0, 1), "no receive number 0");
    REFUSED(weft_coll_group_end(seat->coll), "no group that has begun");
    REFUSED(weft_coll_group_begin(NULL), "coll");
    return 0;
}

static int check_refused_groups(struct ranks_context *context, struct seat *seat)
{
    const int32_t rank = context->rank;
    weft_stream *other;
    CHECK_OK(weft_stream_create(seat->rank.comm, &other));
    CHECK_OK(weft_coll_group_begin(seat->coll));
    CHECK_OK(send_to(seat, rank, 0, 5));
    REFUSED(weft_coll_send(seat->coll,
                           WEFT_ARGS(weft_coll_send_args, .send = seat->send.data, .count = 1,
                                     .dtype = WEFT_INT32, .peer = 0),
                           other),
            "stream is another one");
    CHECK_OK(recv_from(seat, rank, 0, 5));
    REFUSED(weft_coll_group_end(seat->coll), "a call was refused: stream is another one");
    CHECK_OK(weft_stream_destroy(other));

    CHECK_OK(weft_coll_group_begin(seat->coll));
    CHECK_OK(send_to(seat, rank, 0, 5));
    CHECK_OK(recv_from(seat, rank, 0, 4));
    REFUSED(weft_coll_group_end(seat->coll), "20 bytes of WEFT_INT32, what it receives 16");

    CHECK_OK(weft_coll_group_begin(seat->coll));
    CHECK_OK(recv_from(seat, 0, 0, 5));
    CHECK_OK(recv_from(seat, 1, 4, 5));
    REFUSED(weft_coll_group_end(seat->coll), "overlap");
    return 0;
}

/* Nothing of it is done: what comes afterwards is right. */
TEST_ON_RANKS(refused, RANKS_THREADS, NUM_RANKS)
{
    struct seat seat;
    const int32_t rank = context->rank, next = (rank + 1) % NUM_RANKS;
    const int32_t last = (rank + NUM_RANKS - 1) % NUM_RANKS;
    if (seat_open(&seat, context, 0, 1) || check_refused_transfers(context, &seat) ||
        check_refused_groups(context, &seat))
        return 1;
    CHECK_OK(weft_coll_group_begin(seat.coll));
    CHECK_OK(weft_coll_group_end(seat.coll)); /* with nothing in it */
    CHECK_OK(weft_coll_group_begin(seat.coll));
    CHECK_OK(recv_from(&seat, last, 0, 500));
    CHECK_OK(recv_from(&seat, rank, 500, 20));
    CHECK_OK(send_to(&seat, rank, 9, 20));
    CHECK_OK(send_to(&seat, next, 1, 500));
    CHECK_OK(wait_for(&seat, weft_coll_group_end(seat.coll)));
    if (ep_array_pull(&seat.rank, &seat.recv) || check_received(&seat, last, 1, 0, 500) ||
        check_received(&seat, rank, 9, 500, 20))
        return 1;
    CHECK_OK(weft_comm_host_barrier(seat.rank.comm));
    return seat_close(&seat);
}

/* ---------------------------------------------------------------- what does not fit */

/* Rank 1 sends an element more than rank 0 receives, or of another type: the receiver names it, and
 * tells. */
TEST_ON_RANKS(mismatch, RANKS_PROCESSES, 2)
{
    for (int i = 0; i < 4; i++) {
        struct seat seat;
        const int differs_in_dtype = i % 2;
        if (seat_open(&seat, context, tests_deadline_ms(TIMEOUT_MS), 1 + i / 2))
            return 1;
        weft_coll_send_args send = WEFT_INIT(weft_coll_send_args);
        send.send = seat.send.data;
        send.count = differs_in_dtype ? 100 : 101;
        send.dtype = differs_in_dtype ? WEFT_FP32 : WEFT_INT32;
        const weft_result result =
            wait_for(&seat, context->rank == 1 ? weft_coll_send(seat.coll, &send, seat.rank.stream)
                                               : recv_from(&seat, 1, 0, 100));
        const char *text = differs_in_dtype ? "dtype: WEFT_INT32 on rank 0, WEFT_FP32 on rank 1"
                                            : "100 on rank 0, 101 on rank 1";
        CHECK(context->rank == 1 || result == WEFT_ERROR_MISMATCH, "%s", weft_last_error());
        if (result != WEFT_OK)
            CHECK_ERROR(result, WEFT_ERROR_MISMATCH, text);
        ranks_barrier(context);
        if (seat_close(&seat))
            return 1;
    }
    return 0;
}

/* Rank 1 sends an element more than rank 0 expects, of an all-to-all over nodes. */
TEST_ON_RANKS(rows_differ, RANKS_THREADS, 2)
{
    struct seat seat;
    const int64_t sent[2] = {context->rank == 1 ? 8 : 7, 7}, expected[2] = {7, 7};
    const int64_t offsets[2] = {0, 10};
    if (seat_open(&seat, context, tests_deadline_ms(TIMEOUT_MS), 2))
        return 1;
    const weft_result result = wait_for(
        &seat, weft_coll_all_to_all_v(seat.coll,
                                      WEFT_ARGS(weft_coll_all_to_all_v_args, .send = seat.send.data,
                                                .recv = seat.recv.data, .dtype = WEFT_INT32,
                                                .send_counts = sent, .send_offsets = offsets,
                                                .recv_counts = expected, .recv_offsets = offsets),
                                      seat.rank.stream));
    CHECK(context->rank == 1 || result == WEFT_ERROR_MISMATCH, "%s", weft_last_error());
    if (result != WEFT_OK)
        CHECK_ERROR(result, WEFT_ERROR_MISMATCH, "7 on rank 0, 8 on rank 1");
    ranks_barrier(context);
    return seat_close(&seat);
}

/* Rank 1 neither sends, nor receives what its slots do not hold. */
TEST_ON_RANKS(peer_does_not_come, RANKS_PROCESSES, 2)
{
    for (int i = 0; i < 3; i++) {
        struct seat seat;
        const int is_sent = i > 0;
        const int32_t num_nodes = i > 1 ? 2 : 1;
        int32_t failed_rank = -1;
        if (ranks_warm_up(context) ||
            seat_open(&seat, context, tests_deadline_ms(TIMEOUT_MS), num_nodes))
            return 1;
        if (context->rank == 0) {
            const weft_result result = wait_for(&seat, is_sent ? send_to(&seat, 1, 0, COUNT)
                                                               : recv_from(&seat, 1, 0, COUNT));
            CHECK_ERROR(result, WEFT_ERROR_TIMEOUT,
                        is_sent ? "rank 0 waited for rank 1 to receive"
                                : "rank 0 waited for rank 1 to send");
            CHECK(weft_comm_status(seat.rank.comm, &failed_rank) == WEFT_ERROR_TIMEOUT &&
                      failed_rank == 1,
                  "failed_rank is %d", failed_rank);
        }
        ranks_barrier(context);
        if (seat_close(&seat))
            return 1;
    }
    return 0;
}
