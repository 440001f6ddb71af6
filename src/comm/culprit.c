/* SPDX-License-Identifier: MIT */
/*
 * The chain of waits is followed by questions, one rank at a time, through the rendezvous: each answers
 * whom it waits for. A rank whose own wait has failed answers with that one, and for a rank that has
 * left the rendezvous does, so it does not matter who gives up first: all who ask come to the same
 * end.
 */
#include "comm/culprit.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "comm/thread.h"

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

/* Without the rendezvous nobody can be asked. It is silent like a stopped rank if it lives in one. */
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

static void follow(weft_comm *comm, const struct weft__wait *direct, int64_t deadline_ns,
                   struct weft__culprit *culprit)
{
    struct weft__wait wait = *direct;
    *culprit = (struct weft__culprit){.story = ""};
    /* With more hops than ranks the waits go round in a circle. */
    for (int32_t num_hops = 0; num_hops < comm->num_ranks; num_hops++) {
        const int32_t asked = wait.rank;
        culprit->rank = asked;
        const enum weft__ask_result result =
            weft__comm_ask(comm, asked, wait.exchange, deadline_ns, &wait);
        if (result == WEFT__ASK_IMPOSSIBLE) {
            blame_direct(culprit, direct, "the others cannot be asked");
            return;
        }
        if (result == WEFT__ASK_ANSWERED && wait.rank != WEFT__NOBODY) {
            tell_hop(culprit, num_hops, asked, wait.rank);
            continue;
        }
        const int has_left = atomic_load(&comm->status.rank_states[asked]) == WEFT__RANK_LEFT;
        culprit->state = result == WEFT__ASK_SILENT ? WEFT__CULPRIT_SILENT
                         : has_left                 ? WEFT__CULPRIT_LEFT
                                                    : WEFT__CULPRIT_NOT_WAITING;
        tell_end(culprit, num_hops);
        return;
    }
    blame_direct(culprit, direct, "the ranks wait for each other in a circle");
}

void weft__comm_find_culprit(weft_comm *comm, const struct weft__wait *direct,
                             struct weft__culprit *culprit)
{
    const int64_t timeout_ms =
        comm->timeout_ms < WEFT__INQUIRY_MS ? comm->timeout_ms : WEFT__INQUIRY_MS;
    const int64_t deadline_ns = weft__now_ns() + timeout_ms * WEFT__NS_PER_MS;
    struct weft__wait own;
    weft__waits_fail(&comm->waits, direct);
    /* Who hears himself knows that the rendezvous passes questions on. */
    if (weft__comm_ask(comm, comm->rank, direct->exchange, deadline_ns, &own) == WEFT__ASK_SILENT)
        blame_rendezvous(comm, culprit, direct);
    else
        follow(comm, direct, deadline_ns, culprit);
}
