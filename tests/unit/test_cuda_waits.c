/* SPDX-License-Identifier: MIT */
/* How waits of the cuda machine end: its own code, with a clock and a memory that the test
 * plays. Each poll and each look at the clock takes time; what others do happens at a time of
 * the clock. */
#include <string.h>

#include "harness/cmocka.h"
#include "machine/machine.h"

enum { NUM_RANKS = 20, NUM_SLOTS = 8, POLL_NS = 5, TIMEOUT_NS = 1000000 };
/* A wait looks up from polling once in 1024 polls; in between it sees nothing but its word. */
enum { LOOK_NS = 1024 * POLL_NS };
static const uint64_t never = UINT64_MAX;

static struct {
    uint64_t now_ns;
    uint64_t comes_ns;  /* when the word has `value` */
    uint64_t value;     /* before that it is one less */
    uint64_t fails_ns;  /* when the communicator has failed */
    uint64_t leaves_ns; /* when rank 3 has left */
    int num_clocks;
    int num_failures;
    struct wp_failure failure;
} world;

static union {
    struct weft__cuda_board board;
    char bytes[sizeof(struct weft__cuda_board) + NUM_RANKS];
} pinned;
static uint64_t word;
static struct wp_access slots[NUM_SLOTS];
static const struct wp_wait_site site = {.phase = WP_PHASE_ACCESS, .rank = 3, .exchange = 512};

uint64_t wp_now_ns(const struct wp_warp *warp)
{
    (void)warp;
    world.num_clocks++;
    return world.now_ns;
}

uint64_t weft__cuda_load_acquire(const uint64_t *polled)
{
    assert_ptr_equal(polled, &word);
    world.now_ns += POLL_NS;
    if (world.now_ns > 100 * (uint64_t)TIMEOUT_NS)
        fail_msg("it polls long after its deadline");
    pinned.board.comm_has_failed = world.now_ns >= world.fails_ns;
    pinned.board.rank_is_gone[3] = world.now_ns >= world.leaves_ns;
    return world.value - (world.now_ns < world.comes_ns);
}

static const uint32_t *short_word(void)
{
    return (const uint32_t *)(const void *)&word;
}

uint32_t weft__cuda_load_acquire_u32(const uint32_t *polled)
{
    assert_ptr_equal(polled, short_word());
    return (uint32_t)weft__cuda_load_acquire(&word);
}

enum wp_status wp_fail(struct wp_warp *warp, const struct wp_failure *failure)
{
    (void)warp;
    world.num_failures++;
    world.failure = *failure;
    return WP_STATUS_FAILED;
}

static struct weft__cuda_launch launch_at(uint64_t comes_ns, uint64_t value)
{
    memset(&world, 0, sizeof world);
    memset(&pinned, 0, sizeof pinned);
    world.comes_ns = comes_ns;
    world.value = value;
    world.fails_ns = world.leaves_ns = never;
    return (struct weft__cuda_launch){
        .timeout_ns = TIMEOUT_NS,
        .board = &pinned.board,
        .work_queue = {.slots = slots, .num_taken = &word, .num_slots = NUM_SLOTS}};
}

static void assert_failed(enum wp_failure_kind kind, uint64_t not_before_ns)
{
    assert_int_equal(world.num_failures, 1);
    assert_int_equal(world.failure.kind, kind);
    assert_int_equal(world.failure.site.rank, site.rank);
    assert_int_equal(world.failure.site.phase, site.phase);
    assert_in_range(world.now_ns, not_before_ns, not_before_ns + 2 * LOOK_NS);
}

/* ---------------------------------------------------------------- a slot of the queue */

/* The number whose slot is free when one more has been taken. */
enum { NUMBER = 21, TAKEN = NUMBER - NUM_SLOTS + 1 };

static const struct wp_access *await_slot(const struct weft__cuda_launch *launch)
{
    struct wp_warp warp = {.launch = launch};
    return weft__cuda_await_work_slot(&warp, NUMBER, &site);
}

TEST(a_free_slot_needs_no_clock)
{
    const struct weft__cuda_launch launch = launch_at(0, TAKEN);
    assert_ptr_equal(await_slot(&launch), &slots[NUMBER % NUM_SLOTS]);
    assert_int_equal(world.now_ns, POLL_NS);
    assert_int_equal(world.num_clocks, 0);
    assert_int_equal(world.num_failures, 0);
}

TEST(a_slot_may_come_until_the_deadline)
{
    for (uint64_t comes_ns = 0; comes_ns < TIMEOUT_NS; comes_ns += 24989) {
        const struct weft__cuda_launch launch = launch_at(comes_ns, TAKEN);
        assert_ptr_equal(await_slot(&launch), &slots[NUMBER % NUM_SLOTS]);
        assert_in_range(world.now_ns, comes_ns, comes_ns + POLL_NS);
        assert_int_equal(world.num_failures, 0);
    }
}

/* The first look at the board starts the clock. */
TEST(a_queue_that_stays_full_ends_by_the_deadline)
{
    const struct weft__cuda_launch launch = launch_at(never, TAKEN);
    assert_null(await_slot(&launch));
    assert_failed(WP_FAILURE_TIMEOUT, TIMEOUT_NS);
    assert_int_equal(world.failure.expected, TAKEN);
    assert_int_equal(world.failure.seen, TAKEN - 1);
}

TEST(a_full_queue_ends_with_its_communicator)
{
    struct weft__cuda_launch launch = launch_at(never, TAKEN);
    world.fails_ns = TIMEOUT_NS / 2;
    assert_null(await_slot(&launch));
    assert_failed(WP_FAILURE_COMM, TIMEOUT_NS / 2);
    launch = launch_at(never, TAKEN);
    world.leaves_ns = TIMEOUT_NS / 3;
    assert_null(await_slot(&launch));
    assert_failed(WP_FAILURE_RANK_GONE, TIMEOUT_NS / 3);
}

/* ---------------------------------------------------------------- any word */

static enum wp_status await_word(const struct weft__cuda_launch *launch, struct wp_warp *warp,
                                 const struct wp_wait_site *at)
{
    *warp = (struct wp_warp){.launch = launch};
    return wp_wait(warp, &word, 7, at);
}

TEST(a_word_may_come_until_the_deadline)
{
    struct wp_warp warp;
    for (uint64_t comes_ns = 0; comes_ns < TIMEOUT_NS; comes_ns += 24989) {
        const struct weft__cuda_launch launch = launch_at(comes_ns, 7);
        assert_int_equal(await_word(&launch, &warp, &site), WP_STATUS_OK);
        assert_int_equal(warp.has_acquired, 1);
        assert_in_range(world.now_ns, comes_ns, comes_ns + POLL_NS);
    }
    const struct weft__cuda_launch launch = launch_at(never, 7);
    assert_int_equal(await_word(&launch, &warp, &site), WP_STATUS_FAILED);
    assert_int_equal(warp.has_acquired, 0);
    assert_failed(WP_FAILURE_TIMEOUT, TIMEOUT_NS);
    assert_int_equal(world.failure.expected, 7);
    assert_int_equal(world.failure.seen, 6);
}

/* A word of 32 bits, of this rank's own work. */
TEST(a_short_word_may_come_until_the_deadline)
{
    const struct wp_wait_site own = {
        .phase = WP_PHASE_EXPERT, .rank = 0, .exchange = 2, .sequence = 5};
    for (uint64_t comes_ns = 0; comes_ns < TIMEOUT_NS; comes_ns += 24989) {
        const struct weft__cuda_launch launch = launch_at(comes_ns, 7);
        struct wp_warp warp = {.launch = &launch};
        assert_int_equal(wp_wait_u32(&warp, short_word(), 7, &own), WP_STATUS_OK);
        assert_int_equal(warp.has_acquired, 1);
        assert_in_range(world.now_ns, comes_ns, comes_ns + POLL_NS);
    }
    const struct weft__cuda_launch launch = launch_at(never, 7);
    struct wp_warp warp = {.launch = &launch};
    assert_int_equal(wp_wait_u32(&warp, short_word(), 7, &own), WP_STATUS_FAILED);
    assert_int_equal(world.failure.kind, WP_FAILURE_TIMEOUT);
    assert_int_equal(world.failure.site.phase, WP_PHASE_EXPERT);
    assert_int_equal(world.failure.expected, 7);
    assert_int_equal(world.failure.seen, 6);
    assert_in_range(world.now_ns, TIMEOUT_NS, TIMEOUT_NS + 2 * LOOK_NS);
}

/* What a rank sent before it left stands: memory is polled once more after it is known to have
 * left. */
TEST(what_came_before_a_rank_left_counts)
{
    struct wp_warp warp;
    for (uint64_t comes_ns = 4 * LOOK_NS; comes_ns < 6 * LOOK_NS; comes_ns += 7 * POLL_NS) {
        const struct weft__cuda_launch launch = launch_at(comes_ns, 7);
        world.leaves_ns = comes_ns;
        assert_int_equal(await_word(&launch, &warp, &site), WP_STATUS_OK);
        assert_int_equal(world.num_failures, 0);
    }
}

/* Where absence is allowed nothing fails but the communicator; a deadline of the site's own
 * counts. */
TEST(a_wait_may_end_without_its_word)
{
    enum { SHORT_NS = TIMEOUT_NS, LONG_MS = 3 };
    struct wp_warp warp;
    struct wp_wait_site lenient = site;
    lenient.absent_after_ms = LONG_MS;
    struct weft__cuda_launch launch = launch_at(never, 7);
    assert_int_equal(await_word(&launch, &warp, &lenient), WP_STATUS_ABSENT);
    assert_in_range(world.now_ns, LONG_MS * SHORT_NS, LONG_MS * SHORT_NS + 2 * LOOK_NS);
    launch = launch_at(2 * TIMEOUT_NS, 7);
    assert_int_equal(await_word(&launch, &warp, &lenient), WP_STATUS_OK);
    launch = launch_at(never, 7);
    world.leaves_ns = TIMEOUT_NS / 3;
    assert_int_equal(await_word(&launch, &warp, &lenient), WP_STATUS_ABSENT);
    assert_in_range(world.now_ns, TIMEOUT_NS / 3, TIMEOUT_NS / 3 + 2 * LOOK_NS);
    assert_int_equal(world.num_failures, 0);
    launch = launch_at(never, 7);
    world.fails_ns = TIMEOUT_NS / 2;
    assert_int_equal(await_word(&launch, &warp, &lenient), WP_STATUS_FAILED);
    assert_failed(WP_FAILURE_COMM, TIMEOUT_NS / 2);
}

/* Who waits for nobody in particular is not told that somebody has left, and tells nobody. */
TEST(long_waits_are_published)
{
    struct wp_warp warp;
    struct wp_wait_site nobody = site;
    struct weft__cuda_launch launch = launch_at(never, 7);
    (void)await_word(&launch, &warp, &site);
    const struct weft__cuda_long_wait *own =
        &pinned.board.long_waits[site.rank % WEFT__CUDA_NUM_LONG_WAITS];
    assert_int_equal(weft__cuda_wait_rank(own->wait), site.rank);
    assert_int_equal(weft__cuda_wait_exchange(own->wait), site.exchange);
    assert_in_range(own->num_looks, TIMEOUT_NS / LOOK_NS, TIMEOUT_NS / LOOK_NS + 2);

    nobody.rank = WP_NO_RANK;
    launch = launch_at(never, 7);
    world.leaves_ns = 0;
    (void)await_word(&launch, &warp, &nobody);
    assert_int_equal(world.failure.kind, WP_FAILURE_TIMEOUT);
    for (int i = 0; i < WEFT__CUDA_NUM_LONG_WAITS; i++)
        assert_int_equal(pinned.board.long_waits[i].num_looks, 0);
}
