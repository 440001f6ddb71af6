/* SPDX-License-Identifier: MIT */
#include "machine/cpu/polling.h"

#include <sched.h>

#include "comm/thread.h"

enum {
    /* A few microseconds: a signal between two running ranks takes less. */
    NUM_SPINS = 64,
    /* The waits of operations of up to 1 MiB mostly end within this, which is also longer than
     * other ranks keep the core meanwhile. With 30 us, eight ranks on two cores that dispatch a
     * token each were as slow as without polling. */
    POLL_NS = 300 * 1000,
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
    int64_t yielded_ns, now_ns = begin_ns;
    int is_met;
    do {
        yielded_ns = now_ns;
        sched_yield();
        is_met = condition.is_met(condition.argument);
        now_ns = weft__now_ns();
    } while (!is_met && now_ns - begin_ns < POLL_NS);
    /* Who has a core that nobody else wants loses nothing by a wait that is just longer. */
    const int has_paid =
        now_ns - yielded_ns < POLL_NS && (is_met || cores >= WEFT__CORE_FOR_EACH_RANK);
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
