/* SPDX-License-Identifier: MIT */
/* RDMA that programs start, end to end but for the silicon: ranks make queues by DEVX through an
 * unmodified libmlx5, post by weft's protocol, and the model of the NIC moves the data. Skipped
 * where the library's headers are not installed. */
#include "harness/cmocka.h"

#ifdef WEFT_TEST_MLX5
#include "nic_host.h"
#include "workload/rng.h"

/* Offsets in each rank's heap. Slots that a peer may write are [peer][slot]. */
enum {
    NUM_SLOTS = 16, /* of a queue's accesses; fewer are under way */
    MAX_UNDER_WAY = 12,
    SLOT_BYTES = 512,
    SIDE_BYTES = NUM_SLOTS * SLOT_BYTES,
    TARGETS = 0,
    SOURCES = TARGETS + NIC_HOST_MAX_RANKS * SIDE_BYTES,
    FETCHED = SOURCES + NIC_HOST_MAX_RANKS * SIDE_BYTES, /* by gets and fetch-adds */
    LIBRARY = FETCHED + NIC_HOST_MAX_RANKS * SIDE_BYTES, /* nobody writes it */
    COUNTS = LIBRARY + 4096,                             /* [peer]: of its signals */
    SUMS = COUNTS + NIC_HOST_MAX_RANKS * 8,              /* [peer]: of its fetch-adds */
    END = SUMS + NIC_HOST_MAX_RANKS * 8
};
_Static_assert((int)END <= (int)NIC_HOST_HEAP_BYTES, "the heap is large enough");

struct sent {
    struct wp_access access;
    uint64_t number, index;    /* the number makes its bytes */
    uint64_t num_signals, sum; /* with it, and before it */
};

/* From a rank to a peer. */
struct side {
    struct sent sent[NUM_SLOTS];
    uint64_t num_posted, num_done, num_signals, sum;
};

static struct {
    struct nic_host host;
    struct side sides[NIC_HOST_MAX_RANKS][NIC_HOST_MAX_RANKS];
    struct rng rng;
} job; /* large */

static uint8_t byte_of(uint64_t number, uint64_t at)
{
    return (uint8_t)rng_hash(number * SLOT_BYTES + at);
}

static uint64_t word_at(int rank, uint64_t offset)
{
    uint64_t word;
    memcpy(&word, nic_host_heap(&job.host, rank) + offset, sizeof word);
    return word;
}

/* ---------------------------------------------------------------- posting */

static struct wp_access draw(int rank, int peer, uint64_t number)
{
    static const enum wp_access_operation operations[] = {
        WP_ACCESS_PUT,       WP_ACCESS_PUT_SIGNAL, WP_ACCESS_PUT_SIGNAL, WP_ACCESS_GET,
        WP_ACCESS_FETCH_ADD, WP_ACCESS_FLUSH,      WP_ACCESS_SIGNAL};
    enum { NUM_OPERATIONS = sizeof operations / sizeof *operations };
    const uint64_t slot = number % NUM_SLOTS * SLOT_BYTES;
    struct wp_access access = {.operation = operations[rng_below(&job.rng, NUM_OPERATIONS)],
                               .rank = peer,
                               .source = SOURCES + (uint64_t)peer * SIDE_BYTES + slot,
                               .target = TARGETS + (uint64_t)rank * SIDE_BYTES + slot,
                               .num_bytes = 1 + rng_below(&job.rng, SLOT_BYTES),
                               .word = COUNTS + (uint64_t)rank * 8,
                               .add = 1};
    if (access.operation == WP_ACCESS_GET || access.operation == WP_ACCESS_FETCH_ADD)
        access.target = FETCHED + (uint64_t)peer * SIDE_BYTES + slot;
    if (access.operation == WP_ACCESS_GET)
        access.source = LIBRARY + slot % 1024;
    if (access.operation == WP_ACCESS_FETCH_ADD) {
        access.word = SUMS + (uint64_t)rank * 8;
        access.add = rng_hash(number);
    }
    return access;
}

static void post(int rank, int peer)
{
    struct side *side = &job.sides[rank][peer];
    const uint64_t number = side->num_posted++;
    struct sent *sent = &side->sent[number % NUM_SLOTS];
    sent->number = number;
    sent->access = draw(rank, peer, number);
    char *source = nic_host_heap(&job.host, rank) + sent->access.source;
    const int has_bytes =
        sent->access.operation == WP_ACCESS_PUT || sent->access.operation == WP_ACCESS_PUT_SIGNAL;
    for (uint64_t i = 0; has_bytes && i < sent->access.num_bytes; i++)
        source[i] = (char)byte_of(number, i);
    side->num_signals += sent->access.operation == WP_ACCESS_PUT_SIGNAL ||
                         sent->access.operation == WP_ACCESS_SIGNAL;
    sent->num_signals = side->num_signals;
    sent->sum = side->sum;
    if (sent->access.operation == WP_ACCESS_FETCH_ADD)
        side->sum += sent->access.add;
    assert_int_equal(nic_host_post(&job.host, rank, &sent->access, &sent->index), WP_STATUS_OK);
}

/* ---------------------------------------------------------------- what must hold */

static void check_bytes(int rank, uint64_t offset, const struct sent *sent)
{
    const uint8_t *bytes = (const uint8_t *)nic_host_heap(&job.host, rank) + offset;
    for (uint64_t i = 0; i < sent->access.num_bytes; i++)
        if (bytes[i] != byte_of(sent->number, i))
            fail_msg("access %d: byte %d is wrong", (int)sent->number, (int)i);
}

/* All that a signal counts has come. */
static void check(int rank, int peer, const struct sent *sent)
{
    const struct wp_access *access = &sent->access;
    const uint64_t num_seen = word_at(peer, COUNTS + (uint64_t)rank * 8);
    assert_true(num_seen >= sent->num_signals);
    assert_true(num_seen <= job.sides[rank][peer].num_signals);
    switch (access->operation) {
    case WP_ACCESS_PUT:
    case WP_ACCESS_PUT_SIGNAL:
        check_bytes(peer, access->target, sent);
        break;
    case WP_ACCESS_GET:
        assert_memory_equal(nic_host_heap(&job.host, rank) + access->target,
                            nic_host_heap(&job.host, peer) + access->source, access->num_bytes);
        break;
    case WP_ACCESS_FETCH_ADD:
        assert_true(word_at(rank, access->target) == sent->sum);
        break;
    default:
        break;
    }
}

static void finish_one(int rank, int peer)
{
    struct side *side = &job.sides[rank][peer];
    const struct sent *sent = &side->sent[side->num_done++ % NUM_SLOTS];
    assert_int_equal(nic_host_await(&job.host, rank, peer, sent->index), WP_STATUS_OK);
    check(rank, peer, sent);
}

static void check_end(void)
{
    for (int rank = 0; rank < job.host.num_ranks; rank++)
        for (int peer = 0; peer < job.host.num_ranks; peer++) {
            struct side *side = &job.sides[rank][peer];
            while (side->num_done < side->num_posted)
                finish_one(rank, peer);
            assert_true(word_at(peer, COUNTS + (uint64_t)rank * 8) == side->num_signals);
            assert_true(word_at(peer, SUMS + (uint64_t)rank * 8) == side->sum);
            if (peer != rank)
                assert_ok(weft__nic_qp_check(&job.host.ranks[rank].qps[peer]));
        }
}

/* ---------------------------------------------------------------- tests */

struct run {
    int num_ranks;
    enum nic_host_memory memory;
    uint32_t link;
    int num_accesses;
    int kernel_is_old;
};

static void run(const struct run *run)
{
    const int num_ranks = run->num_ranks;
    const struct weft__verbs *verbs;
    nic_kernel_reset();
    nic_kernel_world.link = run->link;
    nic_kernel_world.is_old = run->kernel_is_old;
    memset(&job, 0, sizeof job);
    assert_ok(weft__verbs_load(&verbs));
    assert_ok(nic_host_try(&job.host, num_ranks, run->memory, verbs));
    for (int rank = 0; rank < num_ranks; rank++)
        for (int i = 0; i < COUNTS - LIBRARY; i++)
            nic_host_heap(&job.host, rank)[LIBRARY + i] = (char)rng_hash((uint64_t)i * 7 + 1);
    for (int i = 0; i < run->num_accesses; i++) {
        const int rank = (int)rng_below(&job.rng, (uint32_t)num_ranks);
        const int peer = (rank + 1 + (int)rng_below(&job.rng, (uint32_t)num_ranks - 1)) % num_ranks;
        const struct side *side = &job.sides[rank][peer];
        const uint64_t num_under_way = side->num_posted - side->num_done;
        if (num_under_way == MAX_UNDER_WAY || (num_under_way > 0 && rng_below(&job.rng, 3) == 0))
            finish_one(rank, peer);
        post(rank, peer);
        for (uint32_t steps = rng_below(&job.rng, 8); steps > 0; steps--)
            (void)nic_hardware_step();
    }
    check_end();
    nic_host_close(&job.host);
    assert_string_equal(nic_hardware_complaint(), "");
}

/* More units than 16 bits count go through each queue. */
TEST_CALL(two_ranks_by_infiniband,
          run(&(struct run){2, NIC_HOST_OF_HOST, WEFT__IBV_INFINIBAND, 120000, 0}))
TEST_CALL(three_ranks_by_ethernet,
          run(&(struct run){3, NIC_HOST_OF_HOST, WEFT__IBV_ETHERNET, 20000, 0}))
TEST_CALL(memory_may_be_a_dmabuf,
          run(&(struct run){3, NIC_HOST_OF_DMABUF, WEFT__IBV_INFINIBAND, 20000, 0}))
TEST_CALL(an_older_kernel_will_do,
          run(&(struct run){2, NIC_HOST_OF_HOST, WEFT__IBV_INFINIBAND, 1000, 1}))

static int start_kernel(void **state)
{
    (void)state;
    nic_kernel_start(NIC_HOST_MAX_RANKS);
    return 0;
}

static int stop_kernel(void **state)
{
    (void)state;
    nic_kernel_stop();
    return 0;
}

int main(void)
{
    return tests_run(start_kernel, stop_kernel);
}
#else
int main(void)
{
    enum { SKIPPED = 77 };
    return SKIPPED;
}
#endif
