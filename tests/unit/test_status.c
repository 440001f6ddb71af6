/* SPDX-License-Identifier: MIT */
/* Errors, config structs, the status of a communicator, and the doorbell that it rings. */
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/failure/status.h"
#include "comm/host/error.h"
#include "comm/host/thread.h"
#include "harness/cmocka.h"

static const int64_t long_ns = 60 * INT64_C(1000000000);

struct table_tennis {
    struct weft__doorbell bells[2];
    _Atomic uint32_t turn; /* of player turn % 2 */
};

/* No ring may be lost: each player sleeps until the other has played. */
static void play(struct table_tennis *table, uint32_t player, uint32_t num_turns)
{
    for (uint32_t turn = player; turn < num_turns; turn += 2) {
        while (atomic_load_explicit(&table->turn, memory_order_acquire) != turn) {
            uint32_t prepared = weft__doorbell_prepare(&table->bells[player], WEFT__ANY_WORD);
            if (atomic_load_explicit(&table->turn, memory_order_acquire) == turn)
                weft__doorbell_cancel(&table->bells[player]);
            else
                weft__doorbell_sleep(&table->bells[player], prepared, long_ns);
        }
        atomic_store_explicit(&table->turn, turn + 1, memory_order_release);
        weft__doorbell_ring(&table->bells[1 - player], WEFT__ANY_WORD);
    }
}

/* It forks, and therefore comes first, while there are no threads. */
TEST(rings_reach_other_processes)
{
    enum { NUM_TURNS = 20000 };
    struct table_tennis *table =
        mmap(NULL, sizeof(*table), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(table, MAP_FAILED);
    pid_t other = fork();
    assert_true(other >= 0);
    if (other == 0) {
        alarm(60);
        play(table, 1, NUM_TURNS);
        _exit(0);
    }
    int status;
    alarm(60);
    play(table, 0, NUM_TURNS);
    waitpid(other, &status, 0);
    alarm(0);
    assert_int_equal(status, 0);
    assert_int_equal(atomic_load(&table->turn), NUM_TURNS);
    munmap(table, sizeof(*table));
}

TEST(messages_may_quote_the_last_message)
{
    assert_int_equal(weft__error(WEFT_ERROR_TIMEOUT, "inner %d", 5), WEFT_ERROR_TIMEOUT);
    assert_int_equal(weft__error(WEFT_ERROR_SYSTEM, "outer (%s)", weft__last_error()),
                     WEFT_ERROR_SYSTEM);
    assert_string_equal(weft__last_error(), "outer (inner 5)");
    char huge[5000];
    memset(huge, 'x', sizeof(huge));
    huge[sizeof(huge) - 1] = '\0';
    weft__error(WEFT_ERROR_SYSTEM, "%s", huge);
    assert_in_range(strlen(weft__last_error()), 500, 2000);
}

TEST(the_first_failure_stands)
{
    struct weft__status status;
    assert_ok(weft__status_init(&status, 4));
    assert_ok(weft__status_check(&status));
    assert_int_equal(weft__status_fail(&status, WEFT_ERROR_RANK_FAILED, 2, "rank %d died", 2),
                     WEFT_ERROR_RANK_FAILED);
    assert_int_equal(weft__status_fail(&status, WEFT_ERROR_TIMEOUT, 3, "too late"),
                     WEFT_ERROR_RANK_FAILED);
    assert_int_equal(weft__status_check(&status), WEFT_ERROR_RANK_FAILED);
    assert_string_equal(weft__last_error(), "rank 2 died");
    assert_int_equal(status.failed_rank, 2);
    weft__status_set_rank(&status, 1, WEFT__RANK_LEFT);
    assert_int_equal(atomic_load(&status.rank_states[1]), WEFT__RANK_LEFT);
    assert_int_equal(atomic_load(&status.rank_states[2]), WEFT__RANK_ALIVE);
    weft__status_destroy(&status);
}

struct sleeper {
    struct weft__doorbell *bell;
    struct weft__status *status;
};

/* Sleeps as the waits of a machine do; the deadline is far beyond any test's patience. */
static void *sleep_until_failure(void *argument)
{
    struct sleeper *sleeper = argument;
    while (atomic_load(&sleeper->status->result) == WEFT_OK) {
        uint32_t prepared = weft__doorbell_prepare(sleeper->bell, WEFT__ANY_WORD);
        if (atomic_load(&sleeper->status->result) != WEFT_OK)
            weft__doorbell_cancel(sleeper->bell);
        else
            weft__doorbell_sleep(sleeper->bell, prepared, long_ns);
    }
    return NULL;
}

TEST(a_failure_wakes_all_sleepers)
{
    enum { NUM_ROUNDS = 200, NUM_SLEEPERS = 3 };
    for (int round = 0; round < NUM_ROUNDS; round++) {
        struct weft__doorbell bell = {0};
        struct weft__status status;
        pthread_t threads[NUM_SLEEPERS];
        struct sleeper sleeper = {.bell = &bell, .status = &status};
        assert_ok(weft__status_init(&status, 2));
        weft__status_set_bell(&status, &bell);
        for (int index = 0; index < NUM_SLEEPERS; index++)
            assert_ok(weft__thread_start(&threads[index], sleep_until_failure, &sleeper));
        /* In half of the rounds they are asleep, in the others about to be. */
        while (round % 2 == 0 && weft__doorbell_num_sleepers(&bell) < NUM_SLEEPERS)
            sched_yield();
        weft__status_fail(&status, WEFT_ERROR_ABORTED, -1, "over");
        for (int index = 0; index < NUM_SLEEPERS; index++)
            pthread_join(threads[index], NULL);
        assert_int_equal(weft__doorbell_num_sleepers(&bell), 0);
        weft__status_set_bell(&status, NULL);
        weft__status_destroy(&status);
    }
}

TEST(a_sleep_ends_at_its_deadline)
{
    struct weft__doorbell bell = {0};
    uint32_t prepared = weft__doorbell_prepare(&bell, WEFT__ANY_WORD);
    weft__doorbell_sleep(&bell, prepared, WEFT__NS_PER_MS);
    prepared = weft__doorbell_prepare(&bell, WEFT__ANY_WORD);
    weft__doorbell_sleep(&bell, prepared, 0);
    prepared = weft__doorbell_prepare(&bell, WEFT__ANY_WORD);
    weft__doorbell_sleep(&bell, prepared, -1);
    assert_int_equal(weft__doorbell_num_sleepers(&bell), 0);
}

/* Whether a ring of [begin, end) reaches one who sleeps for `word`. */
static int ring_wakes(uint64_t word, uint64_t begin, uint64_t end)
{
    struct weft__doorbell bell = {0};
    const uint32_t prepared = weft__doorbell_prepare(&bell, word);
    weft__doorbell_ring_words(&bell, begin, end);
    const int is_awake = atomic_load(&bell.num_rings) != prepared;
    weft__doorbell_cancel(&bell);
    return is_awake;
}

TEST(rings_wake_who_waits_for_a_word_of_theirs)
{
    assert_false(ring_wakes(792, 800, 840));
    assert_true(ring_wakes(800, 800, 840));
    assert_true(ring_wakes(832, 800, 840));
    assert_false(ring_wakes(840, 800, 840));
    assert_true(ring_wakes(WEFT__ANY_WORD, 800, 840));
    struct weft__doorbell nobody = {0};
    weft__doorbell_ring_words(&nobody, 800, 840);
    assert_int_equal(atomic_load(&nobody.num_rings), 0);
}
