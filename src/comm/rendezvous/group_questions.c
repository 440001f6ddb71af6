/* SPDX-License-Identifier: MIT */
/* Whom do you wait for? Questions between the ranks of a group, and what the rendezvous knows
 * better. */
#include <string.h>

#include "comm/host/thread.h"
#include "comm/rendezvous/group_internal.h"

static void send_answer(struct weft__group *group, const struct weft__answer *answer)
{
    struct weft__client *asker = group->members[answer->asker].client;
    if (asker != NULL)
        weft__group_send(asker, WEFT__FRAME_ANSWER, answer, sizeof(*answer));
}

/* For a rank that has left, the rendezvous answers as that rank would have; for one that has died
 * nobody does, since all have been told of it. */
enum weft__wire_result weft__group_pass_question(struct weft__group *group, int32_t asker,
                                                 const struct weft__frame *frame)
{
    struct weft__question question;
    if (group->phase != WEFT__GROUP_MET || frame->body_bytes != sizeof(question))
        return WEFT__WIRE_GARBAGE;
    memcpy(&question, frame->body, sizeof(question));
    if (question.asked < 0 || question.asked >= group->num_ranks)
        return WEFT__WIRE_GARBAGE;
    question.asker = asker;
    const struct weft__member *asked = &group->members[question.asked];
    const struct weft__answer answer = {.asker = asker,
                                        .asked = question.asked,
                                        .number = question.number,
                                        .waits = asked->last_waits};
    if (asked->presence == WEFT__PRESENT)
        weft__group_send(asked->client, WEFT__FRAME_QUESTION, &question, sizeof(question));
    else if (asked->presence == WEFT__LEFT)
        send_answer(group, &answer);
    return WEFT__WIRE_OK;
}

int weft__group_inquire(struct weft__group *group)
{
    if (group->num_inquired == group->gather.sequence)
        return 0;
    group->num_inquired = group->gather.sequence;
    group->num_unheard = 0;
    for (int32_t rank = 0; rank < group->num_ranks; rank++) {
        const struct weft__question question = {
            .asker = WEFT__NOBODY, .asked = rank, .number = group->gather.sequence};
        struct weft__client *client = group->members[rank].client;
        if (client == NULL || !weft__group_is_missing(group, rank))
            continue;
        weft__group_send(client, WEFT__FRAME_QUESTION, &question, sizeof(question));
        group->num_unheard++;
    }
    group->gather.deadline_ns = weft__now_ns() + WEFT__INQUIRY_MS * WEFT__NS_PER_MS;
    return group->num_unheard > 0;
}

/* An answer to the rendezvous itself; the last one ends the all-gather. */
static void hear(struct weft__group *group, int32_t asked, const struct weft__answer *answer)
{
    if (group->gather.num_in == 0 || answer->number != group->gather.sequence ||
        answer->number != group->num_inquired)
        return;
    if (answer->waits.num_waits > 0) {
        group->members[asked].num_excused = answer->number;
        group->members[asked].excuse = answer->waits.waits[0];
    }
    if (--group->num_unheard == 0)
        group->gather.deadline_ns = 0;
}

void weft__group_add_ungathered(const struct weft__group *group, int32_t rank,
                                struct weft__wait_list *waits)
{
    struct weft__wait wait = {.rank = 0, .call = group->gather.first_step.call};
    if (group->gather.num_in == 0 || weft__group_is_missing(group, rank))
        return;
    while (!weft__group_is_missing(group, wait.rank))
        wait.rank++;
    weft__wait_list_add(waits, &wait);
}

enum weft__wire_result weft__group_pass_answer(struct weft__group *group, int32_t asked,
                                               const struct weft__frame *frame)
{
    struct weft__answer answer;
    if (group->phase != WEFT__GROUP_MET || frame->body_bytes != sizeof(answer))
        return WEFT__WIRE_GARBAGE;
    memcpy(&answer, frame->body, sizeof(answer));
    if (answer.asker < WEFT__NOBODY || answer.asker >= group->num_ranks ||
        !weft__wait_list_is_valid(&answer.waits, group->num_ranks))
        return WEFT__WIRE_GARBAGE;
    if (answer.asker == WEFT__NOBODY) {
        hear(group, asked, &answer);
        return WEFT__WIRE_OK;
    }
    answer.asked = asked;
    /* A rank does not know whom it waits for in an all-gather of the host; the rendezvous does. */
    if (answer.waits.num_waits == 0)
        weft__group_add_ungathered(group, asked, &answer.waits);
    send_answer(group, &answer);
    return WEFT__WIRE_OK;
}
