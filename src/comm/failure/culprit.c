/* SPDX-License-Identifier: MIT */
/*
 * The waits are followed by questions, one rank at a time, through the rendezvous: each answers for
 * whom it waits, and those are asked in turn, the nearest first, each once. A rank whose own waits
 * have failed answers with those, and for a rank that has left the rendezvous does, so it does not
 * matter who gives up first: all who ask come to the same end.
 *
 * The end is a rank that does not answer. One that waits for nobody, or for work of its own, which
 * is a wait for itself, is the end only if all others answer: it may be on its way, and one of many
 * waits be about to end, while the others are stuck.
 *
 * Where there is no end, ranks wait in a circle: most often one of them has called something else.
 * It is the one that waits in another exchange than all others; or, where that exchange has several
 * operations, the one rank for which all others wait.
 */
#include "comm/failure/culprit.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/host/thread.h"

static void tell(struct weft__culprit *culprit, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void tell(struct weft__culprit *culprit, const char *format, ...)
{
    const size_t length = strlen(culprit->story);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(culprit->story + length, sizeof culprit->story - length, format, arguments);
    va_end(arguments);
}

/* How much of a long chain is told: its beginning and its end. */
static void tell_hop(struct weft__culprit *culprit, int32_t hop, int32_t from, int32_t to)
{
    enum { MAX_TOLD = 4 };
    if (hop == 0)
        tell(culprit, "rank %d itself waits for rank %d", from, to);
    else if (hop < MAX_TOLD)
        tell(culprit, ", that for rank %d", to);
    else if (hop == MAX_TOLD)
        tell(culprit, ", and so on");
}

static void tell_end(struct weft__culprit *culprit, int32_t num_hops)
{
    static const char *const ends[] = {
        [WEFT__CULPRIT_SILENT] = "does not answer",
        [WEFT__CULPRIT_NOT_WAITING] = "waits for no rank",
        [WEFT__CULPRIT_AT_OWN_WORK] = "waits for its own work",
        [WEFT__CULPRIT_LEFT] = "has left the communicator",
    };
    tell(culprit, num_hops == 0 ? "rank %d %s" : "; rank %d %s", culprit->rank,
         ends[culprit->state]);
}

static void blame_direct(struct weft__culprit *culprit, const struct weft__wait *direct,
                         const char *why)
{
    *culprit = (struct weft__culprit){.rank = direct->rank, .state = WEFT__CULPRIT_UNKNOWN};
    tell(culprit, "%s", why);
}

/* Without the rendezvous nobody can be asked. It is silent like a stopped rank if it lives in
 * one. */
static void blame_rendezvous(const weft_comm *comm, struct weft__culprit *culprit,
                             const struct weft__wait *direct)
{
    const int32_t host = weft__comm_rank_of_rendezvous(comm);
    blame_direct(culprit, direct, "the rendezvous does not answer");
    if (host == WEFT__NOBODY)
        return;
    culprit->rank = host;
    culprit->state = WEFT__CULPRIT_SILENT;
    tell(culprit, ", which is in the process of rank %d", host);
}

/* A rank that somebody waits for. */
struct found {
    struct weft__wait wait; /* the first that was found */
    int32_t waiting;        /* whose it is, in the same array */
    int32_t next;           /* on the way to the end */
};

/* In which exchange a rank waits, and how many ranks wait for it. */
struct place {
    enum { PLACE_UNKNOWN, PLACE_KNOWN } state;
    uint64_t exchange;
    int32_t num_waiting;
    int has_answered; /* with waits of its own, which are counted */
};

struct search {
    struct found *found;  /* in the order in which they are asked; the first is the awaited rank */
    struct place *places; /* of all ranks */
    int32_t num_found;
    int32_t end; /* in found, or WEFT__NOBODY: there is none */
    enum weft__ask_result end_result;
    int end_is_at_own_work, asker_is_at_own_work;
};

static int waits_for(const struct weft__wait_list *waits, int32_t rank)
{
    for (int32_t i = 0; i < waits->num_waits; i++) {
        if (waits->waits[i].rank == rank)
            return 1;
    }
    return 0;
}

static void add(struct search *search, const struct weft__wait *wait, int32_t waiting)
{
    for (int32_t i = 0; i < search->num_found; i++) {
        if (search->found[i].wait.rank == wait->rank)
            return;
    }
    search->found[search->num_found++] = (struct found){.wait = *wait, .waiting = waiting};
}

static void note_place(struct search *search, int32_t rank, uint64_t exchange)
{
    struct place *place = &search->places[rank];
    if (place->state == PLACE_UNKNOWN)
        place->exchange = exchange;
    place->state = PLACE_KNOWN;
}

/* A rank's answer. */
static void note_waits(struct search *search, int32_t rank, const struct weft__wait_list *waits)
{
    struct place *place = &search->places[rank];
    if (waits->num_waits == 0 || place->has_answered)
        return;
    place->has_answered = 1;
    note_place(search, rank, waits->waits[0].exchange);
    for (int32_t i = 0; i < waits->num_waits; i++) {
        int is_counted = waits->waits[i].rank == rank;
        for (int32_t j = 0; j < i; j++)
            is_counted |= waits->waits[j].rank == waits->waits[i].rank;
        search->places[waits->waits[i].rank].num_waiting += !is_counted;
    }
}

static void ask_all(weft_comm *comm, struct search *search, int64_t deadline_ns)
{
    for (int32_t asked = 0; asked < search->num_found; asked++) {
        const struct weft__wait *wait = &search->found[asked].wait;
        struct weft__wait_list waits;
        const enum weft__ask_result result =
            weft__comm_ask(comm, wait->rank, wait, deadline_ns, &waits);
        if (result != WEFT__ASK_ANSWERED) {
            search->end = asked;
            search->end_result = result;
            return;
        }
        const int is_at_own_work = waits_for(&waits, wait->rank);
        if ((waits.num_waits == 0 || is_at_own_work) && search->end == WEFT__NOBODY) {
            search->end = asked;
            search->end_is_at_own_work = is_at_own_work;
        }
        note_waits(search, wait->rank, &waits);
        for (int32_t i = 0; i < waits.num_waits; i++)
            add(search, &waits.waits[i], asked);
    }
}

/* Those that are not in the circle, but wait for it, tell who is the odd one. */
static void ask_the_rest(weft_comm *comm, struct search *search, const struct weft__wait *direct,
                         int64_t deadline_ns)
{
    for (int32_t rank = 0; rank < comm->num_ranks; rank++) {
        struct weft__wait_list waits;
        if (!search->places[rank].has_answered &&
            weft__comm_ask(comm, rank, direct, deadline_ns, &waits) == WEFT__ASK_ANSWERED)
            note_waits(search, rank, &waits);
    }
}

/* The one rank for which all others wait, of three or more, or WEFT__NOBODY. */
static int32_t find_awaited_one(const struct search *search, int32_t num_ranks)
{
    int32_t awaited_one = WEFT__NOBODY, num_answered = 0;
    for (int32_t rank = 0; rank < num_ranks; rank++)
        num_answered += search->places[rank].has_answered;
    for (int32_t rank = 0; rank < num_ranks; rank++) {
        const struct place *place = &search->places[rank];
        const int32_t num_others = num_answered - place->has_answered;
        if (num_others < 2 || place->num_waiting < num_others)
            continue;
        if (awaited_one != WEFT__NOBODY)
            return WEFT__NOBODY;
        awaited_one = rank;
    }
    return awaited_one;
}

/* The one rank that waits in another exchange than all others, of three or more, or
 * WEFT__NOBODY. */
static int32_t find_odd_one(const struct search *search, int32_t num_ranks)
{
    int32_t odd_one = WEFT__NOBODY;
    for (int32_t rank = 0; rank < num_ranks; rank++) {
        int32_t num_same = 0, num_others = 0;
        const struct place *place = &search->places[rank];
        for (int32_t i = 0; i < num_ranks; i++) {
            const struct place *other = &search->places[i];
            if (other->state == PLACE_KNOWN)
                *(other->exchange == place->exchange ? &num_same : &num_others) += 1;
        }
        if (place->state == PLACE_UNKNOWN || num_same > 1 || num_others < 2)
            continue;
        if (odd_one != WEFT__NOBODY)
            return WEFT__NOBODY;
        odd_one = rank;
    }
    return odd_one;
}

/* Blames another call only if it is certain that `rank`, which also waits, has not made this rank's
 * call. A rank that has made it may wait for a message that was lost. */
static void compare_calls(weft_comm *comm, const struct weft__wait *direct, int32_t rank,
                          int64_t deadline_ns, struct weft__culprit *culprit)
{
    const uint64_t own =
        weft__standing_count(&comm->standing, direct->exchange, (enum weft__call)direct->call);
    struct weft__wait_list waits;
    if (own == UINT64_MAX ||
        weft__comm_ask(comm, rank, direct, deadline_ns, &waits) != WEFT__ASK_ANSWERED ||
        waits.count >= own || waits.num_waits == 0)
        return;
    culprit->state = WEFT__CULPRIT_IN_OTHER_CALL;
    culprit->other = rank;
    culprit->call = waits.waits[0].call;
}

static void blame_circle(weft_comm *comm, struct search *search, int64_t deadline_ns,
                         struct weft__culprit *culprit)
{
    const struct weft__wait *direct = &search->found[0].wait;
    const struct place *own = &search->places[comm->rank];
    const struct place *awaited = &search->places[direct->rank];
    blame_direct(culprit, direct, "the ranks wait for each other in a circle");
    culprit->state = WEFT__CULPRIT_IN_CIRCLE;
    ask_the_rest(comm, search, direct, deadline_ns);
    int32_t odd_one = find_odd_one(search, comm->num_ranks);
    if (odd_one == WEFT__NOBODY && awaited->exchange == own->exchange)
        odd_one = find_awaited_one(search, comm->num_ranks);
    if (odd_one != WEFT__NOBODY) {
        culprit->rank = odd_one;
        tell(culprit, ", rank %d in another operation than the others", odd_one);
    } else if (awaited->exchange != own->exchange) {
        tell(culprit, ", rank %d in another operation than rank %d", direct->rank, comm->rank);
    }
    if (odd_one == comm->rank)
        compare_calls(comm, direct, direct->rank, deadline_ns, culprit);
    else
        compare_calls(comm, direct, culprit->rank, deadline_ns, culprit);
}

static void blame_end(const weft_comm *comm, struct search *search, struct weft__culprit *culprit)
{
    const int32_t rank = search->found[search->end].wait.rank;
    const int has_left = atomic_load(&comm->status.rank_states[rank]) == WEFT__RANK_LEFT;
    *culprit = (struct weft__culprit){
        .rank = rank,
        .state = search->end_result == WEFT__ASK_SILENT ? WEFT__CULPRIT_SILENT
                 : has_left                             ? WEFT__CULPRIT_LEFT
                 : search->end_is_at_own_work           ? WEFT__CULPRIT_AT_OWN_WORK
                                                        : WEFT__CULPRIT_NOT_WAITING};
    for (int32_t i = search->end; i != 0; i = search->found[i].waiting)
        search->found[search->found[i].waiting].next = i;
    int32_t num_hops = 0;
    for (int32_t i = 0; i != search->end; i = search->found[i].next) {
        const int32_t next = search->found[i].next;
        tell_hop(culprit, num_hops++, search->found[i].wait.rank, search->found[next].wait.rank);
    }
    tell_end(culprit, num_hops);
}

static void blame_own_work(int32_t rank, struct weft__culprit *culprit)
{
    *culprit = (struct weft__culprit){.rank = rank, .state = WEFT__CULPRIT_AT_OWN_WORK};
    tell_end(culprit, 0);
}

static void search_from(weft_comm *comm, struct search *search, const struct weft__wait *direct,
                        int64_t deadline_ns, struct weft__culprit *culprit)
{
    add(search, direct, 0);
    note_place(search, comm->rank, direct->exchange);
    ask_all(comm, search, deadline_ns);
    if (search->end_result == WEFT__ASK_IMPOSSIBLE)
        blame_direct(culprit, direct, "the others cannot be asked");
    else if (search->end_result == WEFT__ASK_ANSWERED && search->asker_is_at_own_work)
        blame_own_work(comm->rank, culprit);
    else if (search->end == WEFT__NOBODY)
        blame_circle(comm, search, deadline_ns, culprit);
    else
        blame_end(comm, search, culprit);
}

static void follow(weft_comm *comm, const struct weft__wait *direct,
                   const struct weft__wait_list *own, int64_t deadline_ns,
                   struct weft__culprit *culprit)
{
    struct search search = {.found = calloc((size_t)comm->num_ranks, sizeof(*search.found)),
                            .places = calloc((size_t)comm->num_ranks, sizeof(*search.places)),
                            .end = WEFT__NOBODY,
                            .end_result = WEFT__ASK_ANSWERED,
                            .asker_is_at_own_work = waits_for(own, comm->rank)};
    if (search.found != NULL && search.places != NULL)
        search_from(comm, &search, direct, deadline_ns, culprit);
    else
        blame_direct(culprit, direct, "there is no memory to ask the others");
    free(search.found);
    free(search.places);
}

void weft__comm_find_culprit(weft_comm *comm, const struct weft__wait *direct,
                             struct weft__culprit *culprit)
{
    const int64_t timeout_ms =
        comm->timeout_ms < WEFT__INQUIRY_MS ? comm->timeout_ms : WEFT__INQUIRY_MS;
    const int64_t deadline_ns = weft__now_ns() + timeout_ms * WEFT__NS_PER_MS;
    struct weft__wait_list own = {.num_waits = 0};
    weft__waits_fail(&comm->waits, direct);
    /* Who hears himself knows that the rendezvous passes questions on. */
    if (weft__comm_ask(comm, comm->rank, direct, deadline_ns, &own) == WEFT__ASK_SILENT)
        blame_rendezvous(comm, culprit, direct);
    else
        follow(comm, direct, &own, deadline_ns, culprit);
}
