/* SPDX-License-Identifier: MIT */
/* The NICs of two ranks, whose packets their nets carry: all that comes from a peer is checked, and
 * failures are told, with the peer's name. */
#include <poll.h>
#include <stdlib.h>
#include <time.h>

#include "harness/cmocka.h"
#include "net/nic/adapter.h"
#include "net/nic/message.h"
#include "net/progress.h"
#include "net_pair.h"

enum { HEAP = 4096, TARGET = 1024 };

struct nics {
    struct pair pair;
    struct weft__nic_adapter *adapters[NUM_RANKS];
    _Alignas(64) unsigned char heaps[NUM_RANKS][HEAP];
    struct weft__nic_key keys[NUM_RANKS];
};

static struct nics nics;

static struct weft__nic_queue *queue_of(int32_t rank)
{
    return &weft__nic_adapter_port(nics.adapters[rank])->channels[1 - rank].queue;
}

static void open_nics(void)
{
    memset(&nics, 0, sizeof nics);
    open_pair(&nics.pair);
    for (int32_t rank = 0; rank < NUM_RANKS; rank++)
        connect_rank(&nics.pair, rank);
    for (int32_t rank = 0; rank < NUM_RANKS; rank++) {
        const struct weft__nic_adapter_config config = {.net = nics.pair.nets[rank],
                                                        .rank = rank,
                                                        .num_ranks = NUM_RANKS,
                                                        .heap = (char *)nics.heaps[rank],
                                                        .max_heap_bytes = HEAP};
        assert_ok(weft__nic_adapter_create(&config, &nics.adapters[rank]));
        assert_ok(weft__nic_adapter_add_step(nics.adapters[rank], 0, HEAP, &nics.keys[rank]));
    }
    for (int32_t rank = 0; rank < NUM_RANKS; rank++) {
        weft__nic_adapter_learn_key(nics.adapters[rank], 1 - rank, &nics.keys[1 - rank]);
        weft__nic_adapter_open_step(nics.adapters[rank]);
    }
    expect_to_meet(&nics.pair);
}

static void close_nics(void)
{
    close_pair(&nics.pair);
    for (int32_t rank = 0; rank < NUM_RANKS; rank++)
        weft__nic_adapter_destroy(nics.adapters[rank]);
}

/* Rank 0 writes 8 bytes of its heap to a place in that of rank 1. */
static void post_write(uint64_t target)
{
    struct weft__nic_queue *queue = queue_of(0);
    const struct weft__nic_request request = {.opcode = WEFT__NIC_WRITE,
                                              .completion = WEFT__NIC_ALWAYS,
                                              .qp = queue->qp,
                                              .index = queue->ready,
                                              .remote_key = nics.keys[1].key,
                                              .remote_address = nics.keys[1].address + target,
                                              .local_key = nics.keys[0].key,
                                              .local_address = nics.keys[0].address,
                                              .num_bytes = 8};
    (void)weft__nic_encode(&request, &queue->units[request.index]);
    const uint64_t end = queue->ready + 1;
    __atomic_store_n(&queue->ready, end, __ATOMIC_RELEASE);
    __atomic_store_n(&queue->record[WEFT__NIC_RECORD_SEND_WORD], weft__nic_record(end),
                     __ATOMIC_RELEASE);
    __atomic_store_n(queue->doorbell, weft__nic_doorbell(end, queue->qp), __ATOMIC_RELEASE);
}

static void step_rank(int32_t rank)
{
    (void)weft__net_progress(nics.pair.nets[rank]);
    (void)weft__nic_adapter_step(nics.adapters[rank]);
}

/* Until rank 0's NIC has nothing to do. */
static void settle(void)
{
    for (int ms = 0; ms < 10000 && !weft__nic_adapter_is_idle(nics.adapters[0]); ms++) {
        for (int32_t rank = 0; rank < NUM_RANKS; rank++)
            step_rank(rank);
        poll(NULL, 0, 1);
    }
    assert_true(weft__nic_adapter_is_idle(nics.adapters[0]));
}

static void expect_told(int32_t rank, int32_t peer, weft_result result, const char *text)
{
    struct weft__nic_failure failure;
    assert_true(weft__nic_adapter_next_failure(nics.adapters[rank], &failure));
    assert_int_equal(failure.peer, peer);
    assert_int_equal(failure.result, result);
    if (strstr(failure.message, text) == NULL)
        fail_msg("\"%s\" lacks \"%s\"", failure.message, text);
    assert_false(weft__nic_adapter_next_failure(nics.adapters[rank], &failure));
}

static void expect_nothing_told(int32_t rank)
{
    struct weft__nic_failure failure;
    assert_false(weft__nic_adapter_next_failure(nics.adapters[rank], &failure));
}

TEST(a_write_comes)
{
    open_nics();
    memset(nics.heaps[0], 7, 8);
    post_write(TARGET);
    assert_true(weft__nic_adapter_is_rung(nics.adapters[0]));
    settle();
    assert_false(weft__nic_adapter_is_rung(nics.adapters[0]));
    assert_memory_equal(nics.heaps[1] + TARGET, nics.heaps[0], 8);
    expect_nothing_told(0);
    expect_nothing_told(1);
    close_nics();
}

/* Both ranks say so: the target blames the initiator. */
TEST(a_write_out_of_the_heap_fails_both)
{
    open_nics();
    post_write(HEAP);
    settle();
    expect_told(0, -1, WEFT_ERROR_SYSTEM,
                "the NIC's queue to rank 1 has failed: remote memory that is not registered for "
                "it (0x13, vendor 0x");
    expect_told(1, 0, WEFT_ERROR_SYSTEM, "the model of the NIC: QP 0x100, unit 0: remote address");
    close_nics();
}

/* That the peer is gone harms those alone who must not lose what was for it. */
TEST(what_was_for_a_peer_that_is_gone_fails)
{
    for (uint64_t kept = 0; kept < 2; kept++) {
        open_nics();
        weft__net_fail_peer(nics.pair.nets[0], 1, "rank 1 is gone");
        weft__nic_adapter_port(nics.adapters[0])->channels[1].kept = kept;
        post_write(TARGET);
        settle();
        if (kept > 0)
            expect_told(0, 1, WEFT_ERROR_RANK_FAILED,
                        "rank 1 has left, or failed, before what it was sent was done");
        expect_nothing_told(0);
        close_nics();
    }
}

/* ---------------------------------------------------------------- a peer that is silent */

static int64_t used_ns(void)
{
    struct timespec used;
    assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used), 0);
    return used.tv_sec * INT64_C(1000000000) + used.tv_nsec;
}

/* Nobody moves rank 1. A flush of all waits for the NIC of rank 0, whose thread sleeps, also while
 * it ends. */
TEST(who_waits_for_a_silent_peer_sleeps)
{
    enum { IDLE_MS = 300, MANY_ROUNDS = 2000 };
    const struct wp_access flush = {.operation = WP_ACCESS_FLUSH, .rank = WEFT__NET_ALL_PEERS};
    struct weft__progress *progress;
    open_nics();
    const struct weft__progress_options options = {
        .net = nics.pair.nets[0], .num_ranks = NUM_RANKS, .num_slots = 16, .nic = nics.adapters[0]};
    assert_ok(weft__progress_start(&options, &progress));
    post_write(TARGET);
    assert_ok(weft__progress_post(progress, &flush, WEFT__POSTER_WAITS, NULL));
    poll(NULL, 0, IDLE_MS);
    const uint64_t num_rounds = weft__progress_num_rounds(progress);
    poll(NULL, 0, IDLE_MS);
    assert_true(weft__progress_num_rounds(progress) - num_rounds < MANY_ROUNDS);
    const int64_t begin_ns = used_ns();
    weft__progress_stop(progress);
    assert_true(used_ns() - begin_ns < INT64_C(100000000)); /* of a second */
    nics.pair.nets[0] = NULL;
    close_nics();
}

/* ---------------------------------------------------------------- hostile packets */

static struct weft__nic_message good_message(void)
{
    return (struct weft__nic_message){.kind = WEFT__NIC_REQUEST,
                                      .packet = {.ticket = {.qp = queue_of(0)->qp},
                                                 .opcode = WEFT__NIC_WRITE,
                                                 .target_qp = queue_of(1)->qp,
                                                 .remote_key = nics.keys[1].key,
                                                 .address = nics.keys[1].address,
                                                 .request_bytes = 8,
                                                 .num_bytes = 8}};
}

static void expect_blame(const struct weft__nic_message *message, size_t num_bytes)
{
    assert_true(weft__net_send_packet(nics.pair.nets[0], 1, message, num_bytes));
    for (int i = 0; i < 10; i++)
        (void)weft__net_progress(nics.pair.nets[0]);
    expect_failure(nics.pair.nets[1], 0, "it is no packet of a NIC");
}

#define BLAMED(...)                                                                                \
    do {                                                                                           \
        open_nics();                                                                               \
        struct weft__nic_message message = good_message();                                         \
        size_t num_bytes = weft__nic_message_bytes(&message);                                      \
        __VA_ARGS__;                                                                               \
        expect_blame(&message, num_bytes);                                                         \
        close_nics();                                                                              \
    } while (0)

TEST(what_is_no_packet_is_its_senders_failure)
{
    BLAMED(num_bytes--);
    BLAMED(num_bytes++);
    BLAMED(num_bytes = 1);
    BLAMED(num_bytes = sizeof message);
    BLAMED(message.kind = 2);
    BLAMED(message.packet.opcode = WEFT__NIC_DUMP; num_bytes -= 8);
    BLAMED(message.packet.target_qp ^= 1);
    BLAMED(message.packet.offset = 1);
    BLAMED(message.packet.offset = UINT32_MAX);
    BLAMED(message.packet.num_bytes = UINT32_MAX);
    BLAMED(message.packet.opcode = WEFT__NIC_READ; num_bytes -= 8;
           message.packet.request_bytes = message.packet.num_bytes = WEFT__NIC_PIECE_BYTES + 1);
    BLAMED(message.packet.opcode = WEFT__NIC_FETCH_ADD; num_bytes -= 8;
           message.packet.num_bytes = 4);
    BLAMED(message = (struct weft__nic_message){.kind = WEFT__NIC_ANSWER};
           message.answer.ticket.qp = queue_of(1)->qp ^ 1;
           num_bytes = weft__nic_message_bytes(&message));
}

/* An answer that brings more than was asked for: nothing is written. */
TEST(an_answer_of_another_size_is_a_bad_response)
{
    open_nics();
    post_write(TARGET);
    for (int i = 0; i < 10; i++)
        (void)weft__nic_adapter_step(nics.adapters[0]);
    const struct weft__nic_message answer = {
        .kind = WEFT__NIC_ANSWER,
        .answer = {.ticket = {.qp = queue_of(0)->qp}, .num_bytes = WEFT__NIC_PIECE_BYTES}};
    assert_true(
        weft__net_send_packet(nics.pair.nets[1], 0, &answer, weft__nic_message_bytes(&answer)));
    for (int ms = 0; ms < 10000 && !weft__nic_adapter_is_idle(nics.adapters[0]); ms++) {
        (void)weft__net_progress(nics.pair.nets[1]);
        step_rank(0);
        poll(NULL, 0, 1);
    }
    expect_told(0, -1, WEFT_ERROR_SYSTEM, "bad response (0x10");
    close_nics();
}
