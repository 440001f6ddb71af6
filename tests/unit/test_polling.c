/* SPDX-License-Identifier: MIT */
/* Whether a wait of the cpu machine polls before it sleeps. */
#include "harness/cmocka.h"
#include "machine/cpu/polling.h"

struct asked {
    int num_times;
    int met_at; /* the time that it is asked; 0: never */
};

static int is_met(void *argument)
{
    struct asked *asked = argument;
    return ++asked->num_times == asked->met_at;
}

static int poll(struct weft__polling *polling, enum weft__cores cores, struct asked *asked)
{
    return weft__poll(polling, cores, (struct weft__condition){is_met, asked});
}

TEST(a_poll_tells_whether_the_condition_is_met)
{
    struct weft__polling polling = {0};
    struct asked at_once = {.met_at = 1}, soon = {.met_at = 3}, never = {0};
    assert_true(poll(&polling, WEFT__FEWER_CORES_THAN_RANKS, &at_once));
    assert_int_equal(at_once.num_times, 1);
    assert_true(poll(&polling, WEFT__CORE_FOR_EACH_RANK, &soon));
    assert_int_equal(soon.num_times, 3);
    polling = (struct weft__polling){0}; /* the first may have been preempted */
    assert_false(poll(&polling, WEFT__FEWER_CORES_THAN_RANKS, &never));
    assert_true(never.num_times > 0);
    assert_int_equal(polling.num_sleeps_due, 1);
}

static int num_sleeps(struct weft__polling *polling)
{
    int num = 0;
    while (!weft__polling_begin(polling))
        num++;
    return num;
}

TEST(waits_sleep_after_polls_that_did_not_pay)
{
    struct weft__polling polling = {0};
    const int expected[] = {1, 3, 7, 15, 31, 63, 127, 255, 255};
    assert_int_equal(num_sleeps(&polling), 0);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        weft__polling_end(&polling, WEFT__POLLING_DID_NOT_PAY);
        assert_int_equal(num_sleeps(&polling), expected[i]);
    }
    weft__polling_end(&polling, WEFT__POLLING_PAID);
    assert_int_equal(num_sleeps(&polling), 0);
    weft__polling_end(&polling, WEFT__POLLING_DID_NOT_PAY);
    assert_int_equal(num_sleeps(&polling), 1);
}

/* Where there is a core for each rank, it spins all the same: that takes nobody's core. */
TEST(a_wait_that_sleeps_does_not_yield_before)
{
    struct weft__polling polling = {0};
    struct asked late = {.met_at = 1}, at_once = {.met_at = 1};
    weft__polling_end(&polling, WEFT__POLLING_DID_NOT_PAY);
    assert_true(poll(&polling, WEFT__CORE_FOR_EACH_RANK, &at_once));
    assert_false(poll(&polling, WEFT__FEWER_CORES_THAN_RANKS, &late));
    assert_int_equal(late.num_times, 0);
    assert_true(poll(&polling, WEFT__FEWER_CORES_THAN_RANKS, &late));
}
