/* SPDX-License-Identifier: MIT */
/* The life of a net: opening, connecting, progress, peers that go, closing. */
#include "net/net.h"

#include <math.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/host/error.h"
#include "comm/host/log.h"
#include "comm/host/thread.h"
#include "net/net_internal.h"

enum { DEFAULT_TIMEOUT_MS = 30000, DEFAULT_CLOSE_MS = 1000, CLOSE_NAP_MS = 10 };

void weft__net_finish(struct weft__net_request *request, weft_result result)
{
    if (result != WEFT_OK && request->result == WEFT_OK)
        request->result = result;
    request->num_left--;
}

/* ---------------------------------------------------------------- opening */

static weft_result check_config(const struct weft__net_config *config)
{
    if (config->num_ranks < 1 || config->rank < 0 || config->rank >= config->num_ranks)
        return weft__invalid("rank %d of %d", config->rank, config->num_ranks);
    return WEFT_OK;
}

static weft_result open_engine(struct weft__net *net)
{
    const struct weft__net_engine *engine = NULL;
    WEFT__TRY(weft__net_choose(&net->config, &engine, net->reason, sizeof(net->reason)));
    net->engine = engine;
    WEFT__TRY(engine->open(net, &net->config, &net->state));
    net->max_message_bytes = net->config.max_message_bytes;
    size_t most_bytes = net->engine->max_message_bytes(net->state);
    if (net->max_message_bytes == 0 || net->max_message_bytes > most_bytes)
        net->max_message_bytes = most_bytes;
    net->min_write_bytes = SIZE_MAX;
    if (net->engine->write != NULL)
        net->min_write_bytes = net->config.min_write_bytes != 0
                                   ? net->config.min_write_bytes
                                   : net->engine->min_write_bytes(net->state);
    weft__log(WEFT__LOG_INFO, net->config.rank, "network engine %s, %s", net->engine->name,
              net->reason);
    return WEFT_OK;
}

weft_result weft__net_open(const struct weft__net_config *config, struct weft__net **opened)
{
    weft_result result = check_config(config);
    if (result != WEFT_OK)
        return result;
    struct weft__net *net = calloc(1, sizeof(*net));
    struct weft__net_peer *peers = calloc((size_t)config->num_ranks, sizeof(*peers));
    if (net == NULL || peers == NULL) {
        free(net);
        free(peers);
        return weft__no_memory("no memory for a network of %d ranks", config->num_ranks);
    }
    net->config = *config;
    net->peers = peers;
    if (net->config.timeout_ms == 0)
        net->config.timeout_ms = DEFAULT_TIMEOUT_MS;
    if (net->config.close_ms == 0)
        net->config.close_ms = DEFAULT_CLOSE_MS;
    result = open_engine(net);
    if (result == WEFT_OK) {
        *opened = net;
    } else {
        free(peers);
        free(net);
    }
    return result;
}

weft_result weft__net_address(struct weft__net *net, struct weft__net_blob *blob)
{
    return weft__net_blob_write(net, blob);
}

weft_result weft__net_connect(struct weft__net *net, const struct weft__net_blob *blobs)
{
    const int32_t num_ranks = net->config.num_ranks;
    weft_result result = WEFT_OK;
    struct weft__net_blob *addresses = calloc((size_t)num_ranks, sizeof(*addresses));
    WEFT__CHECK_MEMORY(addresses, "no memory for %d addresses", num_ranks);
    for (int32_t rank = 0; rank < num_ranks && result == WEFT_OK; rank++)
        if (rank != net->config.rank && blobs[rank].num_bytes > 0)
            result = weft__net_blob_read(net, rank, &blobs[rank], &addresses[rank]);
    if (result == WEFT_OK)
        result = net->engine->connect(net->state, addresses);
    for (int32_t rank = 0; rank < num_ranks && result == WEFT_OK; rank++)
        if (addresses[rank].num_bytes > 0)
            net->peers[rank].state = WEFT__NET_CONNECTED;
    free(addresses);
    return result;
}

/* ---------------------------------------------------------------- peers that go */

void weft__net_fail_peer(struct weft__net *net, int32_t rank, const char *format, ...)
{
    struct weft__net_peer *peer = &net->peers[rank];
    if (peer->state != WEFT__NET_CONNECTED)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(peer->reason, sizeof(peer->reason), format, arguments);
    va_end(arguments);
    peer->state = WEFT__NET_FAILED;
    peer->rest = WEFT__NET_TO_BE_DROPPED;
    net->num_to_be_dropped++;
    weft__log(WEFT__LOG_INFO, net->config.rank, "network: %s", peer->reason);
}

weft_result weft__net_peer_error(const struct weft__net *net, int32_t rank)
{
    if (rank < 0 || rank >= net->config.num_ranks)
        return weft__invalid("rank %d of %d", rank, net->config.num_ranks);
    return net->peers[rank].state == WEFT__NET_FAILED
               ? weft__error(WEFT_ERROR_RANK_FAILED, "%s", net->peers[rank].reason)
               : WEFT_OK;
}

int32_t weft__net_failed_peer(const struct weft__net *net)
{
    for (int32_t rank = 0; rank < net->config.num_ranks; rank++)
        if (net->peers[rank].state == WEFT__NET_FAILED)
            return rank;
    return -1;
}

/* Not where the peer was found to be gone, for that may be inside of a walk over what is
 * dropped. */
static void drop_peers(struct weft__net *net)
{
    for (int32_t rank = 0; net->num_to_be_dropped > 0 && rank < net->config.num_ranks; rank++) {
        struct weft__net_peer *peer = &net->peers[rank];
        if (peer->rest != WEFT__NET_TO_BE_DROPPED)
            continue;
        peer->rest = WEFT__NET_NOTHING_LEFT;
        net->num_to_be_dropped--;
        weft__net_drop_source(net, rank);
        weft__net_drop_target(peer);
        net->engine->disconnect(net->state, rank);
    }
}

/* ---------------------------------------------------------------- progress */

int weft__net_progress(struct weft__net *net)
{
    int num_events = net->engine->progress(net->state);
    weft__net_ring(net);
    if (net->num_unsent > 0)
        num_events += weft__net_send_unsent(net);
    if (net->num_to_be_dropped > 0) {
        num_events++;
        drop_peers(net);
    }
    return num_events;
}

enum weft__net_armed weft__net_arm(struct weft__net *net)
{
    return net->num_to_be_dropped > 0 ? WEFT__NET_BUSY : net->engine->arm(net->state);
}

int weft__net_fd(const struct weft__net *net)
{
    return net->engine->fd(net->state);
}

struct weft__net_counts weft__net_counts(const struct weft__net *net)
{
    const uint64_t num_header_bytes =
        atomic_load_explicit(&net->num_header_bytes, memory_order_relaxed);
    return (struct weft__net_counts){
        .num_bytes =
            num_header_bytes + atomic_load_explicit(&net->num_put_bytes, memory_order_relaxed),
        .num_header_bytes = num_header_bytes,
        .num_written_bytes = atomic_load_explicit(&net->num_written_bytes, memory_order_relaxed)};
}

int weft__net_has_writes(const struct weft__net *net)
{
    return net->engine->reg != NULL && net->min_write_bytes != SIZE_MAX;
}

const char *weft__net_engine_name(const struct weft__net *net)
{
    return net->engine->name;
}

const char *weft__net_reason(const struct weft__net *net)
{
    return net->reason;
}

weft_result weft__net_find_transports(struct weft__net *net)
{
    return net->engine->find_transports != NULL ? net->engine->find_transports(net->state)
                                                : WEFT_OK;
}

const char *weft__net_gpu_obstacle(const struct weft__net *net)
{
    if (net->config.gpudirect == WEFT__NET_GPUDIRECT_OFF)
        return "WEFT_NET_GPUDIRECT is off";
    if (net->engine->knows_gpus == NULL || !net->engine->knows_gpus(net->state))
        return "the network engine knows no memory of GPUs";
    if (net->min_write_bytes == SIZE_MAX)
        return "this version of the network engine writes no memory of others";
    if (net->config.gpudirect == WEFT__NET_GPUDIRECT_AUTO && net->num_without_rdma > 0)
        return "the network has no RDMA";
    return NULL;
}

/* Whether a list, separated by "; ", has the name. */
static int is_listed(const char *list, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = list; at != NULL && *at != '\0'; at = strchr(at, ';')) {
        at += strspn(at, "; ");
        if (strncmp(at, name, length) == 0 && (at[length] == '\0' || at[length] == ';'))
            return 1;
    }
    return 0;
}

void weft__net_found_transport(struct weft__net *net, int32_t peer, const char *transport,
                               enum weft__net_reach reach)
{
    const size_t length = strlen(net->transport);
    net->num_without_rdma += reach == WEFT__NET_WITHOUT_RDMA;
    weft__log(WEFT__LOG_INFO, net->config.rank, "network transport to rank %d: %s", peer,
              transport);
    if (!is_listed(net->transport, transport))
        snprintf(net->transport + length, sizeof(net->transport) - length, "%s%s",
                 length > 0 ? "; " : "", transport);
}

void weft__net_found_retransmits(struct weft__net *net, int32_t peer, uint64_t num)
{
    if (net->config.counters != NULL)
        __atomic_store_n(&net->config.counters[peer].traffic.num_retransmits, num,
                         __ATOMIC_RELAXED);
}

void weft__net_found_round_trip(struct weft__net *net, int32_t peer, double us)
{
    net->peers[peer].round_trip_us = us;
}

/* The median of the peers whose distance is known. */
static int32_t num_nearer_than(const struct weft__net *net, double us)
{
    int32_t num = 0;
    for (int32_t rank = 0; rank < net->config.num_ranks; rank++)
        num += net->peers[rank].round_trip_us > 0 && net->peers[rank].round_trip_us < us;
    return num;
}

double weft__net_round_trip_us(const struct weft__net *net)
{
    const int32_t half = num_nearer_than(net, INFINITY) / 2;
    double median_us = 0;
    for (int32_t rank = 0; rank < net->config.num_ranks; rank++) {
        const double us = net->peers[rank].round_trip_us;
        if (us > median_us && num_nearer_than(net, us) <= half)
            median_us = us;
    }
    return median_us;
}

const char *weft__net_transport(const struct weft__net *net)
{
    return net->transport;
}

/* ---------------------------------------------------------------- closing */

static void progress_or_sleep(struct weft__net *net, int64_t deadline_ns)
{
    if (weft__net_progress(net) > 0 || weft__net_arm(net) == WEFT__NET_BUSY)
        return;
    int timeout_ms = weft__poll_timeout_ms(deadline_ns);
    struct pollfd readable = {.fd = weft__net_fd(net), .events = POLLIN};
    poll(&readable, 1, timeout_ms < CLOSE_NAP_MS ? timeout_ms : CLOSE_NAP_MS);
}

/* Peers close when they like, so none is waited for that has nothing to acknowledge. */
static void flush_all(struct weft__net *net, struct weft__net_request *request)
{
    for (int32_t rank = 0; rank < net->config.num_ranks; rank++) {
        const struct weft__net_peer *peer = &net->peers[rank];
        if (peer->state != WEFT__NET_CONNECTED ||
            (peer->num_acknowledged == peer->next_sequence && !weft__net_has_unflushed(peer)))
            continue;
        weft__net_flush_peer(net, rank, request);
    }
}

static void say_goodbye(struct weft__net *net)
{
    const struct weft__net_header goodbye = {.kind = WEFT__NET_GOODBYE};
    for (int32_t rank = 0; rank < net->config.num_ranks; rank++)
        if (net->peers[rank].state == WEFT__NET_CONNECTED)
            weft__net_send_control(net, rank, &goodbye);
}

void weft__net_set_close_ms(struct weft__net *net, uint32_t close_ms)
{
    net->config.close_ms = close_ms;
}

void weft__net_close(struct weft__net *net)
{
    struct weft__net_request flushed = {.num_left = 0};
    int64_t deadline_ns = weft__now_ns() + net->config.close_ms * WEFT__NS_PER_MS;
    flush_all(net, &flushed);
    while (!weft__net_is_done(&flushed) && weft__now_ns() < deadline_ns)
        progress_or_sleep(net, deadline_ns);
    say_goodbye(net);
    while (net->num_under_way > 0 && weft__now_ns() < deadline_ns)
        progress_or_sleep(net, deadline_ns);
    /* Work that is still under way ends now: first the engine's, then what waits for it. */
    for (int32_t rank = 0; rank < net->config.num_ranks; rank++)
        net->peers[rank].state = WEFT__NET_LEFT;
    net->engine->close(net->state, deadline_ns);
    for (int32_t rank = 0; rank < net->config.num_ranks; rank++) {
        weft__net_drop_source(net, rank);
        weft__net_drop_target(&net->peers[rank]);
        weft__ledger_destroy(&net->peers[rank].ledger);
    }
    weft__net_operation_delete_all(net);
    for (uint32_t number = 0; number < WEFT__NET_MAX_NUMBERS; number++)
        free(net->regions[number].key);
    free(net->address);
    free(net->peers);
    free(net);
}
