/* SPDX-License-Identifier: MIT */
/* The rendezvous' end of the members' heartbeats, from when all have met: before, ranks wait to
 * meet and do nothing else. */
#include "comm/failure/status.h"
#include "comm/host/thread.h"
#include "comm/rendezvous/group_internal.h"

void weft__group_start_heartbeats(struct weft__group *group)
{
    const int64_t now_ns = weft__now_ns();
    for (int32_t rank = 0; rank < group->num_ranks; rank++) {
        const struct weft__member *member = &group->members[rank];
        if (member->client == NULL)
            continue;
        const int is_local = member->client->process_fd >= 0;
        weft__heartbeat_start(&member->client->heartbeat, member->hello.heartbeat_ms,
                              is_local ? member->hello.identity.pid : 0, now_ns);
    }
}

static void lose_silent(struct weft__group *group, int32_t rank)
{
    const struct weft__hello *hello = &group->members[rank].hello;
    const struct weft__rank_state_notice notice = {.rank = rank,
                                                   .state = WEFT__RANK_DEAD,
                                                   .pid = hello->identity.pid,
                                                   .silent_ms = hello->heartbeat_ms};
    /* Also to the rank itself, should it wake up. Before the word that it is lost: the first reason
     * counts. */
    weft__group_tell_state(group, &notice);
    group->members[rank].client->state = WEFT__CLIENT_BROKEN;
}

void weft__group_tick_heartbeats(struct weft__group *group, int64_t now_ns)
{
    if (group->phase != WEFT__GROUP_MET)
        return;
    for (int32_t rank = 0; rank < group->num_ranks; rank++) {
        struct weft__client *client = group->members[rank].client;
        if (client == NULL || client->state == WEFT__CLIENT_BROKEN)
            continue;
        if (weft__heartbeat_is_silent(&client->heartbeat, client->wire.num_received, now_ns))
            lose_silent(group, rank);
        else if (weft__heartbeat_is_due(&client->heartbeat, now_ns))
            weft__group_send(client, WEFT__FRAME_ALIVE, NULL, 0);
    }
}

int64_t weft__group_heartbeat_deadline_ns(const struct weft__group *group)
{
    int64_t deadline_ns = INT64_MAX;
    if (group->phase != WEFT__GROUP_MET)
        return deadline_ns;
    for (int32_t rank = 0; rank < group->num_ranks; rank++) {
        const struct weft__client *client = group->members[rank].client;
        if (client != NULL && weft__heartbeat_deadline_ns(&client->heartbeat) < deadline_ns)
            deadline_ns = weft__heartbeat_deadline_ns(&client->heartbeat);
    }
    return deadline_ns;
}
