/* SPDX-License-Identifier: MIT */
/* The operations of net.h: checked, then made of messages and writes. */
#include <stdlib.h>
#include <string.h>

#include "comm/host/error.h"
#include "net/net_internal.h"

weft_result weft__net_check_peer(const struct weft__net *net, int32_t peer)
{
    if (peer < 0 || peer >= net->config.num_ranks || net->peers[peer].state == WEFT__NET_NO_PEER)
        return weft__invalid("rank %d is no peer of the network", peer);
    if (net->peers[peer].state == WEFT__NET_LEFT)
        return weft__error(WEFT_ERROR_RANK_FAILED, "rank %d has left the network", peer);
    return weft__net_peer_error(net, peer);
}

static int is_within(uint64_t place, uint64_t num_bytes, uint64_t region_bytes)
{
    return num_bytes <= region_bytes && weft__net_offset_of(place) <= region_bytes - num_bytes;
}

static enum weft__net_access access_at_peer(const struct weft__net *net, int32_t rank,
                                            uint64_t place)
{
    const uint32_t region = weft__net_region_of(place);
    return region < WEFT__NET_MAX_REGIONS ? net->peers[rank].region_access[region]
                                          : WEFT__NET_NOT_THERE;
}

static weft_result check_remote_bytes(const struct weft__net *net, int32_t rank, const char *name,
                                      uint64_t place, uint64_t num_bytes)
{
    const uint32_t region = weft__net_region_of(place);
    const uint64_t region_bytes =
        region < WEFT__NET_MAX_REGIONS ? net->peers[rank].region_bytes[region] : 0;
    if (access_at_peer(net, rank, place) != WEFT__NET_NOT_THERE &&
        is_within(place, num_bytes, region_bytes))
        return WEFT_OK;
    return weft__invalid("%s is byte %llu of region %u, %llu bytes; rank %d has %llu there", name,
                         (unsigned long long)weft__net_offset_of(place), region,
                         (unsigned long long)num_bytes, rank, (unsigned long long)region_bytes);
}

weft_result weft__net_check_remote(const struct weft__net *net, int32_t rank, const char *name,
                                   uint64_t place, uint64_t num_bytes)
{
    WEFT__TRY(check_remote_bytes(net, rank, name, place, num_bytes));
    if (access_at_peer(net, rank, place) != WEFT__NET_BY_WRITES)
        return WEFT_OK;
    return weft__invalid(
        "%s is in region %u of rank %d, memory of a device, to which puts go alone", name,
        weft__net_region_of(place), rank);
}

weft_result weft__net_check_word(const struct weft__net *net, int32_t rank, uint64_t word)
{
    if (word % sizeof(uint64_t) != 0)
        return weft__invalid("word is byte %llu of region %u; it must be a multiple of 8",
                             (unsigned long long)weft__net_offset_of(word),
                             weft__net_region_of(word));
    return weft__net_check_remote(net, rank, "word", word, sizeof(uint64_t));
}

enum way { MESSAGES, WRITE, NO_WAY };

/* As much of a put as goes one way. */
struct piece {
    enum way way;
    uint64_t source, target; /* as the engine knows them, if it is written */
    uint64_t num_bytes;
};

static enum way way_of(const struct weft__net *net, const struct wp_access *put,
                       const struct piece *piece)
{
    const struct weft__net_region *source = &net->regions[weft__net_region_of(piece->source)];
    const enum weft__net_access target =
        net->peers[put->rank].region_access[weft__net_region_of(piece->target)];
    const int is_for_engine =
        target == WEFT__NET_BY_WRITES || source->kind == WEFT__NET_REGISTERED_DEVICE;
    if (target >= WEFT__NET_BY_BOTH && source->kind != WEFT__NET_ACCESSED &&
        (is_for_engine || piece->num_bytes >= net->min_write_bytes))
        return WRITE;
    return is_for_engine ? NO_WAY : MESSAGES;
}

/* From byte `begin` of a put on, whose bytes are at both ends. Steps cut it; to one of which the
 * peer has told nothing it goes as to the rest of the region. */
static struct piece find_piece(const struct weft__net *net, const struct wp_access *put,
                               uint64_t begin)
{
    struct piece piece = {.num_bytes = put->num_bytes - begin};
    piece.source = weft__net_step_of(net, put->source + begin, &piece.num_bytes);
    piece.target = weft__net_step_of(net, put->target + begin, &piece.num_bytes);
    if (net->peers[put->rank].region_access[weft__net_region_of(piece.target)] ==
        WEFT__NET_NOT_THERE)
        piece.target = put->target + begin;
    piece.way = way_of(net, put, &piece);
    return piece;
}

/* The highest of all pieces' ways. */
static enum way find_way(const struct weft__net *net, const struct wp_access *put)
{
    enum way way = MESSAGES;
    for (uint64_t begin = 0; begin < put->num_bytes;) {
        const struct piece piece = find_piece(net, put, begin);
        if (piece.way > way)
            way = piece.way;
        begin += piece.num_bytes;
    }
    return way;
}

static weft_result check_bytes(const struct weft__net *net, const struct wp_access *put)
{
    const uint32_t region = weft__net_region_of(put->source);
    if (put->num_bytes == 0)
        return WEFT_OK;
    if (!weft__net_is_registered(net, put->source, put->num_bytes))
        return weft__invalid("source is byte %llu of region %u, %llu bytes; the region has %llu",
                             (unsigned long long)weft__net_offset_of(put->source), region,
                             (unsigned long long)put->num_bytes,
                             (unsigned long long)weft__net_region_bytes(net, region));
    WEFT__TRY(check_remote_bytes(net, put->rank, "target", put->target, put->num_bytes));
    return find_way(net, put) != NO_WAY
               ? WEFT_OK
               : weft__invalid("nothing goes from region %u to region %u of rank %d: of devices' "
                               "memory both must be registered",
                               region, weft__net_region_of(put->target), put->rank);
}

/* Bytes [begin, begin + num_bytes) of the put. */
static void describe_bytes(struct weft__net_operation *operation, const struct wp_access *put,
                           uint64_t begin, uint64_t num_bytes)
{
    operation->header.kind = WEFT__NET_PUT;
    if (num_bytes == 0)
        return;
    weft__net_set_payload(operation, put->source + begin, num_bytes);
    operation->header.place = put->target + begin;
}

/* `also`, if not NULL, goes with each message: there must be one. */
static weft_result send_bytes(struct weft__net *net, const struct wp_access *put, uint64_t word,
                              const struct wp_access *also, struct weft__net_request *request)
{
    uint64_t begin = 0;
    do {
        uint64_t num_bytes = put->num_bytes - begin;
        if (num_bytes > net->max_message_bytes)
            num_bytes = net->max_message_bytes;
        struct weft__net_operation *operation = weft__net_operation_new(net, put->rank, request);
        if (operation == NULL)
            return weft__net_lose_memory(net, put->rank);
        describe_bytes(operation, put, begin, num_bytes);
        operation->header.word = word;
        operation->header.add = put->add;
        if (also != NULL) {
            operation->header.also_word = also->word;
            operation->header.also_add = also->add;
        }
        weft__net_send(operation);
        begin += num_bytes;
    } while (begin < put->num_bytes);
    return WEFT_OK;
}

static weft_result write_bytes(struct weft__net *net, int32_t peer, const struct piece *piece,
                               struct weft__net_request *request)
{
    struct weft__net_operation *operation = weft__net_operation_new(net, peer, request);
    if (operation == NULL)
        return weft__net_lose_memory(net, peer);
    operation->type = WEFT__NET_WRITE;
    operation->header.kind = WEFT__NET_PUT;
    weft__net_set_payload(operation, piece->source, piece->num_bytes);
    operation->header.place = piece->target;
    atomic_fetch_add_explicit(&net->num_put_bytes, piece->num_bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&net->num_written_bytes, piece->num_bytes, memory_order_relaxed);
    weft__net_add_traffic(net, peer, (struct weft__peer_traffic){.sent_bytes = piece->num_bytes});
    net->peers[peer].num_writes++;
    enum weft__net_start start = net->engine->write(net->state, operation);
    if (start == WEFT__NET_DONE)
        weft__net_done(operation, WEFT_OK);
    else if (start == WEFT__NET_LOST)
        weft__net_done(operation, WEFT_ERROR_RANK_FAILED);
    return WEFT_OK;
}

/* Each piece by its way. */
static weft_result transfer_bytes(struct weft__net *net, const struct wp_access *put,
                                  struct weft__net_request *request)
{
    weft_result result = WEFT_OK;
    for (uint64_t begin = 0; begin < put->num_bytes && result == WEFT_OK;) {
        const struct piece piece = find_piece(net, put, begin);
        struct wp_access part = *put;
        part.source += begin;
        part.target += begin;
        part.num_bytes = piece.num_bytes;
        result = piece.way == WRITE ? write_bytes(net, put->rank, &piece, request)
                                    : send_bytes(net, &part, WEFT__NET_NO_WORD, NULL, request);
        begin += piece.num_bytes;
    }
    return result;
}

static weft_result send_signal(struct weft__net *net, int32_t peer, uint64_t word, uint64_t add)
{
    struct weft__net_operation *operation = weft__net_operation_new(net, peer, NULL);
    if (operation == NULL)
        return weft__net_lose_memory(net, peer);
    operation->header.kind = WEFT__NET_SIGNAL;
    operation->header.word = word;
    operation->header.add = add;
    weft__net_hold(operation);
    return WEFT_OK;
}

static weft_result start_put(struct weft__net *net, const struct wp_access *put, uint64_t word,
                             const struct wp_access *also, struct weft__net_request *request)
{
    if (put->num_bytes <= net->max_message_bytes && find_way(net, put) == MESSAGES)
        return send_bytes(net, put, word, also, request);
    weft_result result = transfer_bytes(net, put, request);
    if (result == WEFT_OK && word != WEFT__NET_NO_WORD)
        result = send_signal(net, put->rank, word, put->add);
    if (result == WEFT_OK && also != NULL)
        result = send_bytes(net, also, also->word, NULL, request);
    return result;
}

weft_result weft__net_put(struct weft__net *net, const struct wp_access *put,
                          struct weft__net_request *request)
{
    WEFT__TRY(weft__net_check_peer(net, put->rank));
    WEFT__TRY(check_bytes(net, put));
    return start_put(net, put, WEFT__NET_NO_WORD, NULL, request);
}

weft_result weft__net_check_put_signal(const struct weft__net *net, const struct wp_access *put)
{
    WEFT__TRY(weft__net_check_peer(net, put->rank));
    WEFT__TRY(check_bytes(net, put));
    return weft__net_check_word(net, put->rank, put->word);
}

weft_result weft__net_put_signal(struct weft__net *net, const struct wp_access *put,
                                 const struct wp_access *also, struct weft__net_request *request)
{
    WEFT__TRY(weft__net_check_put_signal(net, put));
    return start_put(net, put, put->word, also, request);
}

weft_result weft__net_signal(struct weft__net *net, const struct wp_access *signal)
{
    WEFT__TRY(weft__net_check_peer(net, signal->rank));
    WEFT__TRY(weft__net_check_word(net, signal->rank, signal->word));
    return send_signal(net, signal->rank, signal->word, signal->add);
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
    if (peer != WEFT__NET_ALL_PEERS) {
        weft_result result = weft__net_check_peer(net, peer);
        return result == WEFT_OK ? weft__net_flush_peer(net, peer, request) : result;
    }
    /* Those who are there are flushed, whoever is not: what they were sent must not be lost with
     * it. */
    for (int32_t rank = 0; rank < net->config.num_ranks; rank++)
        if (net->peers[rank].state == WEFT__NET_CONNECTED)
            WEFT__TRY(weft__net_flush_peer(net, rank, request));
    for (int32_t rank = 0; rank < net->config.num_ranks; rank++)
        if (net->peers[rank].state != WEFT__NET_NO_PEER)
            WEFT__TRY(weft__net_check_peer(net, rank));
    return WEFT_OK;
}

/* ---------------------------------------------------------------- packets */

void weft__net_set_packets(struct weft__net *net, const struct weft__net_packets *packets)
{
    net->packets = *packets;
}

int weft__net_send_packet(struct weft__net *net, int32_t peer, const void *bytes, size_t num_bytes)
{
    if (net->peers[peer].state != WEFT__NET_CONNECTED)
        return 0;
    struct weft__net_operation *operation = weft__net_operation_new(net, peer, NULL);
    void *copy = malloc(num_bytes);
    if (operation == NULL || copy == NULL) {
        weft__net_lose_memory(net, peer);
        free(copy);
        if (operation != NULL)
            weft__net_done(operation, WEFT_ERROR_OUT_OF_MEMORY);
        return 0;
    }
    memcpy(copy, bytes, num_bytes);
    operation->header.kind = WEFT__NET_PACKET;
    operation->header.num_bytes = num_bytes;
    operation->payload = operation->staged = copy;
    weft__net_send(operation);
    return 1;
}
