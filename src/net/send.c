/* SPDX-License-Identifier: MIT */
/* The source's half of the contract: numbers messages, cuts long puts, and holds back what must not
 * overtake a write. */
#include <stdlib.h>
#include <string.h>

#include "comm/host/error.h"
#include "net/net_internal.h"

/* ---------------------------------------------------------------- operations */

struct weft__net_operation *weft__net_operation_new(struct weft__net *net, int32_t peer,
                                                    struct weft__net_request *request)
{
    struct weft__net_operation *operation = net->unused;
    if (operation != NULL)
        net->unused = operation->next;
    else if ((operation = malloc(sizeof(*operation))) == NULL)
        return NULL;
    *operation = (struct weft__net_operation){.net = net, .peer = peer, .request = request};
    memcpy(operation->header.secret, net->config.secret, sizeof(operation->header.secret));
    operation->header.source = net->config.rank;
    operation->header.word = WEFT__NET_NO_WORD;
    operation->header.also_word = WEFT__NET_NO_WORD;
    if (request != NULL)
        request->num_left++;
    net->num_under_way++;
    weft__net_add_traffic(net, peer, (struct weft__peer_traffic){.num_under_way = 1});
    return operation;
}

static void append(struct weft__net_operations *list, struct weft__net_operation *operation)
{
    operation->next = NULL;
    if (list->last != NULL)
        list->last->next = operation;
    else
        list->first = operation;
    list->last = operation;
}

static struct weft__net_operation *take_first(struct weft__net_operations *list)
{
    struct weft__net_operation *first = list->first;
    list->first = first->next;
    if (list->first == NULL)
        list->last = NULL;
    return first;
}

static void end_operation(struct weft__net_operation *operation, weft_result result)
{
    struct weft__net *net = operation->net;
    weft__net_unstage(operation);
    if (operation->request != NULL)
        weft__net_finish(operation->request, result);
    operation->next = net->unused;
    net->unused = operation;
    net->num_under_way--;
    weft__net_add_traffic(net, operation->peer,
                          (struct weft__peer_traffic){.num_under_way = ~UINT64_C(0)});
}

void weft__net_operation_delete_all(struct weft__net *net)
{
    while (net->unused != NULL) {
        struct weft__net_operation *operation = net->unused;
        net->unused = operation->next;
        free(operation);
    }
}

/* WEFT__NET_FULL leaves the operation to the caller. */
static enum weft__net_start start_message(struct weft__net_operation *operation)
{
    struct weft__net *net = operation->net;
    enum weft__net_start start = weft__net_stage(operation);
    if (start == WEFT__NET_DONE)
        start = net->engine->send(net->state, operation);
    if (start == WEFT__NET_DONE)
        end_operation(operation, WEFT_OK);
    else if (start == WEFT__NET_LOST)
        end_operation(operation, WEFT_ERROR_RANK_FAILED);
    return start;
}

static int has_number(uint32_t kind)
{
    return kind == WEFT__NET_PUT || kind == WEFT__NET_SIGNAL || kind == WEFT__NET_FLUSH;
}

static void count(struct weft__net_operation *operation)
{
    struct weft__net *net = operation->net;
    const struct weft__net_header *header = &operation->header;
    if (header->kind != WEFT__NET_PUT && header->kind != WEFT__NET_SIGNAL)
        return;
    atomic_fetch_add_explicit(&net->num_header_bytes, net->engine->header_bytes,
                              memory_order_relaxed);
    atomic_fetch_add_explicit(&net->num_put_bytes, header->num_bytes, memory_order_relaxed);
    weft__net_add_traffic(
        net, operation->peer,
        (struct weft__peer_traffic){.sent_bytes = net->engine->header_bytes + header->num_bytes});
}

void weft__net_send(struct weft__net_operation *operation)
{
    struct weft__net *net = operation->net;
    struct weft__net_peer *peer = &net->peers[operation->peer];
    count(operation);
    if (has_number(operation->header.kind))
        operation->header.sequence = peer->next_sequence++;
    if (peer->unsent.first == NULL && start_message(operation) != WEFT__NET_FULL)
        return;
    append(&peer->unsent, operation);
    net->num_unsent++;
}

int weft__net_send_unsent(struct weft__net *net)
{
    int num_sent = 0;
    for (int32_t rank = 0; net->num_unsent > 0 && rank < net->config.num_ranks; rank++) {
        struct weft__net_operations *unsent = &net->peers[rank].unsent;
        while (unsent->first != NULL) {
            struct weft__net_operation *next = unsent->first->next;
            if (start_message(unsent->first) == WEFT__NET_FULL)
                break;
            unsent->first = next;
            if (next == NULL)
                unsent->last = NULL;
            net->num_unsent--;
            num_sent++;
        }
    }
    return num_sent;
}

weft_result weft__net_lose_memory(struct weft__net *net, int32_t peer)
{
    weft__net_fail_peer(net, peer, "no memory for messages to rank %d", peer);
    return weft__no_memory("no memory for messages to rank %d", peer);
}

void weft__net_send_control(struct weft__net *net, int32_t peer,
                            const struct weft__net_header *header)
{
    struct weft__net_operation *operation = weft__net_operation_new(net, peer, NULL);
    if (operation == NULL) {
        weft__net_lose_memory(net, peer);
        return;
    }
    operation->header.kind = header->kind;
    operation->header.sequence = header->sequence;
    operation->header.place = header->place;
    weft__net_send(operation);
}

/* ---------------------------------------------------------------- holding */

int weft__net_has_unflushed(const struct weft__net_peer *peer)
{
    return peer->num_writes != peer->num_writes_flushed || peer->held.first != NULL;
}

/* One flush at a time: what comes meanwhile shares the next. */
static void flush_writes(struct weft__net *net, int32_t rank)
{
    struct weft__net_peer *peer = &net->peers[rank];
    struct weft__net_operation *operation = weft__net_operation_new(net, rank, NULL);
    if (operation == NULL) {
        weft__net_lose_memory(net, rank);
        return;
    }
    operation->type = WEFT__NET_WRITE_FLUSH;
    operation->num_writes = peer->num_writes;
    peer->write_flush = WEFT__NET_FLUSHING;
    enum weft__net_start start = net->engine->flush_writes(net->state, operation);
    if (start == WEFT__NET_DONE)
        weft__net_done(operation, WEFT_OK);
    else if (start == WEFT__NET_LOST)
        weft__net_done(operation, WEFT_ERROR_RANK_FAILED);
}

static void send_held(struct weft__net *net, int32_t rank)
{
    struct weft__net_peer *peer = &net->peers[rank];
    while (peer->state == WEFT__NET_CONNECTED && peer->held.first != NULL &&
           peer->held.first->num_writes <= peer->num_writes_flushed)
        weft__net_send(take_first(&peer->held));
    if (peer->state == WEFT__NET_CONNECTED && peer->held.first != NULL &&
        peer->write_flush == WEFT__NET_NOT_FLUSHING)
        flush_writes(net, rank);
}

/* For messages that must not take effect before the writes that were made until now. */
void weft__net_hold(struct weft__net_operation *operation)
{
    struct weft__net_peer *peer = &operation->net->peers[operation->peer];
    operation->num_writes = peer->num_writes;
    append(&peer->held, operation);
    send_held(operation->net, operation->peer);
}

void weft__net_done(struct weft__net_operation *operation, weft_result result)
{
    struct weft__net *net = operation->net;
    int32_t rank = operation->peer;
    struct weft__net_peer *peer = &net->peers[rank];
    int is_flush = operation->type == WEFT__NET_WRITE_FLUSH;
    if (is_flush) {
        peer->write_flush = WEFT__NET_NOT_FLUSHING;
        if (result == WEFT_OK)
            peer->num_writes_flushed = operation->num_writes;
    }
    end_operation(operation, result);
    if (result != WEFT_OK)
        weft__net_fail_peer(net, rank, "rank %d does not take what is sent to it", rank);
    else if (is_flush)
        send_held(net, rank);
}

/* ---------------------------------------------------------------- ends */

static void drop(struct weft__net_operations *list)
{
    while (list->first != NULL)
        end_operation(take_first(list), WEFT_ERROR_RANK_FAILED);
}

void weft__net_drop_source(struct weft__net *net, int32_t rank)
{
    struct weft__net_peer *peer = &net->peers[rank];
    for (const struct weft__net_operation *unsent = peer->unsent.first; unsent != NULL;
         unsent = unsent->next)
        net->num_unsent--;
    drop(&peer->unsent);
    drop(&peer->held);
    while (peer->flushes != NULL) {
        struct weft__net_waiting *flush = peer->flushes;
        peer->flushes = flush->next;
        if (flush->request != NULL)
            weft__net_finish(flush->request, WEFT_ERROR_RANK_FAILED);
        free(flush);
    }
    weft__net_drop_fetches(peer);
}

int weft__net_take_acknowledgement(struct weft__net_peer *peer,
                                   const struct weft__net_header *header)
{
    struct weft__net_waiting **link = &peer->flushes;
    while (*link != NULL && (*link)->header.place != header->place)
        link = &(*link)->next;
    struct weft__net_waiting *flush = *link;
    if (flush == NULL || header->sequence >= peer->next_sequence)
        return 0;
    *link = flush->next;
    if (header->sequence + 1 > peer->num_acknowledged)
        peer->num_acknowledged = header->sequence + 1;
    if (flush->request != NULL)
        weft__net_finish(flush->request, WEFT_OK);
    free(flush);
    return 1;
}
