/* SPDX-License-Identifier: MIT */
#include "comm/waits.h"

#include <stddef.h>

static const struct weft__wait nothing = {.rank = WEFT__NOBODY};

void weft__waits_init(struct weft__waits *waits)
{
    pthread_mutex_init(&waits->mutex, NULL);
    waits->first = NULL;
    waits->failed = nothing;
}

void weft__waits_destroy(struct weft__waits *waits)
{
    pthread_mutex_destroy(&waits->mutex);
}

void weft__waits_begin(struct weft__waits *waits, struct weft__wait_entry *entry)
{
    pthread_mutex_lock(&waits->mutex);
    entry->next = waits->first;
    waits->first = entry;
    pthread_mutex_unlock(&waits->mutex);
}

/* Called with the mutex held. */
static void keep(struct weft__waits *waits, const struct weft__wait *wait)
{
    if (waits->failed.rank == WEFT__NOBODY)
        waits->failed = *wait;
}

void weft__waits_end(struct weft__waits *waits, struct weft__wait_entry *entry,
                     enum weft__wait_end how)
{
    pthread_mutex_lock(&waits->mutex);
    struct weft__wait_entry **link = &waits->first;
    while (*link != entry)
        link = &(*link)->next;
    *link = entry->next;
    if (how ==
        WEFT__WAIT_FAILED) /* at once: there is no moment at which this rank seems not to wait */
        keep(waits, &entry->wait);
    pthread_mutex_unlock(&waits->mutex);
}

void weft__waits_fail(struct weft__waits *waits, const struct weft__wait *wait)
{
    pthread_mutex_lock(&waits->mutex);
    keep(waits, wait);
    pthread_mutex_unlock(&waits->mutex);
}

struct weft__wait weft__waits_find(struct weft__waits *waits, uint64_t exchange)
{
    pthread_mutex_lock(&waits->mutex);
    struct weft__wait found = waits->failed;
    for (const struct weft__wait_entry *entry = waits->first;
         entry != NULL && (found.rank == WEFT__NOBODY || found.exchange != exchange);
         entry = entry->next) {
        if (found.rank == WEFT__NOBODY || entry->wait.exchange == exchange)
            found = entry->wait;
    }
    pthread_mutex_unlock(&waits->mutex);
    return found;
}
