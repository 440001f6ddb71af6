/* SPDX-License-Identifier: MIT */
/* The doorbell: whom a ring is for, and that none is lost. */
#include <pthread.h>
#include <sched.h>

#include "comm/host/doorbell.h"
#include "harness/cmocka.h"
#include "harness/machine.h"

enum { WORD = 64, OTHER_WORD = 128, NO_WORD = 192 };

/* Whether a ring for the word would wake who sleeps there. */
static int rings(struct weft__doorbell *bell, uint64_t word)
{
    const uint32_t before = atomic_load(&bell->num_rings);
    weft__doorbell_ring(bell, word);
    return atomic_load(&bell->num_rings) != before;
}

TEST(a_ring_is_for_those_who_wait_for_the_word)
{
    struct weft__doorbell bell = {0};
    assert_false(rings(&bell, WORD));
    weft__doorbell_prepare(&bell, WORD);
    assert_true(rings(&bell, WORD));
    assert_false(rings(&bell, OTHER_WORD));
    assert_true(rings(&bell, WEFT__ANY_WORD));
    weft__doorbell_cancel(&bell);
    assert_false(rings(&bell, WORD));
}

/* There is room for one word: with two sleepers every ring is for all, until all have woken. */
TEST(a_second_sleeper_makes_it_any_word)
{
    struct weft__doorbell bell = {0};
    weft__doorbell_prepare(&bell, WORD);
    weft__doorbell_prepare(&bell, OTHER_WORD);
    assert_true(rings(&bell, WORD));
    assert_true(rings(&bell, OTHER_WORD));
    assert_true(rings(&bell, NO_WORD));
    weft__doorbell_cancel(&bell);
    assert_true(rings(&bell, WORD)); /* it may be the first that still sleeps */
    assert_true(rings(&bell, OTHER_WORD));
    weft__doorbell_cancel(&bell);
    assert_int_equal(weft__doorbell_num_sleepers(&bell), 0);
    weft__doorbell_prepare(&bell, OTHER_WORD);
    assert_false(rings(&bell, WORD));
    assert_true(rings(&bell, OTHER_WORD));
    weft__doorbell_cancel(&bell);
}

/* ---------------------------------------------------------------- no ring is lost */

/* One thread stores to the word and looks for the sleeper, the other announces itself and looks at
 * the word: one of them must see the other. Each would miss it if its store could pass its load,
 * which x86 does without the fence. */
struct litmus {
    _Atomic uint32_t ready[2]; /* [side] the round for which it is ready */
    _Alignas(128) _Atomic uint32_t word;
    _Alignas(128) struct weft__doorbell bell;
    uint32_t num_rounds, num_lost;
};

enum { MAX_SPINS = 1000, SLEEPER = 0, RINGER = 1 };

static void meet(struct litmus *litmus, int side, uint32_t round)
{
    atomic_store(&litmus->ready[side], round);
    for (int spins = 0; atomic_load(&litmus->ready[1 - side]) < round; spins++)
        if (spins > MAX_SPINS)
            sched_yield();
}

static void *ring_each_round(void *argument)
{
    struct litmus *litmus = argument;
    for (uint32_t round = 1; round <= litmus->num_rounds; round++) {
        meet(litmus, RINGER, 2 * round - 1);
        atomic_store_explicit(&litmus->word, round, memory_order_release);
        weft__doorbell_ring(&litmus->bell, WORD);
        meet(litmus, RINGER, 2 * round);
    }
    return NULL;
}

static void *look_each_round(void *argument)
{
    struct litmus *litmus = argument;
    for (uint32_t round = 1; round <= litmus->num_rounds; round++) {
        meet(litmus, SLEEPER, 2 * round - 1);
        const uint32_t prepared = weft__doorbell_prepare(&litmus->bell, WORD);
        const int has_come = atomic_load_explicit(&litmus->word, memory_order_acquire) == round;
        meet(litmus, SLEEPER, 2 * round);
        /* It would sleep on. */
        litmus->num_lost += !has_come && atomic_load(&litmus->bell.num_rings) == prepared;
        weft__doorbell_cancel(&litmus->bell);
    }
    return NULL;
}

TEST(no_ring_is_lost)
{
    static struct litmus litmus;
    litmus.num_rounds = (uint32_t)tests_grid_size(200000, 10000);
    pthread_t ringer;
    assert_int_equal(pthread_create(&ringer, NULL, ring_each_round, &litmus), 0);
    look_each_round(&litmus);
    pthread_join(ringer, NULL);
    assert_int_equal(litmus.num_lost, 0);
}
