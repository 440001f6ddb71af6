/* SPDX-License-Identifier: MIT */
/* Compares where the members of a group stand (standing.h): finds those that will wait for ever. */
#include <stdlib.h>
#include <string.h>

#include "comm/group_internal.h"
#include "comm/thread.h"

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
    for (size_t i = 0; i < num_called; i++)
        if (member->called[i].peer < WEFT__ANY_PEER || member->called[i].peer >= group->num_ranks)
            return WEFT__WIRE_GARBAGE;
    member->num_called = (int32_t)num_called;
    group->standing = WEFT__STANDING_NEW;
    return WEFT__WIRE_OK;
}

/* ---------------------------------------------------------------- ranks that stand still */

/* The number of times that the rank has made a call. */
static uint64_t count_of(const struct weft__group *group, int32_t rank, uint64_t key)
{
    const struct weft__member *member = &group->members[rank];
    for (int32_t i = 0; i < member->num_called; i++)
        if (member->called[i].key == key)
            return member->called[i].count;
    return 0;
}

/* is_still[rank]: the rank may stand still. fewest: for each key, the fewest times that any of
 * these ranks has made the call. */
struct search {
    struct weft__group *group;
    uint8_t *is_still;
    struct fewest {
        uint64_t key;
        uint64_t count;
        int32_t num_seen; /* ranks that have made the call at all */
    } * fewest;
    int32_t num_fewest, num_still;
};

static int compare_keys(const void *one, const void *other)
{
    const uint64_t a = ((const struct fewest *)one)->key, b = ((const struct fewest *)other)->key;
    return a < b ? -1 : a > b;
}

/* Collects the calls of all ranks, sorts them, then keeps one for each key. */
static void count_fewest(struct search *search)
{
    const struct weft__group *group = search->group;
    int32_t num_all = 0;
    search->num_still = 0;
    for (int32_t rank = 0; rank < group->num_ranks; rank++) {
        const struct weft__member *member = &group->members[rank];
        search->num_still += search->is_still[rank];
        for (int32_t i = 0; search->is_still[rank] && i < member->num_called; i++)
            search->fewest[num_all++] =
                (struct fewest){member->called[i].key, member->called[i].count, 1};
    }
    qsort(search->fewest, (size_t)num_all, sizeof *search->fewest, compare_keys);
    search->num_fewest = 0;
    for (int32_t i = 0; i < num_all; i++) {
        const struct fewest next = search->fewest[i];
        struct fewest *last =
            search->num_fewest > 0 ? &search->fewest[search->num_fewest - 1] : NULL;
        if (last == NULL || last->key != next.key) {
            search->fewest[search->num_fewest++] = next;
            continue;
        }
        last->num_seen++;
        last->count = next.count < last->count ? next.count : last->count;
    }
}

/* 1: some rank that stands still has made the call fewer times. */
static int is_lacking(const struct search *search, const struct weft__called *called)
{
    if (called->peer != WEFT__ANY_PEER)
        return search->is_still[called->peer] &&
               count_of(search->group, called->peer, called->key) < called->count;
    const struct fewest wanted = {.key = called->key};
    const struct fewest *found =
        bsearch(&wanted, search->fewest, (size_t)search->num_fewest, sizeof wanted, compare_keys);
    return found == NULL || found->num_seen < search->num_still || found->count < called->count;
}

/* The first call that the rank waits for in vain, or NULL. */
static const struct weft__called *find_vain(const struct search *search, int32_t rank)
{
    const struct weft__member *member = &search->group->members[rank];
    const struct weft__called *first = NULL;
    for (int32_t i = 0; i < member->num_called; i++) {
        const struct weft__called *called = &member->called[i];
        if (called->is_awaited && (first == NULL || called->order < first->order) &&
            is_lacking(search, called))
            first = called;
    }
    return first;
}

/* Removes the ranks that may go on, until no further one can. */
static void find_still(struct search *search)
{
    int32_t num_out = 1;
    while (num_out > 0) {
        num_out = 0;
        count_fewest(search);
        for (int32_t rank = 0; rank < search->group->num_ranks; rank++) {
            if (search->is_still[rank] && find_vain(search, rank) == NULL) {
                search->is_still[rank] = 0;
                num_out++;
            }
        }
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

/* The lowest rank that waits in a call that `rank` has made fewer times. Prefers a rank in another
 * call than `rank`. */
static int32_t find_other(const struct search *search, int32_t rank)
{
    const struct weft__called *own = find_vain(search, rank);
    int32_t any = WEFT__NOBODY;
    for (int32_t other = 0; other < search->group->num_ranks; other++) {
        if (other == rank || !search->is_still[other])
            continue;
        const struct weft__called *called = find_vain(search, other);
        if ((called->peer != WEFT__ANY_PEER && called->peer != rank) ||
            count_of(search->group, rank, called->key) >= called->count)
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

static void fail(const struct search *search)
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
    search->group->verdict_ns = 0;
    weft__group_fail(search->group, &notice);
    for (int32_t rank = 0; rank < search->group->num_ranks; rank++)
        weft__group_forget_standing(&search->group->members[rank]);
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
    struct search search = {.group = group,
                            .is_still = calloc((size_t)group->num_ranks, 1),
                            .fewest =
                                calloc((size_t)count_called(group) + 1, sizeof(struct fewest))};
    if (search.is_still != NULL && search.fewest != NULL) {
        for (int32_t rank = 0; rank < group->num_ranks; rank++)
            search.is_still[rank] = group->members[rank].num_called > 0;
        find_still(&search);
        if (search.num_still == 0)
            group->verdict_ns = 0;
        else if (is_time(group, now_ns))
            fail(&search);
    } else {
        group->verdict_ns = 0; /* no memory: the fault is found at the deadline */
    }
    free(search.is_still);
    free(search.fewest);
}
