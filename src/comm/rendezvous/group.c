/* SPDX-License-Identifier: MIT */
#include "comm/rendezvous/group.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/failure/status.h"
#include "comm/host/log.h"
#include "comm/host/thread.h"
#include "comm/rendezvous/group_internal.h"
#include "comm/rendezvous/identity.h"

void weft__group_send(struct weft__client *client, enum weft__frame_type type, const void *body,
                      size_t body_bytes)
{
    weft__group_send_message(client, weft__message_create(type, body, body_bytes, NULL, 0));
}

void weft__group_send_message(struct weft__client *client, struct weft__message *message)
{
    if (message == NULL || weft__wire_send(&client->wire, message) != WEFT__WIRE_OK)
        client->state = WEFT__CLIENT_BROKEN;
    if (message != NULL)
        weft__message_release(message);
}

/* Rank 0 is the last one: this is often a thread of its process, which may end as soon as it
 * knows. */
void weft__group_broadcast(struct weft__group *group, struct weft__message *message)
{
    for (int32_t rank = group->num_ranks - 1; rank >= 0; rank--) {
        struct weft__client *client = group->members[rank].client;
        if (client != NULL && weft__wire_send(&client->wire, message) != WEFT__WIRE_OK)
            client->state = WEFT__CLIENT_BROKEN;
    }
}

void weft__group_disconnect_all(struct weft__group *group)
{
    for (int32_t rank = 0; rank < group->num_ranks; rank++)
        if (group->members[rank].client != NULL)
            group->members[rank].client->state = WEFT__CLIENT_BROKEN;
}

static void broadcast_body(struct weft__group *group, enum weft__frame_type type, const void *body,
                           size_t body_bytes)
{
    struct weft__message *message = weft__message_create(type, body, body_bytes, NULL, 0);
    if (message == NULL) {
        weft__group_disconnect_all(group);
        return;
    }
    weft__group_broadcast(group, message);
    weft__message_release(message);
}

void weft__group_tell_state(struct weft__group *group, const struct weft__rank_state_notice *notice)
{
    broadcast_body(group, WEFT__FRAME_RANK_STATE, notice, sizeof(*notice));
}

struct weft__failure_notice weft__group_failure(weft_result result, int32_t rank,
                                                const char *format, ...)
{
    struct weft__failure_notice notice = {.result = result, .rank = rank};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(notice.text, sizeof(notice.text), format, arguments);
    va_end(arguments);
    return notice;
}

void weft__group_fail(struct weft__group *group, const struct weft__failure_notice *notice)
{
    weft__log(WEFT__LOG_INFO, WEFT__LOG_NO_RANK, "communicator %016llx: %s",
              (unsigned long long)group->key, notice->text);
    weft__gather_drop(&group->gather);
    if (group->phase == WEFT__GROUP_MEETING) {
        const struct weft__hello *first = &group->members[group->first_rank].hello;
        group->phase = WEFT__GROUP_FAILED_TO_MEET;
        group->failure = *notice;
        group->deadline_ns = weft__now_ns() + first->timeout_ms * WEFT__NS_PER_MS;
    }
    broadcast_body(group, WEFT__FRAME_FAILED, notice, sizeof(*notice));
}

int weft__group_is_missing(const struct weft__group *group, int32_t rank)
{
    const struct weft__member *member = &group->members[rank];
    return group->phase == WEFT__GROUP_MET ? member->num_gathered < group->gather.sequence
                                           : member->presence == WEFT__ABSENT;
}

/* Whether the rank is missing because it waits for another one. */
static int is_excused(const struct weft__group *group, int32_t rank)
{
    return group->phase == WEFT__GROUP_MET &&
           group->members[rank].num_excused == group->gather.sequence;
}

static int32_t count_inexcusable(const struct weft__group *group)
{
    int32_t num_inexcusable = 0;
    for (int32_t rank = 0; rank < group->num_ranks; rank++)
        num_inexcusable += weft__group_is_missing(group, rank) && !is_excused(group, rank);
    return num_inexcusable;
}

/* "ranks 3, 5 of 8" that have not come to the meeting or to the gather. Those that wait for others
 * are left out, unless all of them do. */
static int32_t list_missing(const struct weft__group *group, char *text, size_t text_bytes)
{
    enum { MAX_NAMED = 16 };
    char list[MAX_NAMED * 8] = "";
    size_t length = 0;
    int32_t num_missing = 0, first = -1;
    const int any_to_blame = count_inexcusable(group) > 0;
    for (int32_t rank = 0; rank < group->num_ranks; rank++) {
        if (!weft__group_is_missing(group, rank) || (any_to_blame && is_excused(group, rank)))
            continue;
        if (num_missing++ == 0)
            first = rank;
        if (num_missing <= MAX_NAMED)
            length += (size_t)snprintf(list + length, sizeof(list) - length, "%s%d",
                                       num_missing > 1 ? ", " : "", rank);
    }
    snprintf(text, text_bytes, "%s %s%s of %d", num_missing == 1 ? "rank" : "ranks", list,
             num_missing > MAX_NAMED ? ", ..." : "", group->num_ranks);
    return first;
}

static void expire(struct weft__group *group, int32_t first_rank, const char *where)
{
    char missing[192];
    int32_t culprit = list_missing(group, missing, sizeof(missing));
    struct weft__failure_notice notice = weft__group_failure(
        WEFT_ERROR_TIMEOUT, culprit, "%s did not come%s within %u ms%s", missing, where,
        group->members[first_rank].hello.timeout_ms, group->refused);
    weft__group_fail(group, &notice);
}

/* All missing ranks wait themselves, so none of them is known to be the culprit. */
static void expire_in_circle(struct weft__group *group)
{
    const struct weft__gather *gather = &group->gather;
    int32_t missing = 0;
    while (!weft__group_is_missing(group, missing))
        missing++;
    const struct weft__wait *excuse = &group->members[missing].excuse;
    struct weft__failure_notice notice = weft__group_failure(
        WEFT_ERROR_TIMEOUT, WEFT__NOBODY,
        "the ranks wait for each other: rank %d called %s, and rank %d waits for rank %d in %s "
        "since %u ms",
        gather->first_rank, weft__call_name(gather->first_step.call), missing, excuse->rank,
        weft__call_name(excuse->call), group->members[gather->first_rank].hello.timeout_ms);
    weft__group_fail(group, &notice);
}

static void expire_gather(struct weft__group *group)
{
    if (count_inexcusable(group) == 0) {
        expire_in_circle(group);
        return;
    }
    char where[48];
    snprintf(where, sizeof(where), " to %s", weft__call_name(group->gather.first_step.call));
    expire(group, group->gather.first_rank, where);
}

/* ---------------------------------------------------------------- all-gather */

static void finish_gather(struct weft__group *group)
{
    struct weft__message *message = weft__gather_result(&group->gather);
    if (message == NULL) {
        weft__group_disconnect_all(group);
    } else {
        weft__group_broadcast(group, message);
        weft__message_release(message);
    }
    weft__gather_drop(&group->gather);
}

/* The lowest rank that can no longer contribute to the gather; -1: none. */
static int32_t find_departed(const struct weft__group *group)
{
    for (int32_t rank = 0; rank < group->num_ranks; rank++)
        if ((group->members[rank].presence == WEFT__LEFT ||
             group->members[rank].presence == WEFT__DEAD) &&
            group->members[rank].num_gathered < group->gather.sequence)
            return rank;
    return -1;
}

static void fail_if_departed(struct weft__group *group)
{
    int32_t departed = group->gather.num_in > 0 ? find_departed(group) : -1;
    if (departed < 0)
        return;
    const struct weft__member *member = &group->members[departed];
    const struct weft__identity *identity = &member->hello.identity;
    char loss[192];
    if (member->presence == WEFT__LEFT)
        snprintf(loss, sizeof(loss),
                 "rank %d (pid %d on %s) has left the communicator by weft_comm_destroy", departed,
                 identity->pid, identity->host);
    else
        weft__identity_tell_loss(identity, departed, member->ending, loss, sizeof(loss));
    struct weft__failure_notice notice =
        weft__group_failure(WEFT_ERROR_RANK_FAILED, departed, "%s", loss);
    weft__group_fail(group, &notice);
}

static enum weft__wire_result contribute(struct weft__group *group, int32_t rank,
                                         const struct weft__frame *frame)
{
    struct weft__member *member = &group->members[rank];
    struct weft__contribution contribution = {
        .rank = rank,
        .num_ranks = group->num_ranks,
        .deadline_ns = weft__now_ns() + member->hello.timeout_ms * WEFT__NS_PER_MS,
        .blob = frame->body + sizeof(struct weft__gather_header)};
    struct weft__gather_header *header = &contribution.header;
    if (group->phase != WEFT__GROUP_MET || frame->body_bytes < sizeof(*header))
        return WEFT__WIRE_GARBAGE;
    memcpy(header, frame->body, sizeof(*header));
    if (header->blob_bytes != frame->body_bytes - sizeof(*header) ||
        header->sequence != member->num_gathered + 1)
        return WEFT__WIRE_GARBAGE;
    member->num_gathered = header->sequence;
    weft__gather_add(&group->gather, &contribution);
    if (group->gather.num_in == group->num_ranks)
        finish_gather(group);
    else
        fail_if_departed(group);
    return WEFT__WIRE_OK;
}

/* ---------------------------------------------------------------- leaving */

static void remove_member(struct weft__client *client, enum weft__presence presence)
{
    struct weft__group *group = client->group;
    struct weft__member *member = &group->members[client->rank];
    member->presence = presence;
    member->client = NULL;
    weft__group_forget_standing(member);
    client->group = NULL;
    group->num_present--;
    struct weft__rank_state_notice notice = {.rank = client->rank,
                                             .state = presence == WEFT__LEFT ? WEFT__RANK_LEFT
                                                                             : WEFT__RANK_DEAD,
                                             .pid = member->hello.identity.pid,
                                             .ending = member->ending};
    if (group->phase == WEFT__GROUP_MET)
        weft__group_tell_state(group, &notice);
    if (group->phase == WEFT__GROUP_MET)
        fail_if_departed(group);
    if (group->phase != WEFT__GROUP_MEETING)
        return;
    char loss[192];
    weft__identity_tell_loss(&member->hello.identity, client->rank, member->ending, loss,
                             sizeof(loss));
    struct weft__failure_notice failed = weft__group_failure(WEFT_ERROR_RANK_FAILED, client->rank,
                                                             "%s before all ranks had met", loss);
    if (presence == WEFT__LEFT)
        failed = weft__group_failure(WEFT_ERROR_RANK_FAILED, client->rank,
                                     "rank %d (pid %d on %s) gave up before all ranks had met",
                                     client->rank, notice.pid, member->hello.identity.host);
    weft__group_fail(group, &failed);
}

static enum weft__wire_result leave(struct weft__client *client, const struct weft__frame *frame)
{
    struct weft__wait_list last_waits;
    if (frame->body_bytes != sizeof(last_waits))
        return WEFT__WIRE_GARBAGE;
    memcpy(&last_waits, frame->body, sizeof(last_waits));
    if (!weft__wait_list_is_valid(&last_waits, client->group->num_ranks))
        return WEFT__WIRE_GARBAGE;
    client->group->members[client->rank].last_waits = last_waits;
    remove_member(client, WEFT__LEFT);
    /* The end of its connection tells the rank that the others have been told. */
    client->state = WEFT__CLIENT_BROKEN;
    return WEFT__WIRE_OK;
}

static enum weft__wire_result exit_from(struct weft__client *client,
                                        const struct weft__frame *frame)
{
    struct weft__ending *ending = &client->group->members[client->rank].ending;
    if (frame->body_bytes != sizeof(*ending))
        return WEFT__WIRE_GARBAGE;
    memcpy(ending, frame->body, sizeof(*ending));
    remove_member(client, WEFT__DEAD);
    client->state = WEFT__CLIENT_BROKEN; /* as after a goodbye */
    return WEFT__WIRE_OK;
}

/* A member's communicator has failed: so have the others', for the same reason. */
static enum weft__wire_result give_up(struct weft__group *group, const struct weft__frame *frame)
{
    struct weft__failure_notice notice;
    if (frame->body_bytes != sizeof(notice))
        return WEFT__WIRE_GARBAGE;
    memcpy(&notice, frame->body, sizeof(notice));
    notice.text[sizeof(notice.text) - 1] = '\0';
    weft__group_fail(group, &notice);
    return WEFT__WIRE_OK;
}

enum weft__wire_result weft__group_receive(struct weft__group **groups, struct weft__client *client,
                                           const struct weft__frame *frame)
{
    switch (frame->type) {
    case WEFT__FRAME_GATHER:
        return contribute(client->group, client->rank, frame);
    case WEFT__FRAME_GIVE_UP:
        return give_up(client->group, frame);
    case WEFT__FRAME_ABSENCE:
        return weft__group_miss(groups, client->meeting, frame);
    case WEFT__FRAME_GOODBYE:
        return leave(client, frame);
    case WEFT__FRAME_EXIT:
        return exit_from(client, frame);
    case WEFT__FRAME_QUESTION:
        return weft__group_pass_question(client->group, client->rank, frame);
    case WEFT__FRAME_ANSWER:
        return weft__group_pass_answer(client->group, client->rank, frame);
    case WEFT__FRAME_STANDING:
        return weft__group_take_standing(client->group, client->rank, frame);
    case WEFT__FRAME_ALIVE: /* that bytes have come is all there is to it */
        return frame->body_bytes == 0 ? WEFT__WIRE_OK : WEFT__WIRE_GARBAGE;
    default:
        return WEFT__WIRE_GARBAGE;
    }
}

void weft__group_lose(struct weft__client *client)
{
    weft__log(WEFT__LOG_INFO, WEFT__LOG_NO_RANK, "lost the connection to rank %d (pid %d on %s)",
              client->rank, client->group->members[client->rank].hello.identity.pid,
              client->group->members[client->rank].hello.identity.host);
    remove_member(client, WEFT__DEAD);
}

/* ---------------------------------------------------------------- time */

static int is_over(const struct weft__group *group, int64_t now_ns)
{
    int waits_for_late_comers = group->phase == WEFT__GROUP_FAILED_TO_MEET &&
                                now_ns < group->deadline_ns && group->num_came < group->num_ranks;
    return group->num_present == 0 && !waits_for_late_comers;
}

static void free_group(struct weft__group *group)
{
    weft__gather_drop(&group->gather);
    for (int32_t rank = 0; rank < group->num_ranks; rank++)
        weft__group_forget_standing(&group->members[rank]);
    free(group);
}

void weft__groups_tick(struct weft__group **groups, int64_t read_ns)
{
    int64_t now_ns = weft__now_ns();
    while (*groups != NULL) {
        struct weft__group *group = *groups;
        if (group->phase == WEFT__GROUP_MEETING && now_ns >= group->deadline_ns)
            expire(group, group->first_rank, "");
        if (group->gather.num_in > 0 && now_ns >= group->gather.deadline_ns &&
            !weft__group_inquire(group))
            expire_gather(group);
        weft__group_compare_standings(group);
        weft__group_tick_heartbeats(group, read_ns);
        if (is_over(group, now_ns)) {
            *groups = group->next;
            free_group(group);
        } else {
            groups = &group->next;
        }
    }
}

int64_t weft__groups_deadline_ns(const struct weft__group *groups)
{
    int64_t deadline_ns = INT64_MAX;
    for (const struct weft__group *group = groups; group != NULL; group = group->next) {
        /* A failed group whose members are still there waits for them, not for the clock. */
        int clock_matters = group->phase == WEFT__GROUP_MEETING || group->num_present == 0;
        if (clock_matters && group->deadline_ns < deadline_ns)
            deadline_ns = group->deadline_ns;
        if (group->gather.num_in > 0 && group->gather.deadline_ns < deadline_ns)
            deadline_ns = group->gather.deadline_ns;
        if (group->verdict_ns != 0 && group->verdict_ns < deadline_ns)
            deadline_ns = group->verdict_ns;
        const int64_t heartbeat_ns = weft__group_heartbeat_deadline_ns(group);
        if (heartbeat_ns < deadline_ns)
            deadline_ns = heartbeat_ns;
    }
    return deadline_ns;
}

void weft__groups_free(struct weft__group **groups)
{
    while (*groups != NULL) {
        struct weft__group *group = *groups;
        *groups = group->next;
        free_group(group);
    }
}
