/* SPDX-License-Identifier: MIT */
/* A queue as who drives the net sees it, and what has become of what was posted there. */
#pragma once

#include "net/net.h"
#include "net/work_queue.h"

struct weft__under_way {
    struct weft__net_request request;
    int32_t rank; /* of the access, as what follows */
    enum wp_access_loss loss;
    enum { WEFT__NOBODY_WAITS, WEFT__SOMEBODY_WAITS } news; /* for its number to be completed */
};

struct weft__line {
    struct weft__work_queue *queue; /* NULL: there is none */
    uint32_t num_slots;
    struct weft__under_way *under_way; /* [num_slots] */
};

static inline struct weft__under_way *weft__line_under_way_of(const struct weft__line *line,
                                                              uint64_t number)
{
    return &line->under_way[number % line->num_slots];
}

/* NULL: it has not been posted yet. */
static inline const struct wp_access *weft__line_work(const struct weft__line *line,
                                                      uint64_t number)
{
    const struct wp_access *work = &line->queue->slots[number % line->num_slots];
    return __atomic_load_n(&work->ready, __ATOMIC_ACQUIRE) == number + 1 ? work : NULL;
}

static inline const struct wp_access *weft__line_next_work(const struct weft__line *line)
{
    const struct weft__work_queue *queue = line->queue;
    if (queue == NULL)
        return NULL;
    return weft__line_work(line, atomic_load_explicit(&queue->num_taken, memory_order_relaxed));
}

static inline struct weft__under_way weft__line_describe(const struct wp_access *work)
{
    return (struct weft__under_way){.rank = work->rank,
                                    .loss = work->loss,
                                    .news = wp_access_is_awaited(work) ? WEFT__SOMEBODY_WAITS
                                                                       : WEFT__NOBODY_WAITS};
}
