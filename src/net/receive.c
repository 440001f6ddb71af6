/* SPDX-License-Identifier: MIT */
/* The target's half of the contract: checks what comes, and lets it take effect in an order that
 * the numbers allow. */
#include <stdlib.h>
#include <string.h>

#include "comm/host/log.h"
#include "net/net_internal.h"

static void blame(struct weft__net *net, int32_t rank, const char *offence)
{
    weft__net_fail_peer(net, rank, "rank %d sent a message that makes no sense: %s", rank, offence);
}

/* ---------------------------------------------------------------- checks */

static int is_word(const struct weft__net *net, uint64_t place)
{
    return place % sizeof(uint64_t) == 0 && weft__net_is_accessible(net, place, sizeof(uint64_t));
}

/* NULL: nothing is wrong with it. */
static const char *find_offence(const struct weft__net *net, const struct weft__net_header *header,
                                size_t payload_bytes)
{
    const int has_word = header->kind == WEFT__NET_SIGNAL || header->kind == WEFT__NET_FETCH_ADD ||
                         (header->kind == WEFT__NET_PUT && header->word != WEFT__NET_NO_WORD);
    if (header->kind < WEFT__NET_PUT || header->kind > WEFT__NET_PACKET)
        return "its kind is unknown";
    if (header->num_bytes != payload_bytes)
        return "its length is wrong";
    if (header->kind != WEFT__NET_PUT && header->kind != WEFT__NET_ANSWER &&
        header->kind != WEFT__NET_PACKET && payload_bytes != 0)
        return "it has bytes";
    if ((header->kind == WEFT__NET_PUT && payload_bytes != 0 &&
         !weft__net_is_accessible(net, header->place, payload_bytes)) ||
        (header->kind == WEFT__NET_GET &&
         (header->add == 0 || !weft__net_is_accessible(net, header->place, header->add))))
        return "its place is outside of what is registered";
    if ((has_word && !is_word(net, header->word)) ||
        (header->kind == WEFT__NET_PUT && header->also_word != WEFT__NET_NO_WORD &&
         !is_word(net, header->also_word)))
        return "its word is none";
    return NULL;
}

/* Who does not know the secret may claim any rank. */
static int is_stranger(const struct weft__net *net, const struct weft__net_header *header)
{
    return memcmp(header->secret, net->config.secret, sizeof(header->secret)) != 0 ||
           header->source < 0 || header->source >= net->config.num_ranks ||
           net->peers[header->source].state == WEFT__NET_NO_PEER;
}

static void refuse_stranger(struct weft__net *net, int32_t claimed)
{
    if (net->num_strangers++ == 0)
        weft__log(
            WEFT__LOG_WARN, net->config.rank,
            "refused a message of a stranger, who does not know the job's secret or is no peer "
            "(it says that it is rank %d); further ones are not reported",
            claimed);
}

/* 0 if it is not to be heard. `peer` is who sent it, if the engine vouches for that, else -1. */
static int is_from_peer(struct weft__net *net, int32_t peer, const struct weft__net_header *header)
{
    if (peer < 0 && is_stranger(net, header))
        refuse_stranger(net, header->source);
    else if (peer >= 0 && peer != header->source)
        blame(net, peer, "it comes under another name");
    else
        return net->peers[header->source].state != WEFT__NET_FAILED;
    return 0;
}

/* ---------------------------------------------------------------- effects */

static void take_effect(struct weft__net *net, int32_t rank, const struct weft__net_header *header)
{
    uint64_t before;
    if (header->kind == WEFT__NET_SIGNAL)
        (void)weft__net_add_to_word(net, rank, header->word, header->add, &before);
    else if (net->peers[rank].state == WEFT__NET_CONNECTED) {
        const struct weft__net_header acknowledgement = {
            .kind = WEFT__NET_ACKNOWLEDGE, .sequence = header->sequence, .place = header->place};
        weft__net_send_control(net, rank, &acknowledgement);
    }
}

/* Returns 0, and the peer has failed, if the number cannot be. */
static int mark(struct weft__net *net, int32_t rank, uint64_t sequence)
{
    switch (weft__ledger_mark(&net->peers[rank].ledger, sequence)) {
    case WEFT__LEDGER_MARKED:
        return 1;
    case WEFT__LEDGER_TWICE:
        blame(net, rank, "its number was there already");
        return 0;
    case WEFT__LEDGER_TOO_FAR:
        blame(net, rank, "too many before it are missing");
        return 0;
    default:
        weft__net_lose_memory(net, rank);
        return 0;
    }
}

/* Those for which the numbers below are complete now. */
static void release_waiting(struct weft__net *net, int32_t rank)
{
    struct weft__net_peer *peer = &net->peers[rank];
    while (peer->waiting != NULL && peer->waiting->header.sequence == peer->ledger.prefix) {
        struct weft__net_waiting *first = peer->waiting;
        peer->waiting = first->next;
        peer->num_waiting--;
        take_effect(net, rank, &first->header);
        mark(net, rank, first->header.sequence);
        free(first);
    }
}

/* A payload of NULL is in its place already. */
static void take_put(struct weft__net *net, int32_t rank, const struct weft__net_header *header,
                     const void *payload)
{
    uint64_t before;
    if (!mark(net, rank, header->sequence))
        return;
    if (payload != NULL && header->num_bytes > 0 &&
        weft__net_write(net, rank, header->place, payload, header->num_bytes) != WEFT_OK)
        return;
    if (header->word != WEFT__NET_NO_WORD &&
        weft__net_add_to_word(net, rank, header->word, header->add, &before) != WEFT_OK)
        return;
    if (header->also_word != WEFT__NET_NO_WORD &&
        weft__net_add_to_word(net, rank, header->also_word, header->also_add, &before) != WEFT_OK)
        return;
    release_waiting(net, rank);
}

static void wait_for_earlier(struct weft__net *net, int32_t rank,
                             const struct weft__net_header *header)
{
    struct weft__net_peer *peer = &net->peers[rank];
    struct weft__net_waiting **link = &peer->waiting;
    while (*link != NULL && (*link)->header.sequence < header->sequence)
        link = &(*link)->next;
    if (*link != NULL && (*link)->header.sequence == header->sequence) {
        blame(net, rank, "its number was there already");
        return;
    }
    if (peer->num_waiting == WEFT__NET_MAX_WAITING) {
        blame(net, rank, "too many before it are missing");
        return;
    }
    struct weft__net_waiting *waiting = malloc(sizeof(*waiting));
    if (waiting == NULL) {
        weft__net_lose_memory(net, rank);
        return;
    }
    *waiting = (struct weft__net_waiting){.next = *link, .header = *header};
    *link = waiting;
    peer->num_waiting++;
    release_waiting(net, rank);
}

static void take_ordered(struct weft__net *net, int32_t rank, const struct weft__net_header *header)
{
    const struct weft__ledger *ledger = &net->peers[rank].ledger;
    if (weft__ledger_look(ledger, header->sequence) == WEFT__LEDGER_MARKED)
        wait_for_earlier(net, rank, header);
    else
        mark(net, rank, header->sequence); /* which says what is wrong */
}

static void take_leave(struct weft__net *net, int32_t rank)
{
    struct weft__net_peer *peer = &net->peers[rank];
    if (peer->state != WEFT__NET_CONNECTED)
        return;
    peer->state = WEFT__NET_LEFT;
    peer->rest = WEFT__NET_TO_BE_DROPPED;
    net->num_to_be_dropped++;
}

static void take_packet(struct weft__net *net, int32_t rank, const void *payload, size_t num_bytes)
{
    const struct weft__net_packets *packets = &net->packets;
    const char *offence = packets->take != NULL
                              ? packets->take(packets->context, rank, payload, num_bytes)
                              : "there is no NIC here";
    if (offence != NULL)
        blame(net, rank, offence);
}

static void take_message(struct weft__net *net, int32_t rank, const struct weft__net_header *header,
                         const void *payload)
{
    switch (header->kind) {
    case WEFT__NET_PUT:
        take_put(net, rank, header, payload);
        break;
    case WEFT__NET_ACKNOWLEDGE:
        if (!weft__net_take_acknowledgement(&net->peers[rank], header))
            blame(net, rank, "it acknowledges what was not asked");
        break;
    case WEFT__NET_GOODBYE:
        take_leave(net, rank);
        break;
    case WEFT__NET_GET:
        weft__net_answer_get(net, rank, header);
        break;
    case WEFT__NET_FETCH_ADD:
        weft__net_answer_fetch_add(net, rank, header);
        break;
    case WEFT__NET_ANSWER:
        if (!weft__net_take_answer(net, rank, header, payload))
            blame(net, rank, "it answers what was not asked");
        break;
    case WEFT__NET_PACKET:
        take_packet(net, rank, payload, header->num_bytes);
        break;
    default:
        take_ordered(net, rank, header);
        break;
    }
}

/* Whether it makes sense; else its sender has failed. */
static int check(struct weft__net *net, const struct weft__net_header *header, size_t payload_bytes)
{
    if (net->config.order != NULL)
        (void)atomic_load_explicit(net->config.order, memory_order_acquire);
    const char *offence = find_offence(net, header, payload_bytes);
    if (offence != NULL)
        blame(net, header->source, offence);
    return offence == NULL;
}

static void take(struct weft__net *net, const struct weft__net_header *header, const void *payload,
                 size_t payload_bytes)
{
    const int is_right = check(net, header, payload_bytes);
    if (is_right && (header->kind == WEFT__NET_PUT || header->kind == WEFT__NET_SIGNAL))
        weft__net_add_traffic(net, header->source,
                              (struct weft__peer_traffic){
                                  .received_bytes = net->engine->header_bytes + payload_bytes});
    if (is_right)
        take_message(net, header->source, header, payload);
    if (net->config.num_taken != NULL)
        atomic_fetch_add_explicit(net->config.num_taken, 1, memory_order_release);
}

void weft__net_receive(struct weft__net *net, int32_t peer, const void *header_memory,
                       size_t header_bytes, const void *payload, size_t payload_bytes)
{
    struct weft__net_header header = {.source = peer};
    /* Copied before it is checked: the sender may share this memory, and change it in between. */
    if (header_bytes == sizeof(header))
        memcpy(&header, header_memory, sizeof(header));
    if (header_bytes != sizeof(header) && peer >= 0)
        blame(net, peer, "its length is wrong");
    else if (header_bytes != sizeof(header))
        refuse_stranger(net, peer);
    else if (is_from_peer(net, peer, &header))
        take(net, &header, payload, payload_bytes);
}

enum weft__net_landing weft__net_announce(struct weft__net *net, int32_t peer,
                                          const struct weft__net_header *header, void **place)
{
    if (!is_from_peer(net, peer, header) || !check(net, header, header->num_bytes))
        return WEFT__NET_REFUSED;
    *place = header->kind == WEFT__NET_PUT ? weft__net_address_of(net, header->place) : NULL;
    return *place != NULL ? WEFT__NET_LANDS : WEFT__NET_GATHERED;
}

/* Checked once more: its word may have been taken away meanwhile. */
void weft__net_landed(struct weft__net *net, int32_t peer, const struct weft__net_header *header)
{
    if (is_from_peer(net, peer, header))
        take(net, header, NULL, header->num_bytes);
}

void weft__net_drop_target(struct weft__net_peer *peer)
{
    while (peer->waiting != NULL) {
        struct weft__net_waiting *first = peer->waiting;
        peer->waiting = first->next;
        free(first);
    }
    peer->num_waiting = 0;
}
