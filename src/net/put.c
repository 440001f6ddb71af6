/* SPDX-License-Identifier: MIT */
/* The operations of net.h: checked, then made of messages and writes. */
#include <stdlib.h>

#include "comm/error.h"
#include "net/net_internal.h"

static weft_result check_peer(const struct weft__net *net, int32_t peer)
{
    if (peer < 0 || peer >= net->config.num_ranks || net->peers[peer].state == WEFT__NET_NO_PEER)
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT, "rank %d is no peer of the network", peer);
    if (net->peers[peer].state == WEFT__NET_LEFT)
        return weft__error(WEFT_ERROR_RANK_FAILED, "rank %d has left the network", peer);
    return weft__net_peer_error(net, peer);
}

static weft_result check_signal(const struct weft__net *net, int32_t peer, uint32_t signal)
{
    if (signal < net->peers[peer].num_signals)
        return WEFT_OK;
    return weft__error(WEFT_ERROR_INVALID_ARGUMENT, "signal is %u; rank %d has %u", signal, peer,
                       net->peers[peer].num_signals);
}

static int is_within(uint64_t offset, uint64_t num_bytes, uint64_t region_bytes)
{
    return num_bytes <= region_bytes && offset <= region_bytes - num_bytes;
}

static weft_result check_put(const struct weft__net *net, const struct weft__net_put *put)
{
    const struct weft__net_peer *peer = &net->peers[put->peer];
    const uint64_t offset_mask = weft__net_place(1, 0) - 1;
    uint64_t from = put->source >> WEFT__NET_PLACE_OFFSET_BITS;
    uint64_t to = put->target >> WEFT__NET_PLACE_OFFSET_BITS;
    uint64_t from_bytes = from < net->num_regions ? net->regions[from].num_bytes : 0;
    uint64_t to_bytes = to < peer->num_regions ? peer->region_bytes[to] : 0;
    if (from >= net->num_regions ||
        !is_within(put->source & offset_mask, put->num_bytes, from_bytes))
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT,
                           "source is byte %llu of region %u, %llu bytes; the region has %llu",
                           (unsigned long long)(put->source & offset_mask), (unsigned)from,
                           (unsigned long long)put->num_bytes, (unsigned long long)from_bytes);
    if (to >= peer->num_regions || !is_within(put->target & offset_mask, put->num_bytes, to_bytes))
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT,
                           "target is byte %llu of region %u, %llu bytes; rank %d has %llu there",
                           (unsigned long long)(put->target & offset_mask), (unsigned)to,
                           (unsigned long long)put->num_bytes, put->peer,
                           (unsigned long long)to_bytes);
    return WEFT_OK;
}

/* Bytes [begin, begin + num_bytes) of the put. */
static void describe_bytes(struct weft__net_operation *operation, const struct weft__net_put *put,
                           uint64_t begin, uint64_t num_bytes)
{
    const uint64_t offset = put->source & (weft__net_place(1, 0) - 1);
    operation->region = (uint32_t)(put->source >> WEFT__NET_PLACE_OFFSET_BITS);
    operation->payload = operation->net->regions[operation->region].memory + offset + begin;
    operation->header.kind = WEFT__NET_PUT;
    operation->header.place = put->target + begin;
    operation->header.num_bytes = num_bytes;
}

static weft_result send_bytes(struct weft__net *net, const struct weft__net_put *put,
                              uint32_t signal, struct weft__net_request *request)
{
    uint64_t begin = 0;
    do {
        uint64_t num_bytes = put->num_bytes - begin;
        if (num_bytes > net->max_message_bytes)
            num_bytes = net->max_message_bytes;
        struct weft__net_operation *operation = weft__net_operation_new(net, put->peer, request);
        if (operation == NULL)
            return weft__net_lose_memory(net, put->peer);
        describe_bytes(operation, put, begin, num_bytes);
        operation->header.signal = signal;
        operation->header.add = put->add;
        weft__net_send(operation);
        begin += num_bytes;
    } while (begin < put->num_bytes);
    return WEFT_OK;
}

static weft_result write_bytes(struct weft__net *net, const struct weft__net_put *put,
                               struct weft__net_request *request)
{
    struct weft__net_operation *operation = weft__net_operation_new(net, put->peer, request);
    if (operation == NULL)
        return weft__net_lose_memory(net, put->peer);
    describe_bytes(operation, put, 0, put->num_bytes);
    operation->type = WEFT__NET_WRITE;
    net->peers[put->peer].num_writes++;
    enum weft__net_start start = net->engine->write(net->state, operation);
    if (start == WEFT__NET_DONE)
        weft__net_done(operation, WEFT_OK);
    else if (start == WEFT__NET_LOST)
        weft__net_done(operation, WEFT_ERROR_RANK_FAILED);
    return WEFT_OK;
}

static weft_result send_signal(struct weft__net *net, int32_t peer, uint32_t signal, uint32_t add)
{
    struct weft__net_operation *operation = weft__net_operation_new(net, peer, NULL);
    if (operation == NULL)
        return weft__net_lose_memory(net, peer);
    operation->header.kind = WEFT__NET_SIGNAL;
    operation->header.signal = signal;
    operation->header.add = add;
    weft__net_hold(operation);
    return WEFT_OK;
}

static weft_result start_put(struct weft__net *net, const struct weft__net_put *put,
                             uint32_t signal, struct weft__net_request *request)
{
    int is_write = put->num_bytes >= net->min_write_bytes;
    if (!is_write && put->num_bytes <= net->max_message_bytes)
        return send_bytes(net, put, signal, request);
    weft_result result = is_write ? write_bytes(net, put, request)
                                  : send_bytes(net, put, WEFT__NET_NO_SIGNAL, request);
    if (result == WEFT_OK && signal != WEFT__NET_NO_SIGNAL)
        result = send_signal(net, put->peer, signal, put->add);
    return result;
}

static weft_result check_and_start(struct weft__net *net, const struct weft__net_put *put,
                                   uint32_t signal, struct weft__net_request *request)
{
    if (request != NULL)
        *request = (struct weft__net_request){.num_left = 0};
    weft_result result = check_peer(net, put->peer);
    if (result == WEFT_OK)
        result = check_put(net, put);
    if (result == WEFT_OK && signal != WEFT__NET_NO_SIGNAL)
        result = check_signal(net, put->peer, signal);
    return result == WEFT_OK ? start_put(net, put, signal, request) : result;
}

weft_result weft__net_put(struct weft__net *net, const struct weft__net_put *put,
                          struct weft__net_request *request)
{
    return check_and_start(net, put, WEFT__NET_NO_SIGNAL, request);
}

weft_result weft__net_put_signal(struct weft__net *net, const struct weft__net_put *put,
                                 struct weft__net_request *request)
{
    weft_result result = check_peer(net, put->peer);
    if (result == WEFT_OK)
        result = check_signal(net, put->peer, put->signal);
    if (result != WEFT_OK && request != NULL)
        *request = (struct weft__net_request){.num_left = 0};
    return result == WEFT_OK ? check_and_start(net, put, put->signal, request) : result;
}

weft_result weft__net_signal(struct weft__net *net, int32_t peer, uint32_t signal, uint32_t add)
{
    weft_result result = check_peer(net, peer);
    if (result == WEFT_OK)
        result = check_signal(net, peer, signal);
    return result == WEFT_OK ? send_signal(net, peer, signal, add) : result;
}

/* ---------------------------------------------------------------- flush */

weft_result weft__net_flush_peer(struct weft__net *net, int32_t peer,
                                 struct weft__net_request *request)
{
    struct weft__net_waiting *flush = calloc(1, sizeof(*flush));
    struct weft__net_operation *operation =
        flush != NULL ? weft__net_operation_new(net, peer, NULL) : NULL;
    if (operation == NULL) {
        free(flush);
        return weft__net_lose_memory(net, peer);
    }
    flush->header.kind = WEFT__NET_FLUSH;
    flush->header.place = net->num_flushes++;
    flush->request = request;
    if (request != NULL)
        request->num_left++;
    flush->next = net->peers[peer].flushes;
    net->peers[peer].flushes = flush;
    operation->header.kind = WEFT__NET_FLUSH;
    operation->header.place = flush->header.place;
    weft__net_hold(operation);
    return WEFT_OK;
}

weft_result weft__net_flush(struct weft__net *net, int32_t peer, struct weft__net_request *request)
{
    if (request != NULL)
        *request = (struct weft__net_request){.num_left = 0};
    if (peer != WEFT__NET_ALL_PEERS) {
        weft_result result = check_peer(net, peer);
        return result == WEFT_OK ? weft__net_flush_peer(net, peer, request) : result;
    }
    weft_result result = WEFT_OK;
    for (int32_t rank = 0; rank < net->config.num_ranks && result == WEFT_OK; rank++)
        if (net->peers[rank].state != WEFT__NET_NO_PEER)
            result = check_peer(net, rank);
    for (int32_t rank = 0; rank < net->config.num_ranks && result == WEFT_OK; rank++)
        if (net->peers[rank].state == WEFT__NET_CONNECTED)
            result = weft__net_flush_peer(net, rank, request);
    return result;
}
