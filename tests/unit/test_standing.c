/* SPDX-License-Identifier: MIT */
/* A rank remembers no more calls than it reports, for any number of objects. */
#include "comm/rendezvous/standing.h"

#include <stdlib.h>

#include "harness/cmocka.h"

enum { EXCHANGE = 7, FAR_TOO_MANY = 4 * WEFT__MAX_KEYS };

static void call(struct weft__standing *standing, int32_t object)
{
    weft__current_call = WEFT__CALL_EP_NOTIFY;
    weft__standing_note(standing,
                        &(struct weft__stream_call){WEFT__CALL_OF_ALL, .object = object,
                                                    .exchange = EXCHANGE + (uint64_t)object,
                                                    .stream_id = 1},
                        0);
}

/* Returns the number of calls that are reported for a wait that lasts from one look to the next. */
static int32_t tell(struct weft__standing *standing)
{
    struct weft__called *called = NULL;
    weft__standing_hold((struct weft__hold){.kind = WEFT__HELD_BY_STREAM, .stream_id = 1});
    assert_int_equal(weft__standing_look(standing, &called), 0);
    const int32_t num_called = weft__standing_look(standing, &called);
    weft__standing_release();
    free(called);
    return num_called;
}

TEST(a_rank_tells_of_all_its_calls_or_of_none)
{
    struct weft__standing standing;
    weft__standing_init(&standing);
    for (int32_t object = 0; object < WEFT__MAX_KEYS; object++)
        call(&standing, object);
    assert_int_equal(tell(&standing), WEFT__MAX_KEYS);
    call(&standing, WEFT__MAX_KEYS);
    assert_int_equal(tell(&standing), 0);
    weft__standing_destroy(&standing);
}

/* The last call of each kind, and the last of those that were made again since. */
TEST(a_rank_tells_the_order_of_its_last_calls)
{
    struct weft__standing standing;
    weft__standing_init(&standing);
    call(&standing, 1);
    for (int i = 0; i < 2 * WEFT__MAX_EARLIER; i++)
        call(&standing, 2);
    struct weft__called *called = NULL;
    weft__standing_hold((struct weft__hold){.kind = WEFT__HELD_BY_STREAM, .stream_id = 1});
    assert_int_equal(weft__standing_look(&standing, &called), 0);
    assert_int_equal(weft__standing_look(&standing, &called), 2 + WEFT__MAX_EARLIER);
    weft__standing_release();
    for (int32_t i = 0; i < 2 + WEFT__MAX_EARLIER; i++) {
        const int is_last = i == 0 || i == 1 + WEFT__MAX_EARLIER;
        assert_int_equal(called[i].behind, i - 1);
        assert_int_equal(called[i].count, i == 0 ? 1 : WEFT__MAX_EARLIER - 1 + i);
        assert_int_equal(called[i].flags, WEFT__CALLED_AWAITED | (is_last ? WEFT__CALLED_LAST : 0));
    }
    free(called);
    weft__standing_destroy(&standing);
}

TEST(objects_without_end_need_no_more_memory)
{
    struct weft__standing standing;
    weft__standing_init(&standing);
    for (int32_t object = 0; object < FAR_TOO_MANY; object++)
        call(&standing, object);
    assert_int_equal(standing.num_entries, WEFT__MAX_KEYS);
    assert_int_equal(weft__standing_find_call(&standing, EXCHANGE + FAR_TOO_MANY - 1),
                     WEFT__CALL_EP_NOTIFY);
    assert_int_equal(weft__standing_find_call(&standing, EXCHANGE), WEFT__CALL_UNKNOWN);
    assert_int_equal(weft__standing_count(&standing, EXCHANGE, WEFT__CALL_EP_NOTIFY), UINT64_MAX);
    weft__standing_destroy(&standing);
}
