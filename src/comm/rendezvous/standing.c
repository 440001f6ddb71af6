/* SPDX-License-Identifier: MIT */
#include "comm/rendezvous/standing.h"

#include <stdlib.h>
#include <string.h>

#include "comm/host/log.h"
#include "comm/host/thread.h"

/* ---------------------------------------------------------------- threads that wait */

/* One for each thread. Its address identifies the thread. */
struct waiter {
    struct waiter *next;
    int32_t depth;
    uint64_t num_holds;
    struct weft__hold hold;
};

static _Thread_local struct waiter self;
static pthread_mutex_t waiters_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct waiter *first_waiter;

void weft__standing_hold(struct weft__hold hold)
{
    if (self.depth++ > 0)
        return;
    pthread_mutex_lock(&waiters_mutex);
    self.hold = hold;
    self.num_holds++;
    self.next = first_waiter;
    first_waiter = &self;
    pthread_mutex_unlock(&waiters_mutex);
}

void weft__standing_release(void)
{
    if (--self.depth > 0)
        return;
    pthread_mutex_lock(&waiters_mutex);
    struct waiter **link = &first_waiter;
    while (*link != &self)
        link = &(*link)->next;
    *link = self.next;
    pthread_mutex_unlock(&waiters_mutex);
}

/* The number of the thread's hold; 0: the thread does not wait. */
static uint64_t find_hold(const void *thread, struct weft__hold *hold)
{
    uint64_t number = 0;
    pthread_mutex_lock(&waiters_mutex);
    for (const struct waiter *waiter = first_waiter; waiter != NULL; waiter = waiter->next) {
        if (waiter == thread) {
            *hold = waiter->hold;
            number = waiter->num_holds;
        }
    }
    pthread_mutex_unlock(&waiters_mutex);
    return number;
}

/* ---------------------------------------------------------------- calls */

void weft__standing_init(struct weft__standing *standing)
{
    *standing = (struct weft__standing){.state = WEFT__STANDING_KNOWN};
    pthread_mutex_init(&standing->mutex, NULL);
}

void weft__standing_destroy(struct weft__standing *standing)
{
    pthread_mutex_destroy(&standing->mutex);
    free(standing->entries);
}

/* The functions of the rest of this section need the mutex held. */

static struct weft__standing_entry *find_entry(struct weft__standing *standing, uint64_t key)
{
    for (int32_t i = 0; i < standing->num_entries; i++) {
        if (standing->entries[i].called.key == key)
            return &standing->entries[i];
    }
    return NULL;
}

static struct weft__standing_entry *find_oldest(struct weft__standing *standing)
{
    struct weft__standing_entry *oldest = &standing->entries[0];
    for (int32_t i = 1; i < standing->num_entries; i++) {
        if (standing->entries[i].called.order < oldest->called.order)
            oldest = &standing->entries[i];
    }
    return oldest;
}

/* Returns NULL without memory. */
static struct weft__standing_entry *extend(struct weft__standing *standing)
{
    enum { FEW = 16 };
    if (standing->num_entries == standing->max_entries) {
        const int32_t max_entries = standing->max_entries == 0 ? FEW : 2 * standing->max_entries;
        struct weft__standing_entry *entries =
            realloc(standing->entries, (size_t)max_entries * sizeof *entries);
        if (entries == NULL)
            return NULL;
        standing->entries = entries;
        standing->max_entries = max_entries;
    }
    return &standing->entries[standing->num_entries++];
}

/* A program may make objects without end, and no count may get lost. With too many the rank tells
 * nothing any more, and keeps only the last calls, for messages. */
static struct weft__standing_entry *add_entry(struct weft__standing *standing, uint64_t key)
{
    if (standing->num_entries == WEFT__MAX_KEYS)
        standing->state = WEFT__STANDING_UNKNOWN;
    struct weft__standing_entry *entry =
        standing->num_entries == WEFT__MAX_KEYS ? find_oldest(standing) : extend(standing);
    if (entry != NULL)
        *entry = (struct weft__standing_entry){.called = {.key = key, .peer = WEFT__ANY_PEER}};
    return entry;
}

static void note_thread(struct weft__standing *standing)
{
    if (standing->thread == NULL)
        standing->thread = &self;
    else if (standing->thread != &self && standing->state == WEFT__STANDING_KNOWN)
        standing->state = WEFT__STANDING_OF_SEVERAL;
}

/* Without memory for an entry the rank tells nothing any more. */
static struct weft__standing_entry *note(struct weft__standing *standing, uint64_t key,
                                         enum weft__call_part part)
{
    note_thread(standing);
    struct weft__standing_entry *entry = find_entry(standing, key);
    if (entry == NULL)
        entry = add_entry(standing, key);
    if (entry == NULL) {
        standing->state = WEFT__STANDING_UNKNOWN;
        return NULL;
    }
    if (part != WEFT__CALL_IS_BESIDE)
        standing->num_calls++;
    if (part != WEFT__CALL_GOES_ON) {
        if (entry->called.count > 0)
            standing->earlier[standing->num_earlier++ % WEFT__MAX_EARLIER] = *entry;
        entry->called.count++;
        entry->begin_order = standing->num_calls;
    }
    entry->called.order = standing->num_calls;
    return entry;
}

/* ---------------------------------------------------------------- noting calls */

/* A send and its receive have the same key. A key has room for 65536 ranks. */
static uint64_t key_of(const struct weft__stream_call *call)
{
    const uint64_t what = call->src == WEFT__ANY_PEER
                              ? (uint64_t)weft__current_call
                              : UINT64_C(1) << 32 | (uint64_t)call->src << 16 | (uint64_t)call->dst;
    return (uint64_t)call->object << 33 | what;
}

void weft__standing_note(struct weft__standing *standing, const struct weft__stream_call *call,
                         int32_t rank)
{
    const uint64_t key = key_of(call);
    pthread_mutex_lock(&standing->mutex);
    struct weft__standing_entry *entry = note(standing, key, call->part);
    if (entry != NULL) {
        const int ends_alone = call->src == rank || call->part == WEFT__CALL_BEGINS;
        entry->called.call = (int32_t)weft__current_call;
        entry->called.peer = call->src == rank ? call->dst : call->src;
        entry->called.flags = ends_alone ? WEFT__CALLED_ENDS_ALONE : 0;
        entry->exchange = call->exchange;
        entry->stream_id = call->stream_id;
        if (call->part != WEFT__CALL_GOES_ON)
            entry->begin_stream_id = call->stream_id;
        weft__log(WEFT__LOG_DEBUG, rank, "%s number %llu on stream %llu",
                  weft__call_name(entry->called.call), (unsigned long long)entry->called.count,
                  (unsigned long long)call->stream_id);
    }
    pthread_mutex_unlock(&standing->mutex);
}

void weft__standing_note_exchange(struct weft__standing *standing, int32_t call)
{
    pthread_mutex_lock(&standing->mutex);
    struct weft__standing_entry *entry = note(standing, 0, WEFT__CALL_IS_WHOLE);
    if (entry != NULL)
        entry->called.call = call;
    pthread_mutex_unlock(&standing->mutex);
}

void weft__standing_forget(struct weft__standing *standing)
{
    pthread_mutex_lock(&standing->mutex);
    standing->state = WEFT__STANDING_UNKNOWN;
    pthread_mutex_unlock(&standing->mutex);
}

enum weft__call weft__standing_find_call(struct weft__standing *standing, uint64_t exchange)
{
    struct weft__called last = {.call = WEFT__CALL_UNKNOWN};
    pthread_mutex_lock(&standing->mutex);
    for (int32_t i = 0; i < standing->num_entries; i++) {
        const struct weft__standing_entry *entry = &standing->entries[i];
        if (entry->exchange == exchange && entry->called.order > last.order)
            last = entry->called;
    }
    pthread_mutex_unlock(&standing->mutex);
    return (enum weft__call)last.call;
}

uint64_t weft__standing_count(struct weft__standing *standing, uint64_t exchange,
                              enum weft__call call)
{
    uint64_t count = 0;
    pthread_mutex_lock(&standing->mutex);
    for (int32_t i = 0; i < standing->num_entries; i++) {
        const struct weft__standing_entry *entry = &standing->entries[i];
        if (entry->exchange == exchange && entry->called.call == (int32_t)call)
            count = entry->called.peer == WEFT__ANY_PEER ? entry->called.count : UINT64_MAX;
    }
    if (standing->state == WEFT__STANDING_UNKNOWN)
        count = UINT64_MAX;
    pthread_mutex_unlock(&standing->mutex);
    return count;
}

/* ---------------------------------------------------------------- telling the rendezvous */

static int is_awaited(const struct weft__standing *standing,
                      const struct weft__standing_entry *entry, const struct weft__hold *hold)
{
    if (entry->called.flags & WEFT__CALLED_ENDS_ALONE)
        return 0;
    switch (hold->kind) {
    case WEFT__HELD_BY_HOSTS:
        return hold->standing == standing && entry->called.key == 0;
    case WEFT__HELD_BY_STREAM:
        return entry->called.key != 0 && entry->stream_id == hold->stream_id;
    case WEFT__HELD_BY_ALL:
        break;
    }
    return hold->standing == standing && entry->called.key != 0;
}

static int compare_orders(const void *one, const void *other)
{
    const uint64_t a = ((const struct weft__standing_entry *)one)->called.order;
    const uint64_t b = ((const struct weft__standing_entry *)other)->called.order;
    return a < b ? -1 : a > b;
}

/* All calls that are remembered, in their order, in new memory. Returns their number. */
static int32_t collect(const struct weft__standing *standing, struct weft__standing_entry **all)
{
    const int32_t num_last = standing->num_entries;
    const int32_t num_earlier = standing->num_earlier < WEFT__MAX_EARLIER
                                    ? (int32_t)standing->num_earlier
                                    : WEFT__MAX_EARLIER;
    *all = calloc((size_t)(num_last + num_earlier) + 1, sizeof **all);
    if (*all == NULL)
        return 0;
    for (int32_t i = 0; i < num_last; i++) {
        (*all)[i] = standing->entries[i];
        (*all)[i].called.flags |= WEFT__CALLED_LAST;
    }
    memcpy(*all + num_last, standing->earlier, (size_t)num_earlier * sizeof **all);
    qsort(*all, (size_t)num_last + (size_t)num_earlier, sizeof **all, compare_orders);
    return num_last + num_earlier;
}

/* The call before entries[idx] on its stream, of which the last part comes before its first. */
static int32_t find_behind(const struct weft__standing_entry *entries, int32_t idx)
{
    int32_t behind = entries[idx].called.key == 0 ? -1 : idx - 1;
    while (behind >= 0 && (entries[behind].called.key == 0 ||
                           entries[behind].stream_id != entries[idx].begin_stream_id ||
                           entries[behind].called.order >= entries[idx].begin_order))
        behind--;
    return behind;
}

/* Needs the mutex held, so that counts and hold belong together: a thread that waits makes no
 * calls. */
static int32_t tell(const struct weft__standing *standing, const struct weft__hold *hold,
                    struct weft__called **told)
{
    struct weft__standing_entry *entries;
    const int32_t num_entries = collect(standing, &entries);
    struct weft__called *called = calloc((size_t)num_entries + 1, sizeof *called);
    int any = 0;
    for (int32_t i = 0; called != NULL && i < num_entries; i++) {
        called[i] = entries[i].called;
        called[i].behind = find_behind(entries, i);
        if (is_awaited(standing, &entries[i], hold)) {
            called[i].flags |= WEFT__CALLED_AWAITED;
            any = 1;
        }
    }
    free(entries);
    if (any) {
        *told = called;
        return num_entries;
    }
    free(called);
    return 0;
}

int32_t weft__standing_look(struct weft__standing *standing, struct weft__called **called)
{
    struct weft__hold hold = {.kind = WEFT__HELD_BY_ALL};
    int32_t num_called = 0;
    pthread_mutex_lock(&standing->mutex);
    const uint64_t number = find_hold(standing->thread, &hold);
    const int is_long = number != 0 && number == standing->seen_hold;
    if (!is_long)
        standing->seen_ns = weft__now_ns();
    standing->seen_hold = number;
    if (is_long && number != standing->told_hold && standing->state == WEFT__STANDING_KNOWN) {
        num_called = tell(standing, &hold, called);
        standing->told_hold = number;
    }
    pthread_mutex_unlock(&standing->mutex);
    return num_called;
}

struct weft__last_call weft__standing_last_call(struct weft__standing *standing)
{
    struct weft__called called = {.call = WEFT__CALL_UNKNOWN};
    struct weft__hold hold;
    pthread_mutex_lock(&standing->mutex);
    for (int32_t i = 0; i < standing->num_entries; i++) {
        if (standing->entries[i].called.order >= called.order)
            called = standing->entries[i].called;
    }
    const uint64_t number = find_hold(standing->thread, &hold);
    struct weft__last_call last = {.call = called.call, .count = called.count};
    if (number != 0 && number == standing->seen_hold)
        last.held_ms = (uint64_t)((weft__now_ns() - standing->seen_ns) / WEFT__NS_PER_MS);
    pthread_mutex_unlock(&standing->mutex);
    return last;
}

struct weft__wait_list weft__standing_answer(struct weft__standing *standing,
                                             struct weft__waits *waits,
                                             const struct weft__wait *asked_in)
{
    struct weft__wait_list answer = weft__waits_find(waits, asked_in->exchange);
    for (int32_t i = 0; i < answer.num_waits; i++)
        answer.waits[i].call =
            (int32_t)weft__standing_find_call(standing, answer.waits[i].exchange);
    answer.count =
        weft__standing_count(standing, asked_in->exchange, (enum weft__call)asked_in->call);
    return answer;
}
