/* SPDX-License-Identifier: MIT */
/* Operations whose result comes back: gets and fetch-adds. They are requests, which the target's
 * progress answers, a get in as many messages as it takes; without numbers, since nothing is
 * ordered after them. What an answer says is believed only as far as it was asked for. */
#include <stdlib.h>

#include "comm/host/error.h"
#include "net/net_internal.h"

/* Asked, and not yet answered in full. */
struct weft__net_fetch {
    struct weft__net_fetch *next;
    uint64_t number;
    uint64_t target; /* a place */
    uint64_t num_bytes, num_left;
    struct weft__net_request *request;
};

/* ---------------------------------------------------------------- asking */

static weft_result check_target(const struct weft__net *net, uint64_t target, uint64_t num_bytes)
{
    const uint32_t region = weft__net_region_of(target);
    if (weft__net_is_accessible(net, target, num_bytes))
        return WEFT_OK;
    return weft__invalid("target is byte %llu of region %u, %llu bytes; the region has %llu",
                         (unsigned long long)weft__net_offset_of(target), region,
                         (unsigned long long)num_bytes,
                         (unsigned long long)weft__net_region_bytes(net, region));
}

static void remember(struct weft__net *net, int32_t rank, struct weft__net_fetch *fetch)
{
    struct weft__net_peer *peer = &net->peers[rank];
    fetch->number = net->num_fetches++;
    if (fetch->request != NULL)
        fetch->request->num_left++;
    if (peer->last_fetch != NULL)
        peer->last_fetch->next = fetch;
    else
        peer->first_fetch = fetch;
    peer->last_fetch = fetch;
}

static weft_result ask(struct weft__net *net, const struct weft__net_header *question, int32_t peer,
                       uint64_t target, uint64_t num_bytes, struct weft__net_request *request)
{
    struct weft__net_fetch *fetch = calloc(1, sizeof(*fetch));
    struct weft__net_operation *operation =
        fetch != NULL ? weft__net_operation_new(net, peer, NULL) : NULL;
    if (operation == NULL) {
        free(fetch);
        return weft__net_lose_memory(net, peer);
    }
    fetch->target = target;
    fetch->num_bytes = fetch->num_left = num_bytes;
    fetch->request = request;
    remember(net, peer, fetch);
    operation->header.kind = question->kind;
    operation->header.place = question->place;
    operation->header.word = question->word;
    operation->header.add = question->add;
    operation->header.sequence = fetch->number;
    /* After the writes that were made until now, as a message that brings their bytes would be. */
    weft__net_hold(operation);
    return WEFT_OK;
}

weft_result weft__net_get(struct weft__net *net, const struct wp_access *get,
                          struct weft__net_request *request)
{
    WEFT__TRY(weft__net_check_peer(net, get->rank));
    if (get->num_bytes == 0)
        return WEFT_OK;
    WEFT__TRY(weft__net_check_remote(net, get->rank, "source", get->source, get->num_bytes));
    WEFT__TRY(check_target(net, get->target, get->num_bytes));
    const struct weft__net_header question = {.kind = WEFT__NET_GET,
                                              .place = get->source,
                                              .word = WEFT__NET_NO_WORD,
                                              .add = get->num_bytes};
    return ask(net, &question, get->rank, get->target, get->num_bytes, request);
}

weft_result weft__net_fetch_add(struct weft__net *net, const struct wp_access *fetch,
                                struct weft__net_request *request)
{
    WEFT__TRY(weft__net_check_peer(net, fetch->rank));
    WEFT__TRY(weft__net_check_word(net, fetch->rank, fetch->word));
    WEFT__TRY(check_target(net, fetch->target, sizeof(uint64_t)));
    const struct weft__net_header question = {
        .kind = WEFT__NET_FETCH_ADD, .word = fetch->word, .add = fetch->add};
    return ask(net, &question, fetch->rank, fetch->target, sizeof(uint64_t), request);
}

/* ---------------------------------------------------------------- answering */

/* With bytes from `source`, if it has some. */
static void send_answer(struct weft__net *net, int32_t rank, const struct weft__net_header *answer,
                        uint64_t source)
{
    struct weft__net_operation *operation = weft__net_operation_new(net, rank, NULL);
    if (operation == NULL) {
        weft__net_lose_memory(net, rank);
        return;
    }
    operation->header.kind = WEFT__NET_ANSWER;
    operation->header.sequence = answer->sequence;
    operation->header.place = answer->place;
    operation->header.add = answer->add;
    weft__net_set_payload(operation, source, answer->num_bytes);
    weft__net_send(operation);
}

/* In pieces; `place` of each is where it begins in the whole. */
void weft__net_answer_get(struct weft__net *net, int32_t rank,
                          const struct weft__net_header *question)
{
    for (uint64_t begin = 0;
         begin < question->add && net->peers[rank].state == WEFT__NET_CONNECTED;) {
        const uint64_t left = question->add - begin;
        const struct weft__net_header answer = {
            .sequence = question->sequence,
            .place = begin,
            .num_bytes = left < net->max_message_bytes ? left : net->max_message_bytes};
        send_answer(net, rank, &answer, question->place + begin);
        begin += answer.num_bytes;
    }
}

void weft__net_answer_fetch_add(struct weft__net *net, int32_t rank,
                                const struct weft__net_header *question)
{
    struct weft__net_header answer = {.sequence = question->sequence};
    const weft_result result =
        weft__net_add_to_word(net, rank, question->word, question->add, &answer.add);
    if (result == WEFT_OK && net->peers[rank].state == WEFT__NET_CONNECTED)
        send_answer(net, rank, &answer, 0);
}

/* ---------------------------------------------------------------- answers */

static void end_fetch(struct weft__net_peer *peer, struct weft__net_fetch **link,
                      struct weft__net_fetch *before, weft_result result)
{
    struct weft__net_fetch *fetch = *link;
    *link = fetch->next;
    if (peer->last_fetch == fetch)
        peer->last_fetch = before;
    if (fetch->request != NULL)
        weft__net_finish(fetch->request, result);
    free(fetch);
}

/* An answer without bytes is the old value of a word. What cannot be written here has failed the
 * peer. */
static int take_bytes(struct weft__net *net, int32_t rank, struct weft__net_fetch *fetch,
                      const struct weft__net_header *header, const void *payload)
{
    const uint64_t value = header->add;
    const uint64_t num_bytes = header->num_bytes > 0 ? header->num_bytes : sizeof(value);
    if (num_bytes > fetch->num_left || header->place > fetch->num_bytes - num_bytes)
        return 0;
    if (weft__net_write(net, rank, fetch->target + header->place,
                        header->num_bytes > 0 ? payload : &value, num_bytes) == WEFT_OK)
        fetch->num_left -= num_bytes;
    return 1;
}

int weft__net_take_answer(struct weft__net *net, int32_t rank,
                          const struct weft__net_header *header, const void *payload)
{
    struct weft__net_peer *peer = &net->peers[rank];
    struct weft__net_fetch **link = &peer->first_fetch, *before = NULL;
    while (*link != NULL && (*link)->number != header->sequence) {
        before = *link;
        link = &before->next;
    }
    if (*link == NULL || !take_bytes(net, rank, *link, header, payload))
        return 0;
    if ((*link)->num_left == 0)
        end_fetch(peer, link, before, WEFT_OK);
    return 1;
}

void weft__net_drop_fetches(struct weft__net_peer *peer)
{
    while (peer->first_fetch != NULL)
        end_fetch(peer, &peer->first_fetch, NULL, WEFT_ERROR_RANK_FAILED);
}
