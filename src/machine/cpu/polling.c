/* SPDX-License-Identifier: MIT */
#include "machine/cpu/polling.h"

#include <sched.h>

#include "comm/host/thread.h"

enum {
    /* A few microseconds: a signal between two running ranks takes less. */
    NUM_SPINS = 64,
    /* Counts yields that came back so soon that nobody had much to do. Others are no cost: while
     * ranks that share a core copy and send, none of them sleeps, whose wake-up is a system call of
     * its peer, an interrupt of its core, and two switches to the thread that drives the net. With
     * 300 us of any yields most waits of 1 MiB between hosts of four ranks slept. */
    IDLE_NS = 1000 * 1000,
    BUSY_YIELD_NS = 20 * 1000,
    LONG_YIELD_NS =
        1000 * 1000, /* longer than ranks work between two waits of operations of a MiB */
    MOST_NS = 10 * 1000 * 1000,
    /* So some 3 ms are lost in one of that many waits, beside a program that never sleeps; when it
     * is gone, ranks poll again after some 10 ms of small operations. */
    MAX_SLEEPS = 255
};

int weft__polling_begin(struct weft__polling *polling)
{
    if (polling->num_sleeps_due == 0)
        return 1;
    polling->num_sleeps_due--;
    return 0;
}

void weft__polling_end(struct weft__polling *polling, enum weft__polling_end how)
{
    int32_t num_sleeps = 0;
    if (how == WEFT__POLLING_DID_NOT_PAY)
        num_sleeps = 2 * polling->num_sleeps + 1;
    if (num_sleeps > MAX_SLEEPS)
        num_sleeps = MAX_SLEEPS;
    polling->num_sleeps_due = num_sleeps;
    polling->num_sleeps = num_sleeps;
}

static int spin(struct weft__condition condition)
{
    for (int i = 0; i < NUM_SPINS; i++) {
        if (condition.is_met(condition.argument))
            return 1;
#ifdef __x86_64__
        __builtin_ia32_pause();
#endif
    }
    return 0;
}

static int yield_until_met(struct weft__polling *polling, enum weft__cores cores,
                           struct weft__condition condition)
{
    const int64_t begin_ns = weft__now_ns();
    int64_t now_ns = begin_ns, idle_ns = 0, yield_ns;
    int is_met;
    do {
        sched_yield();
        is_met = condition.is_met(condition.argument);
        yield_ns = weft__now_ns() - now_ns;
        now_ns += yield_ns;
        if (yield_ns < BUSY_YIELD_NS)
            idle_ns += yield_ns;
    } while (!is_met && idle_ns < IDLE_NS && yield_ns < LONG_YIELD_NS &&
             now_ns - begin_ns < MOST_NS);
    /* Who has a core that nobody else wants loses nothing by a wait that is just longer. */
    const int has_paid = yield_ns < LONG_YIELD_NS && (is_met || cores >= WEFT__CORE_FOR_EACH_RANK);
    weft__polling_end(polling, has_paid ? WEFT__POLLING_PAID : WEFT__POLLING_DID_NOT_PAY);
    return is_met;
}

int weft__poll(struct weft__polling *polling, enum weft__cores cores,
               struct weft__condition condition)
{
    if (cores >= WEFT__CORE_FOR_EACH_RANK && spin(condition))
        return 1;
    return weft__polling_begin(polling) && yield_until_met(polling, cores, condition);
}
