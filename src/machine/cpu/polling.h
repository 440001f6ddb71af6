/* SPDX-License-Identifier: MIT */
/*
 * A thread's work before it sleeps: it polls, and yields its core to the ranks that it waits
 * for. Sleeping and being woken take longer than a small operation, above all where nobody else
 * wants the core, which then sleeps as well.
 *
 * But a program that never sleeps keeps a core that is yielded to it for milliseconds, where it
 * would have to give it up for a thread that is woken; and ranks that the kernel schedules apart,
 * as in sessions of their own under sched_autogroup, get the core right back when they yield it,
 * not those that they wait for. So after a poll that did not pay some waits sleep without polling:
 * one at first, and twice as many after each further one.
 */
#pragma once

#include <stdint.h>

#include "comm/host/cores.h"

/* Zero at first. */
struct weft__polling {
    int32_t num_sleeps_due; /* waits that do not poll, from here on */
    int32_t num_sleeps;     /* as many became due by the last poll */
};

/* Whether the next wait polls. */
int weft__polling_begin(struct weft__polling *polling);

enum weft__polling_end { WEFT__POLLING_PAID, WEFT__POLLING_DID_NOT_PAY };
void weft__polling_end(struct weft__polling *polling, enum weft__polling_end how);

struct weft__condition {
    int (*is_met)(void *argument);
    void *argument;
};

/* Returns whether the condition is met; if not, it is time to sleep. */
int weft__poll(struct weft__polling *polling, enum weft__cores cores,
               struct weft__condition condition);
