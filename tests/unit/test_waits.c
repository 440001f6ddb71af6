/* SPDX-License-Identifier: MIT */
/* What a rank answers when it is asked whom it waits for. */

#include "comm/failure/waits.h"
#include "harness/cmocka.h"

static struct weft__wait_entry entry_of(int32_t rank, uint64_t exchange)
{
    return (struct weft__wait_entry){.wait = {.rank = rank, .exchange = exchange}};
}

/* The answer is these ranks, in this order. */
static void assert_answer(struct weft__waits *waits, uint64_t exchange, int32_t num_ranks,
                          const int32_t *ranks)
{
    const struct weft__wait_list list = weft__waits_find(waits, exchange);
    assert_int_equal(list.num_waits, num_ranks);
    for (int32_t i = 0; i < num_ranks; i++)
        assert_int_equal(list.waits[i].rank, ranks[i]);
}
#define ASSERT_NO_ANSWER(waits, exchange) assert_answer(waits, exchange, 0, NULL)
#define ASSERT_ANSWER(waits, exchange, ...)                                                        \
    assert_answer(waits, exchange, sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t),             \
                  (int32_t[]){__VA_ARGS__})

TEST(who_does_not_wait_says_so)
{
    struct weft__waits waits;
    struct weft__wait_entry entry = entry_of(3, 256);
    weft__waits_init(&waits);
    ASSERT_NO_ANSWER(&waits, 256);
    weft__waits_begin(&waits, &entry);
    ASSERT_ANSWER(&waits, 256, 3);
    weft__waits_end(&waits, &entry, WEFT__WAIT_CAME);
    ASSERT_NO_ANSWER(&waits, 256);
    weft__waits_destroy(&waits);
}

TEST(waits_in_the_exchange_asked_about_are_all_told)
{
    struct weft__waits waits;
    struct weft__wait_entry entries[] = {entry_of(1, 256), entry_of(2, 512), entry_of(3, 256),
                                         entry_of(1, 256)};
    weft__waits_init(&waits);
    for (int i = 0; i < 4; i++)
        weft__waits_begin(&waits, &entries[i]);
    ASSERT_ANSWER(&waits, 256, 1, 3);
    ASSERT_ANSWER(&waits, 512, 2);
    weft__waits_end(&waits, &entries[1], WEFT__WAIT_CAME);
    ASSERT_ANSWER(&waits, 512, 1, 3); /* held up all the same */
    weft__waits_end(&waits, &entries[0], WEFT__WAIT_CAME);
    ASSERT_ANSWER(&waits, 256, 1, 3); /* another wait for rank 1 goes on */
    weft__waits_end(&waits, &entries[3], WEFT__WAIT_CAME);
    ASSERT_ANSWER(&waits, 256, 3);
    weft__waits_end(&waits, &entries[2], WEFT__WAIT_CAME);
    ASSERT_NO_ANSWER(&waits, 256);
    weft__waits_destroy(&waits);
}

TEST(failed_waits_stay_and_come_first)
{
    struct weft__waits waits;
    const struct weft__wait later = {.rank = 7, .exchange = 256};
    struct weft__wait_entry failed = entry_of(1, 256), other = entry_of(2, 512),
                            came = entry_of(3, 256);
    weft__waits_init(&waits);
    weft__waits_begin(&waits, &failed);
    weft__waits_begin(&waits, &other);
    weft__waits_begin(&waits, &came);
    weft__waits_end(&waits, &failed, WEFT__WAIT_FAILED);
    ASSERT_ANSWER(&waits, 256, 1, 3);
    ASSERT_ANSWER(&waits, 512, 2);
    weft__waits_end(&waits, &came, WEFT__WAIT_CAME);
    weft__waits_end(&waits, &other, WEFT__WAIT_FAILED);
    weft__waits_fail(&waits, &later);
    weft__waits_fail(&waits, &later);
    ASSERT_ANSWER(&waits, 256, 1, 7);
    ASSERT_ANSWER(&waits, 0, 1, 2, 7);
    weft__waits_destroy(&waits);
}

TEST(an_answer_has_room_for_some_waits)
{
    enum { NUM_ENTRIES = WEFT__MAX_LISTED_WAITS + 4 };
    struct weft__waits waits;
    struct weft__wait_entry entries[NUM_ENTRIES];
    weft__waits_init(&waits);
    for (int32_t i = 0; i < NUM_ENTRIES; i++) {
        entries[i] = entry_of(i, 256);
        weft__waits_begin(&waits, &entries[i]);
    }
    assert_int_equal(weft__waits_find(&waits, 256).num_waits, WEFT__MAX_LISTED_WAITS);
    for (int32_t i = 0; i < NUM_ENTRIES; i++)
        weft__waits_end(&waits, &entries[i], WEFT__WAIT_FAILED);
    const struct weft__wait_list failed = weft__waits_find(&waits, 256);
    assert_int_equal(failed.num_waits, WEFT__MAX_LISTED_WAITS);
    for (int32_t i = 0; i < WEFT__MAX_LISTED_WAITS; i++)
        assert_int_equal(failed.waits[i].rank, i);
    weft__waits_destroy(&waits);
}

TEST(lists_that_make_no_sense_are_found_out)
{
    struct weft__wait_list list = {.num_waits = 0};
    assert_true(weft__wait_list_is_valid(&list, 4));
    for (int32_t rank = 0; rank < 4; rank++)
        weft__wait_list_add(&list, &(struct weft__wait){.rank = rank});
    assert_true(weft__wait_list_is_valid(&list, 4));
    assert_false(weft__wait_list_is_valid(&list, 3));
    list.waits[2].rank = WEFT__NOBODY;
    assert_false(weft__wait_list_is_valid(&list, 4));
    list = (struct weft__wait_list){.num_waits = WEFT__MAX_LISTED_WAITS + 1};
    assert_false(weft__wait_list_is_valid(&list, 4));
    list.num_waits = -1;
    assert_false(weft__wait_list_is_valid(&list, 4));
}
