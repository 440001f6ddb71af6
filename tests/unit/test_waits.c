/* SPDX-License-Identifier: MIT */
/* What a rank answers when it is asked whom it waits for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "comm/waits.h"

static struct weft__wait_entry entry_of(int32_t rank, uint64_t exchange)
{
    return (struct weft__wait_entry){.wait = {.rank = rank, .exchange = exchange}};
}

static void who_does_not_wait_says_so(void **state)
{
    (void)state;
    struct weft__waits waits;
    struct weft__wait_entry entry = entry_of(3, 256);
    weft__waits_init(&waits);
    assert_int_equal(weft__waits_find(&waits, 256).rank, WEFT__NOBODY);
    weft__waits_begin(&waits, &entry);
    assert_int_equal(weft__waits_find(&waits, 256).rank, 3);
    weft__waits_end(&waits, &entry, WEFT__WAIT_CAME);
    assert_int_equal(weft__waits_find(&waits, 256).rank, WEFT__NOBODY);
    weft__waits_destroy(&waits);
}

static void the_exchange_asked_about_comes_first(void **state)
{
    (void)state;
    struct weft__waits waits;
    struct weft__wait_entry entries[] = {entry_of(1, 256), entry_of(2, 512), entry_of(3, 768)};
    weft__waits_init(&waits);
    for (int i = 0; i < 3; i++)
        weft__waits_begin(&waits, &entries[i]);
    for (int i = 0; i < 3; i++) {
        const struct weft__wait *wait = &entries[i].wait;
        assert_int_equal(weft__waits_find(&waits, wait->exchange).rank, wait->rank);
    }
    weft__waits_end(&waits, &entries[1], WEFT__WAIT_CAME);
    assert_int_equal(weft__waits_find(&waits, 256).rank, 1);
    assert_int_equal(weft__waits_find(&waits, 768).rank, 3);
    assert_int_not_equal(weft__waits_find(&waits, 512).rank,
                         WEFT__NOBODY); /* held up all the same */
    weft__waits_end(&waits, &entries[0], WEFT__WAIT_CAME);
    weft__waits_end(&waits, &entries[2], WEFT__WAIT_CAME);
    assert_int_equal(weft__waits_find(&waits, 256).rank, WEFT__NOBODY);
    weft__waits_destroy(&waits);
}

static void the_first_failed_wait_stays(void **state)
{
    (void)state;
    struct weft__waits waits;
    const struct weft__wait later = {.rank = 7, .exchange = 256};
    struct weft__wait_entry failed = entry_of(1, 256), other = entry_of(2, 512);
    weft__waits_init(&waits);
    weft__waits_begin(&waits, &failed);
    weft__waits_begin(&waits, &other);
    weft__waits_end(&waits, &failed, WEFT__WAIT_FAILED);
    assert_int_equal(weft__waits_find(&waits, 256).rank, 1);
    assert_int_equal(weft__waits_find(&waits, 512).rank, 2);
    weft__waits_end(&waits, &other, WEFT__WAIT_CAME);
    weft__waits_fail(&waits, &later);
    assert_int_equal(weft__waits_find(&waits, 256).rank, 1);
    assert_int_equal(weft__waits_find(&waits, 0).rank, 1);
    weft__waits_destroy(&waits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_does_not_wait_says_so),
        cmocka_unit_test(the_exchange_asked_about_comes_first),
        cmocka_unit_test(the_first_failed_wait_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
