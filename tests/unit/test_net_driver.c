/* SPDX-License-Identifier: MIT */
/* Who sends what a launch posts on the cpu machine: its own thread, or the progress thread when
 * there is much and cores are free. All of it comes, whoever does. */
#include <sched.h>

#include "comm/host/thread.h"
#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/ranks.h"
#include "machine/cpu/net_driver.h"
#include "net/attach.h"
#include "net/progress_internal.h"

enum { NUM_RANKS = 2, PUT_BYTES = 100 << 10, NUM_PUTS = 6, NUM_ROUNDS = 50, WAIT_MS = 20000 };

/* In the heap. */
struct area {
    unsigned char sent[PUT_BYTES], received[PUT_BYTES];
    uint64_t num_arrived;
};

/* The driver, and how it should be called. */
struct plan {
    enum weft__cores cores;
    enum { ALL_AT_ONCE, IN_ROUNDS, WITH_THE_NEXT } how;
    int32_t num_posted_for_this_thread; /* of the puts, the first ones */
};

static uint64_t num_puts(const struct plan *plan)
{
    return plan->how == ALL_AT_ONCE ? NUM_PUTS : NUM_ROUNDS;
}

static struct wp_access put_to(int32_t peer, uint64_t area_offset)
{
    return (struct wp_access){
        .operation = WP_ACCESS_PUT_SIGNAL,
        .loss = WP_ACCESS_MUST_NOT_BE_LOST,
        .rank = peer,
        .source = area_offset + offsetof(struct area, sent),
        .target = area_offset + offsetof(struct area, received),
        .num_bytes = PUT_BYTES,
        .word = area_offset + offsetof(struct area, num_arrived),
        .add = 1,
    };
}

/* Rank 0 puts, and looks after what it has posted only as long as it is told that this is its own
 * affair. */
static int put_all(struct ranks_context *context, weft_comm *comm, uint64_t area_offset)
{
    const struct plan *plan = context->argument;
    struct weft__net_driver driver = {.comm = comm, .cores = plan->cores};
    const struct wp_access put = put_to(1, area_offset);
    uint64_t number;
    for (int32_t i = 0; i < NUM_PUTS; i++) {
        const enum weft__posted_for expected = i < plan->num_posted_for_this_thread
                                                   ? WEFT__POSTED_FOR_THIS_THREAD
                                                   : WEFT__POSTED_FOR_ANOTHER;
        CHECK(weft__net_driver_post(&driver, &put, &number) == expected,
              "put %d is for the wrong thread", i);
        weft__net_driver_send(&driver);
        weft__net_driver_poll(&driver);
    }
    weft__net_driver_rest(&driver);
    return 0;
}

/* Whether the progress thread still rests for the sake of who has driven the net. */
static int is_driven(const weft_comm *comm)
{
    return atomic_load(&comm->network->progress->is_driven);
}

/* Within a millisecond the thread ends its rest by itself, so that one round might show nothing. */
static int hand_back_in_rounds(struct ranks_context *context, weft_comm *comm, uint64_t area_offset)
{
    const struct plan *plan = context->argument;
    const struct wp_access put = put_to(1, area_offset);
    uint64_t number;
    for (int32_t i = 0; i < NUM_ROUNDS; i++) {
        struct weft__net_driver driver = {.comm = comm, .cores = plan->cores};
        weft__net_driver_poll(&driver);
        weft__net_driver_rest(&driver);
        CHECK(!is_driven(comm), "round %d: the thread rests while this one does", i);
        driver.num_bytes = 2 * PUT_BYTES;
        weft__net_driver_poll(&driver);
        CHECK(weft__net_driver_post(&driver, &put, &number) == WEFT__POSTED_FOR_ANOTHER,
              "put %d is for the wrong thread", i);
        CHECK(!is_driven(comm), "round %d: the thread rests that must send", i);
    }
    return 0;
}

/* Until the thread rests for the sake of this one. */
static void drive_until_it_naps(const weft_comm *comm, const struct weft__net_driver *driver)
{
    const int64_t end_ns = weft__now_ns() + WAIT_MS * WEFT__NS_PER_MS;
    do {
        weft__net_driver_poll(driver);
        sched_yield();
    } while (atomic_load(&comm->network->progress->thread_state) != WEFT__THREAD_NAPS &&
             weft__now_ns() < end_ns);
}

/* 1 if what is posted is still there when the driver has sent. The thread naps on, so that it was
 * the driver that left it there. */
static int stays(weft_comm *comm, const struct plan *plan, const struct wp_access *put)
{
    const _Atomic uint64_t *num_taken = &comm->network->progress->own.queue->num_taken;
    struct weft__net_driver driver = {.comm = comm, .cores = plan->cores}; /* of a new launch */
    uint64_t number;
    drive_until_it_naps(comm, &driver);
    (void)weft__net_driver_post(&driver, put, &number);
    weft__net_driver_send(&driver);
    return atomic_load(num_taken) == number &&
           atomic_load(&comm->network->progress->thread_state) == WEFT__THREAD_NAPS;
}

/* What can wait stays where it is when the driver sends, unless the thread has just ended its rest,
 * and goes with what is posted behind it; of the last one, which nothing follows, the thread takes
 * care. On a busy machine the thread ends each rest while this one waits for a core: so signals
 * that nobody counts are sent until one has stayed. */
static int let_signals_wait(struct ranks_context *context, weft_comm *comm, uint64_t area_offset)
{
    const struct plan *plan = context->argument;
    const int64_t end_ns = weft__now_ns() + WAIT_MS * WEFT__NS_PER_MS;
    struct wp_access put = put_to(1, area_offset);
    int32_t num_stayed = 0;
    put.num_bytes = 0;
    put.start = WP_ACCESS_WITH_THE_NEXT;
    put.add = 0;
    while (num_stayed == 0 && weft__now_ns() < end_ns)
        num_stayed = stays(comm, plan, &put);
    CHECK(num_stayed > 0, "no signal has waited");
    put.add = 1;
    for (int32_t i = 0; i < NUM_ROUNDS; i++) {
        put.num_bytes = i % 2 == 0 ? PUT_BYTES : 0;
        put.start = i % 2 == 0 ? WP_ACCESS_AT_ONCE : WP_ACCESS_WITH_THE_NEXT;
        (void)stays(comm, plan, &put);
    }
    return 0;
}

static int await_all(struct ranks_context *context, struct area *area)
{
    const uint64_t expected = num_puts(context->argument);
    const int64_t end_ns = weft__now_ns() + WAIT_MS * WEFT__NS_PER_MS;
    uint64_t num_arrived;
    while ((num_arrived = __atomic_load_n(&area->num_arrived, __ATOMIC_ACQUIRE)) < expected &&
           weft__now_ns() < end_ns)
        sched_yield();
    CHECK(num_arrived == expected, "%d puts of %d came", (int)num_arrived, (int)expected);
    for (int32_t i = 0; i < PUT_BYTES; i++)
        CHECK(area->received[i] == (unsigned char)(i * 7), "byte %d is wrong", i);
    return 0;
}

static int run_rank(struct ranks_context *context)
{
    void *memory;
    weft_comm *const comm = ranks_comm(
        context, WEFT_ARGS(weft_comm_config, .machine = WEFT_MACHINE_CPU, .num_nodes = NUM_RANKS));
    CHECK_OK(weft_heap_alloc(comm, sizeof(struct area), &memory));
    struct area *area = memory;
    area->num_arrived = 0;
    for (int32_t i = 0; i < PUT_BYTES; i++)
        area->sent[i] = (unsigned char)(i * 7);
    CHECK_OK(weft_comm_host_barrier(comm));
    uint64_t area_offset;
    CHECK_OK(weft__heap_offset(comm->heap, memory, sizeof *area, "area", &area_offset));
    const struct plan *plan = context->argument;
    static int (*const put[])(struct ranks_context *, weft_comm *,
                              uint64_t) = {[ALL_AT_ONCE] = put_all,
                                           [IN_ROUNDS] = hand_back_in_rounds,
                                           [WITH_THE_NEXT] = let_signals_wait};
    if (context->rank != 0 ? await_all(context, area) : put[plan->how](context, comm, area_offset))
        return 1;
    CHECK_OK(weft_comm_host_barrier(comm));
    CHECK_OK(weft_heap_free(comm, memory));
    return 0;
}

static void run(struct plan plan)
{
    if (!tests_network_is_there("auto"))
        skip();
    assert_int_equal(ranks_run(RANKS_THREADS, NUM_RANKS, run_rank, &plan), 0);
}

/* This process may use all cores, or two of three ranks are bound elsewhere. */
TEST(ranks_that_are_bound_elsewhere_share_no_cores)
{
    enum { NUM_IDENTITIES = 3 };
    cpu_set_t cores;
    assert_int_equal(sched_getaffinity(0, sizeof cores, &cores), 0);
    const int num_cores = CPU_COUNT(&cores);
    struct weft__identity identities[NUM_IDENTITIES] = {
        {.host_key = 1}, {.host_key = 1}, {.host_key = 1}};
    const weft_comm comm = {.num_ranks = NUM_IDENTITIES, .identities = identities};
    assert_int_equal(weft__count_cores(&comm), num_cores >= 6   ? WEFT__TWO_CORES_FOR_EACH_RANK
                                               : num_cores >= 3 ? WEFT__CORE_FOR_EACH_RANK
                                                                : WEFT__FEWER_CORES_THAN_RANKS);
    identities[1].cores_key = identities[2].cores_key = 2;
    assert_int_equal(weft__count_cores(&comm),
                     num_cores >= 2 ? WEFT__TWO_CORES_FOR_EACH_RANK : WEFT__CORE_FOR_EACH_RANK);
    /* Of a container on this host. */
    identities[1] = identities[2] = (struct weft__identity){.host_key = 2};
    assert_true(weft__ranks_per_core(&comm) * num_cores == NUM_IDENTITIES);
}

TEST(this_thread_sends_where_cores_are_few)
{
    run((struct plan){WEFT__FEWER_CORES_THAN_RANKS, ALL_AT_ONCE, NUM_PUTS});
    run((struct plan){WEFT__CORE_FOR_EACH_RANK, ALL_AT_ONCE, NUM_PUTS});
}

TEST_CALL(much_is_left_to_a_thread_with_a_core,
          run((struct plan){WEFT__TWO_CORES_FOR_EACH_RANK, ALL_AT_ONCE, 2}))
TEST_CALL(who_stops_driving_hands_back,
          run((struct plan){WEFT__TWO_CORES_FOR_EACH_RANK, IN_ROUNDS, 0}))
TEST_CALL(what_can_wait_goes_with_the_next,
          run((struct plan){WEFT__CORE_FOR_EACH_RANK, WITH_THE_NEXT, 0}))
