/* SPDX-License-Identifier: MIT */
/* What ranks that ask hear of the waits of kernels. A kernel looks at the board while it waits, but
 * processes that share a GPU take turns, so that it may not look for long. */
#include <time.h>

#include "harness/cmocka.h"
#include "machine/cuda/device.h"

enum {
    TIMEOUT_MS = 4000,
    TURN_MS = 200,
    EXCHANGE = 7,
    AWAITED = 1,
    NUM_RANKS = 2,
    HANG_MS = 30000
};

static struct weft__cuda_board board;
static struct weft__cuda cuda = {.board = &board};
static weft_comm comm = {.num_ranks = NUM_RANKS, .timeout_ms = TIMEOUT_MS, .machine_state = &cuda};

static void pause_ms(int ms)
{
    const struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    nanosleep(&pause, NULL);
}

static void look(void)
{
    struct weft__cuda_long_wait *own = &board.long_waits[AWAITED];
    __atomic_store_n(&own->wait, weft__cuda_pack_wait(AWAITED, EXCHANGE), __ATOMIC_RELAXED);
    __atomic_fetch_add(&own->num_looks, 1, __ATOMIC_RELAXED);
}

/* Until the number of waits that are known is this one. */
static void await_waits(int32_t num_waits)
{
    for (int ms = 0; ms < HANG_MS; ms += 5, pause_ms(5)) {
        if (weft__waits_find(&comm.waits, EXCHANGE).num_waits == num_waits)
            return;
    }
    fail_msg("%d waits are not known within %d ms", num_waits, HANG_MS);
}

TEST(a_wait_is_known_while_its_kernel_has_no_turn)
{
    look();
    await_waits(1);
    pause_ms(TURN_MS);
    assert_int_equal(weft__waits_find(&comm.waits, EXCHANGE).num_waits, 1);
}

TEST(a_wait_that_looks_no_more_is_over)
{
    look();
    await_waits(1);
    await_waits(0);
}

static int set_up(void **state)
{
    (void)state;
    weft__waits_init(&comm.waits);
    return weft__status_init(&comm.status, NUM_RANKS) != WEFT_OK ||
           weft__cuda_watcher_start(&comm) != WEFT_OK;
}

static int tear_down(void **state)
{
    (void)state;
    weft__cuda_watcher_stop(&comm);
    weft__status_destroy(&comm.status);
    weft__waits_destroy(&comm.waits);
    return 0;
}

int main(void)
{
    return tests_run(set_up, tear_down);
}
