/* SPDX-License-Identifier: MIT */
/* How the members of a group meet: each says who it is, and when all have come they get the
 * table. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/host/log.h"
#include "comm/host/thread.h"
#include "comm/rendezvous/group_internal.h"
#include "comm/rendezvous/listener.h"

static int has_departed(const struct weft__group *group, int32_t rank)
{
    return rank < group->num_ranks && (group->members[rank].presence == WEFT__LEFT ||
                                       group->members[rank].presence == WEFT__DEAD);
}

/* A rank that has left one communicator and comes again starts the next one of the same key. */
static struct weft__group *find_or_create(struct weft__group **groups,
                                          const struct weft__meeting *meeting,
                                          const struct weft__hello *hello)
{
    for (struct weft__group *group = *groups; group != NULL; group = group->next)
        if (group->meeting == meeting && group->key == hello->key &&
            !has_departed(group, hello->rank))
            return group;
    struct weft__group *group =
        calloc(1, sizeof(*group) + (size_t)hello->num_ranks * sizeof(struct weft__member));
    if (group == NULL)
        return NULL;
    group->meeting = meeting;
    group->key = hello->key;
    group->num_ranks = hello->num_ranks;
    group->first_rank = hello->rank;
    group->deadline_ns = INT64_MAX;
    group->next = *groups;
    *groups = group;
    return group;
}

/* Ranks may be threads of a process, and processes of two hosts have the same pid. */
static struct weft__failure_notice describe_claim(const struct weft__hello *first,
                                                  const struct weft__hello *second)
{
    const int32_t pids[2] = {first->identity.pid, second->identity.pid};
    const int is_one_host = first->identity.host_key == second->identity.host_key;
    if (is_one_host && pids[0] == pids[1])
        return weft__group_failure(WEFT_ERROR_MISMATCH, second->rank,
                                   "two threads of process %d say that they are rank %d", pids[0],
                                   second->rank);
    return weft__group_failure(WEFT_ERROR_MISMATCH, second->rank,
                               "two processes say that they are rank %d: pid %d and pid %d%s",
                               second->rank, pids[0], pids[1],
                               is_one_host ? "" : ", of another host");
}

static struct weft__failure_notice check_hello(const struct weft__group *group,
                                               const struct weft__hello *hello)
{
    const struct weft__hello *first = &group->members[group->first_rank].hello;
    const struct weft__member *claimed = &group->members[hello->rank % group->num_ranks];
    if (group->phase == WEFT__GROUP_FAILED_TO_MEET)
        return group->failure;
    if (group->num_came > 0 && hello->num_ranks != group->num_ranks)
        return weft__group_failure(WEFT_ERROR_MISMATCH, hello->rank,
                                   "ranks disagree: num_ranks is %d on rank %d and %d on rank %d",
                                   group->num_ranks, group->first_rank, hello->num_ranks,
                                   hello->rank);
    if (group->num_came > 0 && hello->num_nodes != first->num_nodes)
        return weft__group_failure(WEFT_ERROR_MISMATCH, hello->rank,
                                   "ranks disagree: num_nodes is %d on rank %d and %d on rank %d",
                                   first->num_nodes, group->first_rank, hello->num_nodes,
                                   hello->rank);
    if (claimed->presence != WEFT__ABSENT)
        return describe_claim(&claimed->hello, hello);
    return weft__group_failure(WEFT_OK, -1, "%s", "");
}

void weft__groups_note_refused(struct weft__group *groups, const struct weft__hello *hello,
                               const char *name)
{
    for (struct weft__group *group = groups; group != NULL; group = group->next)
        if (group->phase == WEFT__GROUP_MEETING && group->key == hello->key &&
            hello->rank < group->num_ranks && weft__group_is_missing(group, hello->rank))
            snprintf(group->refused, sizeof(group->refused),
                     "; rank %d (pid %d) from %.48s has another unique id or WEFT_SECRET",
                     hello->rank, hello->identity.pid, name);
}

static void send_table(struct weft__group *group)
{
    size_t table_bytes = (size_t)group->num_ranks * sizeof(struct weft__identity);
    struct weft__message *message =
        weft__message_create(WEFT__FRAME_TABLE, NULL, 0, NULL, table_bytes);
    if (message == NULL) {
        weft__group_disconnect_all(group);
        return;
    }
    for (int32_t rank = 0; rank < group->num_ranks; rank++)
        memcpy(message->body + (size_t)rank * sizeof(struct weft__identity),
               &group->members[rank].hello.identity, sizeof(struct weft__identity));
    group->phase = WEFT__GROUP_MET;
    group->refused[0] = '\0';
    group->deadline_ns = INT64_MAX;
    weft__group_start_heartbeats(group);
    weft__group_broadcast(group, message);
    weft__message_release(message);
}

static void admit(struct weft__group *group, struct weft__client *client,
                  const struct weft__hello *hello)
{
    if (group->num_came++ == 0)
        group->first_rank = hello->rank;
    group->num_present++;
    group->members[hello->rank] =
        (struct weft__member){.presence = WEFT__PRESENT, .client = client, .hello = *hello};
    client->group = group;
    client->rank = hello->rank;
    client->wire.max_body_bytes = sizeof(struct weft__gather_header) + WEFT__MAX_BLOB_BYTES;
    int64_t deadline_ns = weft__now_ns() + hello->timeout_ms * WEFT__NS_PER_MS;
    if (deadline_ns < group->deadline_ns)
        group->deadline_ns = deadline_ns;
    if (group->num_came == group->num_ranks)
        send_table(group);
}

void weft__group_join(struct weft__group **groups, struct weft__client *client,
                      const struct weft__hello *hello, const struct weft__identity *server)
{
    weft__group_send(client, WEFT__FRAME_WELCOME, server, sizeof(*server));
    struct weft__group *group = find_or_create(groups, client->meeting, hello);
    if (group == NULL) {
        client->state = WEFT__CLIENT_BROKEN;
        return;
    }
    struct weft__failure_notice notice = check_hello(group, hello);
    if (notice.result == WEFT_OK) {
        admit(group, client, hello);
        return;
    }
    weft__group_send(client, WEFT__FRAME_FAILED, &notice, sizeof(notice));
    if (group->phase == WEFT__GROUP_MET) {
        char name[WEFT__PEER_NAME_BYTES];
        weft__listener_name_peer(client->wire.fd, name);
        weft__log(WEFT__LOG_WARN, WEFT__LOG_NO_RANK, "refused a late rank %d (pid %d) from %s: %s",
                  hello->rank, hello->identity.pid, name, notice.text);
    }
    /* A communicator that is complete does not care who knocks. */
    if (group->phase == WEFT__GROUP_MEETING)
        weft__group_fail(group, &notice);
}

/* Its ranks' own words count: the first has not been checked against any other. */
enum weft__wire_result weft__group_miss(struct weft__group **groups,
                                        const struct weft__meeting *meeting,
                                        const struct weft__frame *frame)
{
    struct weft__absence absence;
    if (frame->body_bytes != sizeof(absence))
        return WEFT__WIRE_GARBAGE;
    memcpy(&absence, frame->body, sizeof(absence));
    absence.why.text[sizeof(absence.why.text) - 1] = '\0';
    const struct weft__hello hello = {.key = absence.key,
                                      .rank = absence.rank,
                                      .num_ranks = absence.num_ranks,
                                      .timeout_ms = absence.timeout_ms};
    if (hello.num_ranks < 1 || hello.num_ranks > WEFT__MAX_RANKS || hello.rank < 0 ||
        hello.rank >= hello.num_ranks)
        return WEFT__WIRE_GARBAGE;
    struct weft__group *group = find_or_create(groups, meeting, &hello);
    if (group == NULL || group->phase != WEFT__GROUP_MEETING || hello.rank >= group->num_ranks ||
        group->members[hello.rank].presence != WEFT__ABSENT)
        return WEFT__WIRE_OK;
    if (group->num_came++ == 0)
        group->first_rank = hello.rank;
    group->members[hello.rank] = (struct weft__member){.presence = WEFT__LEFT, .hello = hello};
    weft__group_fail(group, &absence.why);
    return WEFT__WIRE_OK;
}
