/* SPDX-License-Identifier: MIT */
#include "comm/failure/waits.h"

#include <stddef.h>

#include "comm/host/thread.h"

void weft__wait_list_add(struct weft__wait_list *list, const struct weft__wait *wait)
{
    for (int32_t i = 0; i < list->num_waits; i++) {
        if (list->waits[i].rank == wait->rank && list->waits[i].exchange == wait->exchange)
            return;
    }
    if (list->num_waits < WEFT__MAX_LISTED_WAITS)
        list->waits[list->num_waits++] = *wait;
}

int weft__wait_list_is_valid(const struct weft__wait_list *list, int32_t num_ranks)
{
    if (list->num_waits < 0 || list->num_waits > WEFT__MAX_LISTED_WAITS)
        return 0;
    for (int32_t i = 0; i < list->num_waits; i++) {
        if (list->waits[i].rank < 0 || list->waits[i].rank >= num_ranks)
            return 0;
    }
    return 1;
}

void weft__waits_init(struct weft__waits *waits)
{
    pthread_mutex_init(&waits->mutex, NULL);
    waits->first = NULL;
    waits->failed = (struct weft__wait_list){.num_waits = 0};
}

void weft__waits_destroy(struct weft__waits *waits)
{
    pthread_mutex_destroy(&waits->mutex);
}

void weft__waits_begin(struct weft__waits *waits, struct weft__wait_entry *entry)
{
    entry->begin_ns = weft__now_ns();
    pthread_mutex_lock(&waits->mutex);
    entry->next = waits->first;
    waits->first = entry;
    pthread_mutex_unlock(&waits->mutex);
}

static struct weft__wait wait_so_far(const struct weft__wait_entry *entry)
{
    struct weft__wait wait = entry->wait;
    wait.waited_ms = (uint64_t)((weft__now_ns() - entry->begin_ns) / WEFT__NS_PER_MS);
    return wait;
}

void weft__waits_end(struct weft__waits *waits, struct weft__wait_entry *entry,
                     enum weft__wait_end how)
{
    pthread_mutex_lock(&waits->mutex);
    struct weft__wait_entry **link = &waits->first;
    while (*link != entry)
        link = &(*link)->next;
    *link = entry->next;
    if (how == WEFT__WAIT_FAILED) {
        /* At once: there is no moment at which this rank seems not to wait. */
        const struct weft__wait wait = wait_so_far(entry);
        weft__wait_list_add(&waits->failed, &wait);
    }
    pthread_mutex_unlock(&waits->mutex);
}

void weft__waits_fail(struct weft__waits *waits, const struct weft__wait *wait)
{
    pthread_mutex_lock(&waits->mutex);
    weft__wait_list_add(&waits->failed, wait);
    pthread_mutex_unlock(&waits->mutex);
}

struct answer {
    uint64_t exchange;
    struct weft__wait_list same, any; /* the waits in `exchange`, and all */
};

static void answer_with(struct answer *answer, const struct weft__wait *wait)
{
    weft__wait_list_add(&answer->any, wait);
    if (wait->exchange == answer->exchange)
        weft__wait_list_add(&answer->same, wait);
}

struct weft__wait_list weft__waits_find(struct weft__waits *waits, uint64_t exchange)
{
    struct answer answer = {.exchange = exchange};
    pthread_mutex_lock(&waits->mutex);
    for (int32_t i = 0; i < waits->failed.num_waits; i++)
        answer_with(&answer, &waits->failed.waits[i]);
    for (const struct weft__wait_entry *entry = waits->first; entry != NULL; entry = entry->next) {
        const struct weft__wait wait = wait_so_far(entry);
        answer_with(&answer, &wait);
    }
    pthread_mutex_unlock(&waits->mutex);
    return answer.same.num_waits > 0 ? answer.same : answer.any;
}
