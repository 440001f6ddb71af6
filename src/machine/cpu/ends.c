/* SPDX-License-Identifier: MIT */
/* How waits on the cpu machine end, by what comes or without it. */
#include "machine/cpu/cpu_launch_internal.h"

#include <stdatomic.h>

#include "comm/host/thread.h"

static struct weft__cpu_fiber *first_waiting_for_rank(struct weft__cpu_launch *run)
{
    for (int32_t i = 0; i < run->num_warp_fibers; i++) {
        struct weft__cpu_fiber *fiber = run->runner->fibers[i];
        if (weft__cpu_waits_for_rank(fiber))
            return fiber;
    }
    return NULL;
}

static struct wp_failure describe_wait(const struct weft__cpu_fiber *fiber,
                                       enum wp_failure_kind kind)
{
    struct wp_failure failure = {.kind = kind};
    if (fiber != NULL) {
        failure.site = *fiber->site;
        failure.expected = fiber->at_least;
        failure.seen = weft__cpu_seen(fiber);
    }
    return failure;
}

/* The end of a wait for a rank. Absence counts from when the fiber began to wait; else the deadline
 * is the launch's, from when no fiber has been able to go on. */
static int64_t deadline_of(const struct weft__cpu_launch *run, const struct weft__cpu_fiber *fiber,
                           int64_t since_ns)
{
    if (fiber->site->absent_after_ms > 0)
        return fiber->since_ns + (int64_t)fiber->site->absent_after_ms * WEFT__NS_PER_MS;
    return since_ns + (int64_t)run->launch->comm->timeout_ms * WEFT__NS_PER_MS;
}

/* Warps that all wait in block syncs have as long as others. */
int64_t weft__cpu_first_deadline(const struct weft__cpu_launch *run, int64_t since_ns)
{
    int64_t first_ns = INT64_MAX;
    for (int32_t i = 0; i < run->num_warp_fibers; i++) {
        const struct weft__cpu_fiber *fiber = run->runner->fibers[i];
        if (weft__cpu_waits_for_rank(fiber) && deadline_of(run, fiber, since_ns) < first_ns)
            first_ns = deadline_of(run, fiber, since_ns);
    }
    return first_ns < INT64_MAX
               ? first_ns
               : since_ns + (int64_t)run->launch->comm->timeout_ms * WEFT__NS_PER_MS;
}

struct idleness {
    int64_t since_ns, now_ns;
};

/* Why the wait for a rank must end, if it must. A rank that is gone signals nothing more, but what
 * it signalled before stands: so its state is read first, the word after it. */
static enum wp_failure_kind why_it_ends(const struct weft__cpu_launch *run,
                                        const struct weft__cpu_fiber *fiber, struct idleness idle)
{
    const struct weft__status *status = &run->launch->comm->status;
    const int32_t rank = fiber->site->rank;
    enum wp_failure_kind why = WP_FAILURE_NONE;
    if (rank != WP_NO_RANK && weft__status_rank_is_gone(status, rank))
        why = WP_FAILURE_RANK_GONE;
    else if (idle.now_ns >= deadline_of(run, fiber, idle.since_ns))
        why = WP_FAILURE_TIMEOUT;
    return why == WP_FAILURE_NONE || weft__cpu_can_go_on(fiber) ? WP_FAILURE_NONE : why;
}

/* A wait for a rank must end: it does so alone if its site allows absence, else all fail. */
static int end_wait(struct weft__cpu_launch *run, struct weft__cpu_fiber *fiber,
                    struct idleness idle)
{
    const enum wp_failure_kind why = why_it_ends(run, fiber, idle);
    if (why == WP_FAILURE_NONE)
        return 0;
    if (fiber->site->absent_after_ms > 0)
        fiber->state = FIBER_GIVES_UP;
    else
        run->failure = describe_wait(fiber, why);
    return 1;
}

int weft__cpu_end_one_wait(struct weft__cpu_launch *run, int64_t since_ns)
{
    const struct idleness idle = {since_ns, weft__now_ns()};
    if (run->failure.kind != WP_FAILURE_NONE)
        return 1;
    if (atomic_load(&run->launch->comm->status.result) != WEFT_OK) {
        run->failure = describe_wait(first_waiting_for_rank(run), WP_FAILURE_COMM);
        return 1;
    }
    for (int32_t i = 0; i < run->num_warp_fibers; i++) {
        struct weft__cpu_fiber *fiber = run->runner->fibers[i];
        if (weft__cpu_waits_for_rank(fiber) && end_wait(run, fiber, idle))
            return 1;
    }
    if (first_waiting_for_rank(run) != NULL ||
        idle.now_ns < weft__cpu_first_deadline(run, since_ns) || weft__cpu_any_can_go_on(run))
        return 0;
    run->failure = describe_wait(NULL, WP_FAILURE_BLOCK_SYNC);
    return 1;
}
