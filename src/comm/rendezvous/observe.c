/* SPDX-License-Identifier: MIT */
#include "comm/rendezvous/observe.h"

#include <stdlib.h>
#include <string.h>

#include "comm/host/error.h"
#include "comm/host/thread.h"
#include "comm/rendezvous/connect_retry.h"

struct view {
    struct weft__observed_rank *ranks;
    int32_t num_ranks;
    int32_t num_awaited; /* reports */
    int32_t num_rosters; /* that are still to come */
};

static weft_result add_roster(struct view *view, const struct weft__frame *frame)
{
    struct weft__roster roster;
    const struct weft__roster_entry *entries = NULL;
    if (frame->body_bytes >= sizeof(roster))
        memcpy(&roster, frame->body, sizeof(roster));
    if (frame->body_bytes < sizeof(roster) || roster.num_ranks < 0 ||
        roster.num_ranks > WEFT__MAX_RANKS ||
        frame->body_bytes != sizeof(roster) + (size_t)roster.num_ranks * sizeof(*entries))
        return weft__error(WEFT_ERROR_SYSTEM, "the rendezvous sends a roster that makes no sense");
    view->num_rosters = roster.num_following;
    const size_t num_ranks = (size_t)view->num_ranks + (size_t)roster.num_ranks;
    struct weft__observed_rank *ranks = realloc(view->ranks, (num_ranks + 1) * sizeof(*ranks));
    if (ranks == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for %zu ranks", num_ranks);
    view->ranks = ranks;
    for (int32_t rank = 0; rank < roster.num_ranks; rank++) {
        struct weft__observed_rank *seen = &view->ranks[view->num_ranks++];
        *seen = (struct weft__observed_rank){
            .key = roster.key, .rank = rank, .num_ranks = roster.num_ranks};
        memcpy(&seen->entry, frame->body + sizeof(roster) + (size_t)rank * sizeof(*entries),
               sizeof(seen->entry));
        seen->entry.host[WEFT__HOST_NAME_BYTES - 1] = '\0';
        if (seen->entry.presence < WEFT__ABSENT || seen->entry.presence > WEFT__DEAD)
            return weft__error(WEFT_ERROR_SYSTEM,
                               "what the rendezvous tells of rank %d makes no sense", rank);
        if (!roster.have_met || seen->entry.presence != WEFT__PRESENT)
            continue;
        seen->state = WEFT__ASKED;
        view->num_awaited++;
    }
    return WEFT_OK;
}

/* Two communicators of one key do not overlap in time: the newest, which comes first, is meant. */
static void add_report(struct view *view, const struct weft__frame *frame)
{
    struct weft__report report;
    if (frame->body_bytes != sizeof(report))
        return;
    memcpy(&report, frame->body, sizeof(report));
    report.error[sizeof(report.error) - 1] = '\0';
    report.machine[sizeof(report.machine) - 1] = '\0';
    for (int32_t i = 0; i < view->num_ranks; i++) {
        struct weft__observed_rank *rank = &view->ranks[i];
        if (rank->key != report.key || rank->rank != report.answer.asked ||
            rank->state != WEFT__ASKED ||
            !weft__wait_list_is_valid(&report.answer.waits, rank->num_ranks))
            continue;
        rank->state = WEFT__REPORTED;
        rank->report = report;
        view->num_awaited--;
        return;
    }
}

static weft_result take(struct view *view, const struct weft__frame *frame)
{
    struct weft__failure_notice notice;
    if (frame->type == WEFT__FRAME_ROSTER)
        return add_roster(view, frame);
    if (frame->type == WEFT__FRAME_REPORT)
        add_report(view, frame);
    if (frame->type != WEFT__FRAME_FAILED || frame->body_bytes != sizeof(notice))
        return WEFT_OK;
    memcpy(&notice, frame->body, sizeof(notice));
    return weft__error((weft_result)notice.result, "%.*s", (int)sizeof(notice.text), notice.text);
}

/* The deadline holds also while frames come without a pause. */
static weft_result look(struct view *view, struct weft__wire *wire, int64_t timeout_ms)
{
    const int64_t deadline_ns = weft__now_ns() + timeout_ms * WEFT__NS_PER_MS;
    while (view->num_rosters > 0 || view->num_awaited > 0) {
        struct weft__frame frame;
        enum weft__wire_result result = WEFT__WIRE_EMPTY;
        if (weft__now_ns() < deadline_ns)
            result = weft__next_frame(&(struct weft__watch){0}, wire, deadline_ns, &frame);
        if (result == WEFT__WIRE_OK)
            WEFT__TRY(take(view, &frame));
        else if (result != WEFT__WIRE_EMPTY)
            return weft__error(WEFT_ERROR_SYSTEM, "the rendezvous has closed the connection");
        else if (view->num_rosters > 0)
            return weft__error(WEFT_ERROR_TIMEOUT, "the rendezvous does not answer");
        else
            return WEFT_OK;
    }
    return WEFT_OK;
}

static weft_result ask(struct weft__wire *wire, const struct weft__meeting_point *point)
{
    struct weft__observation observation = {.magic = WEFT__HELLO_MAGIC,
                                            .version = WEFT__HELLO_VERSION};
    memcpy(observation.nonce, point->nonce, sizeof(observation.nonce));
    struct weft__message *message =
        weft__message_create(WEFT__FRAME_OBSERVE, &observation, sizeof(observation), NULL, 0);
    const enum weft__wire_result result =
        message != NULL ? weft__wire_send(wire, message) : WEFT__WIRE_NO_MEMORY;
    if (message != NULL)
        weft__message_release(message);
    return result == WEFT__WIRE_OK
               ? WEFT_OK
               : weft__error(WEFT_ERROR_SYSTEM, "cannot send the rendezvous a question");
}

weft_result weft__observe(const struct weft__meeting_point *point, int64_t timeout_ms,
                          struct weft__observed_rank **ranks, int32_t *num_ranks)
{
    struct weft__wire wire;
    struct view view = {.num_rosters = 1};
    const uint64_t max_bytes =
        sizeof(struct weft__roster) + (uint64_t)WEFT__MAX_RANKS * sizeof(struct weft__roster_entry);
    WEFT__TRY(weft__connect_to_rendezvous(point, max_bytes,
                                          weft__now_ns() + timeout_ms * WEFT__NS_PER_MS, &wire));
    weft_result result = ask(&wire, point);
    if (result == WEFT_OK)
        result = look(&view, &wire, timeout_ms);
    weft__wire_close(&wire);
    if (result != WEFT_OK) {
        free(view.ranks);
        return result;
    }
    *ranks = view.ranks;
    *num_ranks = view.num_ranks;
    return WEFT_OK;
}
