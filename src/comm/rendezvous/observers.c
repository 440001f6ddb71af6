/* SPDX-License-Identifier: MIT */
#include "comm/rendezvous/observers.h"

#include <string.h>

#include "comm/rendezvous/group_internal.h"

static void send_roster(struct weft__client *observer, const struct weft__group *group,
                        int32_t num_following)
{
    const struct weft__roster roster = {.key = group->key,
                                        .num_ranks = group->num_ranks,
                                        .have_met = group->phase == WEFT__GROUP_MET,
                                        .num_following = num_following};
    const size_t entries_bytes = (size_t)group->num_ranks * sizeof(struct weft__roster_entry);
    struct weft__message *message =
        weft__message_create(WEFT__FRAME_ROSTER, &roster, sizeof(roster), NULL, entries_bytes);
    for (int32_t rank = 0; message != NULL && rank < group->num_ranks; rank++) {
        const struct weft__member *member = &group->members[rank];
        struct weft__roster_entry entry = {.presence = (int32_t)member->presence,
                                           .pid = member->hello.identity.pid};
        memcpy(entry.host, member->hello.identity.host, sizeof(entry.host));
        memcpy(message->body + sizeof(roster) + (size_t)rank * sizeof(entry), &entry,
               sizeof(entry));
    }
    weft__group_send_message(observer, message);
}

/* For lack of memory no rank is asked, and none is harmed. A rank that does not read is not asked
 * again and again. */
static void ask(const struct weft__client *observer, const struct weft__group *group)
{
    for (int32_t rank = 0; group->phase == WEFT__GROUP_MET && rank < group->num_ranks; rank++) {
        struct weft__client *client = group->members[rank].client;
        const struct weft__question question = {.asker = WEFT__OBSERVER,
                                                .asked = rank,
                                                .number = observer->observation,
                                                .wait = {.exchange = UINT64_MAX}};
        if (client == NULL || weft__wire_has_output(&client->wire))
            continue;
        struct weft__message *message =
            weft__message_create(WEFT__FRAME_QUESTION, &question, sizeof(question), NULL, 0);
        if (message == NULL)
            continue;
        weft__wire_send(&client->wire, message);
        weft__message_release(message);
    }
}

void weft__observer_begin(struct weft__client *observer, const struct weft__group *groups)
{
    int32_t num_following = 0;
    for (const struct weft__group *group = groups; group != NULL; group = group->next)
        num_following += group->meeting == observer->meeting;
    if (num_following == 0) {
        const struct weft__roster nothing = {.num_ranks = 0};
        weft__group_send(observer, WEFT__FRAME_ROSTER, &nothing, sizeof(nothing));
    }
    for (const struct weft__group *group = groups; group != NULL; group = group->next) {
        if (group->meeting != observer->meeting)
            continue;
        send_roster(observer, group, --num_following);
        ask(observer, group);
    }
}

enum weft__wire_result weft__observers_tell(struct weft__client *clients,
                                            const struct weft__client *member,
                                            const struct weft__frame *frame)
{
    struct weft__report report;
    const struct weft__group *group = member->group;
    if (group->phase != WEFT__GROUP_MET || frame->body_bytes != sizeof(report))
        return WEFT__WIRE_GARBAGE;
    memcpy(&report, frame->body, sizeof(report));
    if (!weft__wait_list_is_valid(&report.answer.waits, group->num_ranks))
        return WEFT__WIRE_GARBAGE;
    report.key = group->key;
    report.answer.asked = member->rank;
    if (report.answer.waits.num_waits == 0) {
        weft__group_add_ungathered(group, member->rank, &report.answer.waits);
        if (report.answer.waits.num_waits > 0)
            report.answer.waits.waits[0].waited_ms = report.held_ms;
    }
    for (struct weft__client *client = clients; client != NULL; client = client->next)
        if (client->observation == report.answer.number && client->observation != 0 &&
            client->meeting == group->meeting)
            weft__group_send(client, WEFT__FRAME_REPORT, &report, sizeof(report));
    return WEFT__WIRE_OK;
}
