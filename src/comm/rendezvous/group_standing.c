/* SPDX-License-Identifier: MIT */
/* Compares where the members of a group stand (standing.h): finds those that will wait for ever. */
#include <stdlib.h>
#include <string.h>

#include "comm/host/thread.h"
#include "comm/rendezvous/group_internal.h"

void weft__group_forget_standing(struct weft__member *member)
{
    free(member->called);
    member->called = NULL;
    member->num_called = 0;
}

enum weft__wire_result weft__group_take_standing(struct weft__group *group, int32_t rank,
                                                 const struct weft__frame *frame)
{
    struct weft__member *member = &group->members[rank];
    const size_t num_called = frame->body_bytes / sizeof *member->called;
    if (group->phase != WEFT__GROUP_MET || num_called == 0 || num_called > WEFT__MAX_CALLED ||
        frame->body_bytes % sizeof *member->called != 0)
        return WEFT__WIRE_GARBAGE;
    weft__group_forget_standing(member);
    member->called = malloc(frame->body_bytes);
    if (member->called == NULL) /* calls that do not fit are found at the deadline */
        return WEFT__WIRE_OK;
    memcpy(member->called, frame->body, frame->body_bytes);
    for (int32_t i = 0; i < (int32_t)num_called; i++) {
        const struct weft__called *called = &member->called[i];
        if (called->peer < WEFT__ANY_PEER || called->peer >= group->num_ranks ||
            called->behind < -1 || called->behind >= i)
            return WEFT__WIRE_GARBAGE;
    }
    member->num_called = (int32_t)num_called;
    group->standing = WEFT__STANDING_NEW;
    return WEFT__WIRE_OK;
}

/* ---------------------------------------------------------------- ranks that stand still */

/* A call of a rank, as far as is known. */
struct call {
    const struct weft__called *called;
    int32_t rank;
    uint8_t is_vain;
    uint8_t is_held; /* behind a call in vain */
};

struct search {
    const struct weft__group *group;
    struct call *calls;   /* those of each rank in its order, rank by rank */
    struct call **by_key; /* of each key those with the highest count first */
    int32_t *first;       /* [num_ranks + 1] of a rank, in calls */
    uint8_t *is_still;    /* [num_ranks] */
    int32_t num_calls, num_still;
};

static int compare_calls(const void *one, const void *other)
{
    const struct weft__called *a = (*(struct call *const *)one)->called;
    const struct weft__called *b = (*(struct call *const *)other)->called;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return a->count > b->count ? -1 : a->count < b->count;
}

/* At first all ranks stand still, and all calls are in vain. */
static void open_search(struct search *search)
{
    for (int32_t rank = 0; rank < search->group->num_ranks; rank++) {
        const struct weft__member *member = &search->group->members[rank];
        search->is_still[rank] = member->num_called > 0;
        search->num_still += search->is_still[rank];
        search->first[rank] = search->num_calls;
        for (int32_t i = 0; i < member->num_called; i++) {
            struct call *call = &search->calls[search->num_calls];
            *call = (struct call){&member->called[i], rank, 1, 0};
            search->by_key[search->num_calls++] = call;
        }
    }
    search->first[search->group->num_ranks] = search->num_calls;
    qsort(search->by_key, (size_t)search->num_calls, sizeof(struct call *), compare_calls);
}

/* Marks the calls that wait behind another call of their rank which will not end. */
static void hold(struct search *search)
{
    for (int32_t i = 0; i < search->num_calls; i++) {
        struct call *call = &search->calls[i];
        if (call->called->behind < 0)
            continue;
        const struct call *before =
            &search->calls[search->first[call->rank] + call->called->behind];
        call->is_held = before->is_vain || before->is_held;
    }
}

/* The number of calls from `begin` on that are the same call, by as many ranks. */
static int32_t count_same(const struct search *search, int32_t begin)
{
    int32_t end = begin + 1;
    while (end < search->num_calls &&
           compare_calls(&search->by_key[begin], &search->by_key[end]) == 0)
        end++;
    return end - begin;
}

/* The ranks that stand still and take part in the call. */
static int32_t count_takers(const struct search *search, const struct call *call)
{
    return call->called->peer == WEFT__ANY_PEER
               ? search->num_still
               : search->is_still[call->rank] + search->is_still[call->called->peer];
}

/* Marks equal calls as vain if a rank has not made the call, or another rank's call is held.
 * num_makers: the ranks that stand still and have made the call. */
static void doubt_same(const struct search *search, struct call **same, int32_t num_same,
                       int32_t num_makers)
{
    const int is_lacking = num_makers < count_takers(search, same[0]);
    int32_t num_held = 0;
    for (int32_t i = 0; i < num_same; i++)
        num_held += same[i]->is_held && search->is_still[same[i]->rank];
    for (int32_t i = 0; i < num_same; i++)
        same[i]->is_vain = search->is_still[same[i]->rank] &&
                           !(same[i]->called->flags & WEFT__CALLED_ENDS_ALONE) &&
                           (is_lacking || num_held > same[i]->is_held);
}

static void doubt(struct search *search)
{
    int32_t num_makers = 0;
    for (int32_t begin = 0, num_same; begin < search->num_calls; begin += num_same) {
        struct call **same = &search->by_key[begin];
        num_same = count_same(search, begin);
        if (begin == 0 || same[-1]->called->key != same[0]->called->key)
            num_makers = 0;
        for (int32_t i = 0; i < num_same; i++)
            num_makers += search->is_still[same[i]->rank] &&
                          (same[i]->called->flags & WEFT__CALLED_LAST) != 0;
        doubt_same(search, same, num_same, num_makers);
    }
}

/* The first call that the rank waits for in vain, or NULL. */
static const struct weft__called *find_vain(const struct search *search, int32_t rank)
{
    for (int32_t i = search->first[rank]; i < search->first[rank + 1]; i++)
        if (search->calls[i].is_vain && (search->calls[i].called->flags & WEFT__CALLED_AWAITED))
            return search->calls[i].called;
    return NULL;
}

static int32_t count_vain(const struct search *search)
{
    int32_t num_vain = 0;
    for (int32_t i = 0; i < search->num_calls; i++)
        num_vain += search->calls[i].is_vain;
    return num_vain;
}

/* Removes the calls that are not in vain, and the ranks that may go on, until there are no
 * further ones. */
static void find_still(struct search *search)
{
    int32_t num_vain = search->num_calls, num_before = num_vain + 1;
    while (num_vain < num_before) {
        num_before = num_vain;
        hold(search);
        doubt(search);
        for (int32_t rank = 0; rank < search->group->num_ranks; rank++) {
            if (search->is_still[rank] && find_vain(search, rank) == NULL) {
                search->is_still[rank] = 0;
                search->num_still--;
            }
        }
        num_vain = count_vain(search);
    }
}

/* ---------------------------------------------------------------- the failure */

/* The one rank, of three or more, that waits in another call than all others, or WEFT__NOBODY. */
static int32_t find_odd_one(const struct search *search)
{
    int32_t odd_one = WEFT__NOBODY;
    for (int32_t rank = 0; rank < search->group->num_ranks; rank++) {
        int32_t num_same = 0;
        if (!search->is_still[rank])
            continue;
        const uint64_t key = find_vain(search, rank)->key;
        for (int32_t other = 0; other < search->group->num_ranks; other++)
            num_same += search->is_still[other] && find_vain(search, other)->key == key;
        if (num_same > 1 || search->num_still < 3)
            continue;
        if (odd_one != WEFT__NOBODY)
            return WEFT__NOBODY;
        odd_one = rank;
    }
    return odd_one;
}

/* 1: the rank does not begin a call that another one waits for: it has made it fewer times, or has
 * it behind a call in vain. */
static int is_in_the_way(const struct search *search, int32_t rank,
                         const struct weft__called *called)
{
    for (int32_t i = search->first[rank]; i < search->first[rank + 1]; i++)
        if (search->calls[i].called->key == called->key &&
            search->calls[i].called->count >= called->count)
            return search->calls[i].called->count == called->count && search->calls[i].is_held;
    return called->peer == WEFT__ANY_PEER || called->peer == rank;
}

/* The lowest rank that waits in a call for which `rank` is in the way. Prefers a rank in another
 * call than `rank`. */
static int32_t find_other(const struct search *search, int32_t rank)
{
    const struct weft__called *own = find_vain(search, rank);
    int32_t any = WEFT__NOBODY;
    for (int32_t other = 0; other < search->group->num_ranks; other++) {
        if (other == rank || !search->is_still[other])
            continue;
        const struct weft__called *called = find_vain(search, other);
        if (!is_in_the_way(search, rank, called))
            continue;
        if (called->key != own->key)
            return other;
        any = any == WEFT__NOBODY ? other : any;
    }
    return any;
}

static int32_t find_first(const struct search *search)
{
    int32_t rank = 0;
    while (!search->is_still[rank])
        rank++;
    return rank;
}

static void fail(struct weft__group *group, const struct search *search)
{
    const int32_t odd_one = find_odd_one(search);
    int32_t one = odd_one != WEFT__NOBODY ? odd_one : find_first(search);
    int32_t other = find_other(search, one);
    if (other == WEFT__NOBODY) /* the others wait for a third rank */
        other = find_first(search) == one ? one : find_first(search);
    const int32_t ranks[2] = {one < other ? one : other, one < other ? other : one};
    const int32_t calls[2] = {find_vain(search, ranks[0])->call, find_vain(search, ranks[1])->call};
    const struct weft__failure_notice notice = weft__group_failure(
        WEFT_ERROR_MISMATCH, odd_one,
        "ranks disagree on what to call: rank %d called %s and rank %d called %s%s", ranks[0],
        weft__call_name(calls[0]), ranks[1], weft__call_name(calls[1]),
        calls[0] == calls[1] ? ", of another object or another time" : "");
    group->verdict_ns = 0;
    weft__group_fail(group, &notice);
    for (int32_t rank = 0; rank < group->num_ranks; rank++)
        weft__group_forget_standing(&group->members[rank]);
}

static int32_t count_called(const struct weft__group *group)
{
    int32_t num_called = 0;
    for (int32_t rank = 0; rank < group->num_ranks; rank++)
        num_called += group->members[rank].num_called;
    return num_called;
}

/* Other members may be about to tell that they wait too. With their calls the odd rank shows. */
static int is_time(struct weft__group *group, int64_t now_ns)
{
    enum { PATIENCE_MS = 300 };
    int32_t num_told = 0;
    for (int32_t rank = 0; rank < group->num_ranks; rank++)
        num_told += group->members[rank].num_called > 0;
    if (group->verdict_ns == 0)
        group->verdict_ns = now_ns + PATIENCE_MS * WEFT__NS_PER_MS;
    return num_told == group->num_ranks || now_ns >= group->verdict_ns;
}

void weft__group_compare_standings(struct weft__group *group)
{
    const int64_t now_ns = weft__now_ns();
    const int is_due = group->verdict_ns != 0 && now_ns >= group->verdict_ns;
    if (group->standing == WEFT__STANDING_OLD && !is_due)
        return;
    group->standing = WEFT__STANDING_OLD;
    const size_t num_called = (size_t)count_called(group) + 1;
    struct search search = {.group = group,
                            .calls = calloc(num_called, sizeof(struct call)),
                            .by_key = calloc(num_called, sizeof(struct call *)),
                            .first = calloc((size_t)group->num_ranks + 1, sizeof(int32_t)),
                            .is_still = calloc((size_t)group->num_ranks + 1, 1)};
    if (search.calls != NULL && search.by_key != NULL && search.first != NULL &&
        search.is_still != NULL) {
        open_search(&search);
        find_still(&search);
        if (search.num_still == 0)
            group->verdict_ns = 0;
        else if (is_time(group, now_ns))
            fail(group, &search);
    } else {
        group->verdict_ns = 0; /* no memory: the fault is found at the deadline */
    }
    free(search.calls);
    free(search.by_key);
    free(search.first);
    free(search.is_still);
}
