/* SPDX-License-Identifier: MIT */
/* The cpu machine under programs made for the test: syncs, waits that end and waits that fail. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "harness/cmocka.h"
#include "machine/host.h"

enum { NUM_ROUNDS = 20 };

/* A communicator of one rank, with a deadline that a failing test can sit out. */
static weft_comm *create_comm(uint32_t timeout_ms)
{
    weft_comm *comm;
    weft_unique_id id;
    assert_ok(weft_unique_id_create(&id));
    assert_ok(
        weft_comm_create(&id, 0, 1, WEFT_ARGS(weft_comm_config, .timeout_ms = timeout_ms), &comm));
    return comm;
}

static struct wp_failure last_failure;

static weft_result note_failure(weft_comm *comm, enum weft__call call,
                                const struct wp_failure *failure)
{
    (void)comm;
    (void)call;
    last_failure = *failure;
    return WEFT_ERROR_TIMEOUT;
}

struct test_args {
    int32_t *counters; /* [num_blocks][NUM_ROUNDS] */
    int32_t *errors;
    uint64_t *word;
};

static weft_result launch(weft_comm *comm, weft__program_fn *function, struct test_args args,
                          int32_t num_blocks, int32_t num_warps)
{
    weft_stream *stream;
    const struct weft__program program = {"test", function};
    const struct weft__launch request = {.program = &program,
                                         .args = &args,
                                         .args_bytes = sizeof args,
                                         .grid = {.num_blocks = num_blocks, .num_warps = num_warps},
                                         .comm = comm,
                                         .on_failure = note_failure};
    last_failure = (struct wp_failure){.kind = WP_FAILURE_NONE};
    assert_ok(weft_stream_create(comm, &stream));
    assert_ok(stream->machine->launch(stream, &request));
    const weft_result result = weft_stream_synchronize(stream);
    assert_ok(weft_stream_destroy(stream));
    return result;
}

/* After each sync, a warp must see that all warps of its block have counted. */
static enum wp_status count_rounds(struct wp_warp *warp, const void *untyped)
{
    const struct test_args *args = untyped;
    int32_t *counters = args->counters + (int64_t)wp_block_idx(warp) * NUM_ROUNDS;
    for (int round = 0; round < NUM_ROUNDS; round++) {
        counters[round]++;
        wp_block_sync(warp);
        *args->errors += counters[round] != wp_num_warps(warp);
    }
    return WP_STATUS_OK;
}

TEST(block_sync_waits_for_all_warps_of_the_block)
{
    static const int32_t grids[][2] = {{1, 1}, {1, 2}, {1, 32}, {3, 5}, {7, 1}, {16, 32}};
    weft_comm *comm = create_comm(1000);
    for (size_t i = 0; i < sizeof grids / sizeof *grids; i++) {
        int32_t errors = 0;
        int32_t *counters = calloc((size_t)grids[i][0] * NUM_ROUNDS, sizeof *counters);
        assert_non_null(counters);
        const struct test_args args = {.counters = counters, .errors = &errors};
        assert_ok(launch(comm, count_rounds, args, grids[i][0], grids[i][1]));
        assert_int_equal(errors, 0);
        for (int32_t j = 0; j < grids[i][0] * NUM_ROUNDS; j++)
            assert_int_equal(counters[j], grids[i][1]);
        free(counters);
    }
    assert_ok(weft_comm_destroy(comm));
}

static const struct wp_wait_site site_of_rank_0 = {WP_PHASE_START, 0, 1, 0, 0};

/* Block 0 waits for what the last block signals, so all must be able to take turns. */
static enum wp_status wait_for_last_block(struct wp_warp *warp, const void *untyped)
{
    const struct test_args *args = untyped;
    if (wp_block_idx(warp) == wp_num_blocks(warp) - 1)
        wp_signal(warp, 0, args->word, 1);
    return wp_wait(warp, args->word, 1, &site_of_rank_0);
}

TEST(warps_that_wait_let_others_run)
{
    void *word;
    weft_comm *comm = create_comm(1000);
    assert_ok(weft_heap_alloc(comm, sizeof(uint64_t), &word));
    *(uint64_t *)word = 0;
    const struct test_args args = {.word = word};
    assert_ok(launch(comm, wait_for_last_block, args, 8, 4));
    assert_ok(weft_comm_destroy(comm));
}

/* Warp 0 waits for what never comes; the others must return with it, not hang in the sync. */
static enum wp_status wait_for_nothing(struct wp_warp *warp, const void *untyped)
{
    const struct test_args *args = untyped;
    enum wp_status status = WP_STATUS_OK;
    if (wp_warp_idx(warp) == 0)
        status = wp_wait(warp, args->word, 7, &site_of_rank_0);
    wp_block_sync(warp);
    *args->errors += wp_warp_idx(warp) == 0 && status != WP_STATUS_FAILED;
    return status;
}

TEST(a_wait_that_passes_its_deadline_is_described)
{
    void *word;
    int32_t errors = 0;
    weft_comm *comm = create_comm(50);
    assert_ok(weft_heap_alloc(comm, sizeof(uint64_t), &word));
    *(uint64_t *)word = 5;
    const struct test_args args = {.word = word, .errors = &errors};
    assert_int_equal(launch(comm, wait_for_nothing, args, 3, 4), WEFT_ERROR_TIMEOUT);
    assert_int_equal(errors, 0);
    assert_int_equal(last_failure.kind, WP_FAILURE_TIMEOUT);
    assert_int_equal(last_failure.expected, 7);
    assert_int_equal(last_failure.seen, 5);
    assert_int_equal(last_failure.site.rank, 0);
    assert_ok(weft_comm_destroy(comm));
}

/* A sync that only one warp calls is a bug of the program; the launch must end all the same. */
static enum wp_status sync_alone(struct wp_warp *warp, const void *untyped)
{
    (void)untyped;
    if (wp_warp_idx(warp) == 0)
        wp_block_sync(warp);
    return WP_STATUS_OK;
}

TEST(a_sync_that_some_warps_skip_ends_at_the_deadline)
{
    weft_comm *comm = create_comm(50);
    const struct test_args args = {0};
    assert_int_equal(launch(comm, sync_alone, args, 1, 2), WEFT_ERROR_TIMEOUT);
    assert_int_equal(last_failure.kind, WP_FAILURE_BLOCK_SYNC);
    assert_ok(weft_comm_destroy(comm));
}

/* ---------------------------------------------------------------- a rank that leaves */

/* A page that nobody can read at first. The launch looks for its word, then at the states of ranks:
 * its first look at them faults, and just then, between the two, the word comes and the rank
 * leaves. */
static struct {
    _Atomic uint8_t *states;
    size_t bytes;
    uint64_t *word;
} page;

static void signal_and_leave(int signal)
{
    (void)signal;
    (void)mprotect(page.states, page.bytes, PROT_READ | PROT_WRITE);
    __atomic_store_n(page.word, 1, __ATOMIC_RELEASE);
    atomic_store(&page.states[0], WEFT__RANK_LEFT);
}

static enum wp_status wait_for_signal(struct wp_warp *warp, const void *untyped)
{
    const struct test_args *args = untyped;
    sigset_t faults; /* threads of the library block all signals */
    sigemptyset(&faults);
    sigaddset(&faults, SIGSEGV);
    *args->errors += pthread_sigmask(SIG_UNBLOCK, &faults, NULL) != 0;
    const enum wp_status status = wp_wait(warp, args->word, 1, &site_of_rank_0);
    *args->errors += status != WP_STATUS_OK;
    return status;
}

TEST(what_a_rank_signalled_before_it_left_stands)
{
    int32_t errors = 0;
    uint64_t word = 0;
    struct sigaction before;
    const struct sigaction action = {.sa_handler = signal_and_leave};
    weft_comm *comm = create_comm(10000);
    _Atomic uint8_t *states = comm->status.rank_states;
    page.bytes = (size_t)sysconf(_SC_PAGESIZE);
    page.states = mmap(NULL, page.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(page.states, MAP_FAILED);
    page.word = &word;
    assert_int_equal(sigaction(SIGSEGV, &action, &before), 0);
    comm->status.rank_states = page.states;
    const struct test_args args = {.word = &word, .errors = &errors};
    assert_ok(launch(comm, wait_for_signal, args, 1, 1));
    assert_int_equal(errors, 0);
    assert_int_equal(word, 1); /* it did look at the states */
    comm->status.rank_states = states;
    assert_int_equal(sigaction(SIGSEGV, &before, NULL), 0);
    assert_int_equal(munmap(page.states, page.bytes), 0);
    assert_ok(weft_comm_destroy(comm));
}
