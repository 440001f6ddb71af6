/* SPDX-License-Identifier: MIT */
/* How waits end on the cuda machine, by what comes or without it; part of primitives.h. Plain C but
 * for what is above it there: unit/test_cuda_waits runs it on the host, with a clock of its own. */
#pragma once

enum { WEFT__CUDA_NS_PER_MS = 1000000 };

/* Whether a wait must end though its word has not come; `why` says so to the user. Memory of the
 * host is far, so this is asked only now and then. */
WP_FN int weft__cuda_must_end(const struct wp_warp *warp, const struct wp_wait_site *site,
                              uint64_t start_ns, enum wp_failure_kind *why)
{
    const struct weft__cuda_launch *launch = warp->launch;
    const uint64_t timeout_ns = site->absent_after_ms > 0
                                    ? (uint64_t)site->absent_after_ms * WEFT__CUDA_NS_PER_MS
                                    : launch->timeout_ns;
    if (*(const volatile uint32_t *)&launch->board->comm_has_failed != 0)
        *why = WP_FAILURE_COMM;
    else if (site->rank != WP_NO_RANK &&
             *(const volatile uint8_t *)&launch->board->rank_is_gone[site->rank] != 0)
        *why = WP_FAILURE_RANK_GONE;
    else if (wp_now_ns(warp) - start_ns >= timeout_ns)
        *why = WP_FAILURE_TIMEOUT;
    else
        return 0;
    return 1;
}

/* Warps wait for several ranks at a time, each of which may lead to who holds up all. Of the waits
 * for the same rank one is enough, so they overwrite each other. */
WP_FN void weft__cuda_publish_wait(const struct wp_warp *warp, const struct wp_wait_site *site)
{
    if (site->rank == WP_NO_RANK)
        return;
    struct weft__cuda_long_wait *own =
        &warp->launch->board->long_waits[site->rank % WEFT__CUDA_NUM_LONG_WAITS];
    *(volatile uint64_t *)&own->wait = weft__cuda_pack_wait(site->rank, site->exchange);
    *(volatile uint32_t *)&own->num_looks = *(volatile uint32_t *)&own->num_looks + 1;
}

/* How long a wait has polled; all zero at first. */
struct weft__cuda_patience {
    uint32_t num_polls;
    uint64_t start_ns; /* of its first look at the board: what comes soon needs no clock */
    /* It must end. Decided before memory is polled for the last time: a rank that is gone sends
     * nothing more, but what it sent before stands. */
    enum wp_failure_kind why;
};

/* After each poll in vain. */
WP_FN void weft__cuda_be_patient(const struct wp_warp *warp, const struct wp_wait_site *site,
                                 struct weft__cuda_patience *patience)
{
    enum { POLLS_PER_LOOK = 1024 };
    if (++patience->num_polls % POLLS_PER_LOOK != 0)
        return;
    if (patience->start_ns == 0)
        patience->start_ns = wp_now_ns(warp);
    weft__cuda_publish_wait(warp, site);
    (void)weft__cuda_must_end(warp, site, patience->start_ns, &patience->why);
}

/* What came in time is not there: absent, if the site allows it, else the launch fails. */
WP_FN enum wp_status weft__cuda_give_up(struct wp_warp *warp, const struct wp_wait_site *site,
                                        enum wp_failure_kind why, uint64_t expected, uint64_t seen)
{
    const struct wp_failure failure = {why, *site, 0, expected, seen};
    if (site->absent_after_ms > 0 && why != WP_FAILURE_COMM)
        return WP_STATUS_ABSENT;
    return wp_fail(warp, &failure);
}

WP_FN enum wp_status wp_wait_value(struct wp_warp *warp, const uint64_t *word, uint64_t at_least,
                                   const struct wp_wait_site *site, uint64_t *seen)
{
    struct weft__cuda_patience patience = {0, 0, WP_FAILURE_NONE};
    for (;;) {
        *seen = weft__cuda_load_acquire(word);
        if (*seen >= at_least) {
            warp->has_acquired = 1;
            return WP_STATUS_OK;
        }
        if (patience.why != WP_FAILURE_NONE)
            return weft__cuda_give_up(warp, site, patience.why, at_least, *seen);
        weft__cuda_be_patient(warp, site, &patience);
    }
}

WP_FN enum wp_status wp_wait(struct wp_warp *warp, const uint64_t *word, uint64_t at_least,
                             const struct wp_wait_site *site)
{
    uint64_t seen;
    return wp_wait_value(warp, word, at_least, site, &seen);
}

WP_FN enum wp_status wp_wait_u32(struct wp_warp *warp, const uint32_t *word, uint32_t at_least,
                                 const struct wp_wait_site *site)
{
    struct weft__cuda_patience patience = {0, 0, WP_FAILURE_NONE};
    for (;;) {
        const uint32_t seen = weft__cuda_load_acquire_u32(word);
        if (seen >= at_least) {
            warp->has_acquired = 1;
            return WP_STATUS_OK;
        }
        if (patience.why != WP_FAILURE_NONE)
            return weft__cuda_give_up(warp, site, patience.why, at_least, seen);
        weft__cuda_be_patient(warp, site, &patience);
    }
}

/* Lane 0: waits until the slot of the number is free. It is as long as the thread takes what is
 * posted; NULL once the wait must end, which fails the launch. The rank's other waits end then,
 * too. */
WP_FN struct wp_access *weft__cuda_await_work_slot(struct wp_warp *warp, uint64_t number,
                                                   const struct wp_wait_site *site)
{
    const struct weft__cuda_work_queue *queue = &warp->launch->work_queue;
    struct weft__cuda_patience patience = {0, 0, WP_FAILURE_NONE};
    for (;;) {
        const uint64_t num_taken = weft__cuda_load_acquire(queue->num_taken);
        if (number - num_taken < queue->num_slots)
            return &queue->slots[number % queue->num_slots];
        if (patience.why != WP_FAILURE_NONE) {
            const struct wp_failure failure = {patience.why, *site, 0,
                                               number - queue->num_slots + 1, num_taken};
            wp_fail(warp, &failure);
            return NULL;
        }
        weft__cuda_be_patient(warp, site, &patience);
    }
}
