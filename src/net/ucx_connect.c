/* SPDX-License-Identifier: MIT */
/* The engine on UCX until it is connected. */
#include <stdlib.h>
#include <string.h>

#include "comm/host/error.h"
#include "net/ucx_internal.h"
#include "net/ucx_transports.h"

enum {
    /* Up to here an active message is faster than a put and a flush. Until 1.16 it always is over
     * TCP, and a put may end the survivors when a peer is killed; so there all goes in pieces by
     * messages. */
    MAX_MESSAGE_BYTES = 64 * 1024,
    MAX_OLD_MESSAGE_BYTES = 512 * 1024,
    FIRST_MINOR_WITH_FAST_PUTS = 16
};

weft_result weft__ucx_failed(const struct weft__ucx_engine *engine, const char *what,
                             ucs_status_t status)
{
    return weft__error(WEFT_ERROR_SYSTEM, "UCX cannot %s: %s", what,
                       engine->ucx->ucs_status_string(status));
}

/* ---------------------------------------------------------------- opening */

/* By the config, not by the environment, which belongs to the program. */
static weft_result make_context(struct weft__ucx_engine *engine,
                                const struct weft__net_config *config)
{
    const struct weft__ucx *ucx = engine->ucx;
    ucp_config_t *options;
    ucs_status_t status = ucx->ucp_config_read(NULL, NULL, &options);
    if (status != UCS_OK)
        return weft__ucx_failed(engine, "read its configuration", status);
    const char *transports =
        config->transports != NULL ? config->transports : WEFT__UCX_DEFAULT_TRANSPORTS;
    status = ucx->ucp_config_modify(options, "TLS", transports);
    if (status == UCS_OK && config->devices != NULL)
        status = ucx->ucp_config_modify(options, "NET_DEVICES", config->devices);
    const ucp_params_t params = {.field_mask =
                                     UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
                                 .features = UCP_FEATURE_AM | UCP_FEATURE_RMA | UCP_FEATURE_WAKEUP,
                                 .estimated_num_eps = (size_t)config->num_ranks};
    if (status == UCS_OK)
        status = ucx->ucp_init_version(1, 13, &params, options, &engine->context);
    ucx->ucp_config_release(options);
    return status == UCS_OK ? WEFT_OK : weft__ucx_failed(engine, "start", status);
}

static ucs_status_t take_message(void *argument, const void *header, size_t header_bytes,
                                 void *data, size_t data_bytes, const ucp_am_recv_param_t *param)
{
    const struct weft__ucx_engine *engine = argument;
    /* The data of a rendezvous are not here yet; nobody of ours sends one. */
    if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0)
        header_bytes = 0;
    weft__net_receive(engine->net, -1, header, header_bytes, data, data_bytes);
    return UCS_OK;
}

static weft_result make_worker(struct weft__ucx_engine *engine)
{
    const struct weft__ucx *ucx = engine->ucx;
    const ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                        .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    ucs_status_t status = ucx->ucp_worker_create(engine->context, &params, &engine->worker);
    if (status != UCS_OK)
        return weft__ucx_failed(engine, "make a worker", status);
    const ucp_am_handler_param_t handler = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                      UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS,
        .id = WEFT__UCX_AM_ID,
        .cb = take_message,
        .arg = engine,
        .flags = UCP_AM_FLAG_WHOLE_MSG};
    status = ucx->ucp_worker_set_am_recv_handler(engine->worker, &handler);
    if (status == UCS_OK)
        status = ucx->ucp_worker_get_efd(engine->worker, &engine->event_fd);
    return status == UCS_OK ? WEFT_OK : weft__ucx_failed(engine, "prepare a worker", status);
}

void weft__ucx_free(struct weft__ucx_engine *engine)
{
    const struct weft__ucx *ucx = engine->ucx;
    for (uint32_t region = 0; engine->peers != NULL && region < WEFT__NET_MAX_NUMBERS; region++)
        weft__ucx_unreg(engine, region);
    if (engine->worker != NULL)
        ucx->ucp_worker_destroy(engine->worker);
    if (engine->context != NULL)
        ucx->ucp_cleanup(engine->context);
    free(engine->peers);
    free(engine);
}

weft_result weft__ucx_open(struct weft__net *net, const struct weft__net_config *config,
                           void **state)
{
    unsigned major, release;
    struct weft__ucx_engine *engine = calloc(1, sizeof(*engine));
    WEFT__CHECK_MEMORY(engine, "no memory for a network");
    engine->net = net;
    engine->rank = config->rank;
    engine->num_ranks = config->num_ranks;
    engine->demand = config->demand;
    engine->devices = config->devices;
    engine->peers = calloc((size_t)config->num_ranks, sizeof(*engine->peers));
    weft_result result = weft__ucx_load(&engine->ucx);
    if (result == WEFT_OK && engine->peers == NULL)
        result = weft__no_memory("no memory for %d peers", config->num_ranks);
    if (result == WEFT_OK) {
        engine->ucx->ucp_get_version(&major, &engine->minor_version, &release);
        result = make_context(engine, config);
    }
    if (result == WEFT_OK)
        result = make_worker(engine);
    if (result == WEFT_OK)
        *state = engine;
    else
        weft__ucx_free(engine);
    return result;
}

static int has_fast_puts(const struct weft__ucx_engine *engine)
{
    return engine->minor_version >= FIRST_MINOR_WITH_FAST_PUTS;
}

size_t weft__ucx_max_message_bytes(void *state)
{
    return has_fast_puts(state) ? MAX_MESSAGE_BYTES : MAX_OLD_MESSAGE_BYTES;
}

size_t weft__ucx_min_write_bytes(void *state)
{
    return has_fast_puts(state) ? MAX_MESSAGE_BYTES + 1 : SIZE_MAX;
}

weft_result weft__ucx_address(void *state, void *bytes, size_t *num_bytes)
{
    const struct weft__ucx_engine *engine = state;
    ucp_address_t *own;
    size_t own_bytes;
    ucs_status_t status = engine->ucx->ucp_worker_get_address(engine->worker, &own, &own_bytes);
    if (status != UCS_OK)
        return weft__ucx_failed(engine, "tell its address", status);
    int fits = own_bytes <= *num_bytes;
    if (fits)
        memcpy(bytes, own, own_bytes);
    engine->ucx->ucp_worker_release_address(engine->worker, own);
    *num_bytes = own_bytes;
    return fits ? WEFT_OK
                : weft__error(WEFT_ERROR_CAPACITY,
                              "UCX's address has %zu bytes; fewer network devices make it shorter",
                              own_bytes);
}

/* ---------------------------------------------------------------- connecting */

static void lose_connection(void *argument, ucp_ep_h endpoint, ucs_status_t status)
{
    const struct weft__ucx_peer *peer = argument;
    (void)endpoint;
    weft__net_fail_peer(peer->engine->net, peer->rank, "the connection to rank %d is lost: %s",
                        peer->rank, peer->engine->ucx->ucs_status_string(status));
}

static weft_result connect_to(struct weft__ucx_engine *engine, int32_t rank,
                              const struct weft__net_blob *address)
{
    struct weft__ucx_peer *peer = &engine->peers[rank];
    peer->engine = engine;
    peer->rank = rank;
    const ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                                  UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                                  UCP_EP_PARAM_FIELD_ERR_HANDLER,
                                    .address = address->bytes,
                                    .err_mode = UCP_ERR_HANDLING_MODE_PEER,
                                    .err_handler = {.cb = lose_connection, .arg = peer}};
    ucs_status_t status = engine->ucx->ucp_ep_create(engine->worker, &params, &peer->endpoint);
    if (status != UCS_OK) {
        peer->endpoint = NULL;
        return weft__error(status == UCS_ERR_UNREACHABLE ? WEFT_ERROR_UNSUPPORTED
                                                         : WEFT_ERROR_SYSTEM,
                           "UCX cannot connect rank %d to rank %d: %s; the network devices of "
                           "rank %d are %s; WEFT_NET_DEVICES names them",
                           engine->rank, rank, engine->ucx->ucs_status_string(status), engine->rank,
                           engine->devices != NULL ? engine->devices : "all");
    }
    return WEFT_OK;
}

weft_result weft__ucx_connect(void *state, const struct weft__net_blob *addresses)
{
    struct weft__ucx_engine *engine = state;
    for (int32_t rank = 0; rank < engine->num_ranks; rank++)
        if (addresses[rank].num_bytes > 0)
            WEFT__TRY(connect_to(engine, rank, &addresses[rank]));
    return WEFT_OK;
}

/* ---------------------------------------------------------------- transports */

static weft_result find_transport(const struct weft__ucx_engine *engine,
                                  const struct weft__ucx_peer *peer)
{
    char names[WEFT__NET_REASON_BYTES];
    weft_result result = weft__ucx_transports(engine->ucx, peer->endpoint, names, sizeof(names));
    if (result != WEFT_OK)
        return result;
    const enum weft__net_reach reach =
        weft__ucx_is_rdma(names) ? WEFT__NET_BY_RDMA : WEFT__NET_WITHOUT_RDMA;
    weft__net_found_transport(engine->net, peer->rank, names, reach);
    if (engine->demand == WEFT__NET_RDMA && reach == WEFT__NET_WITHOUT_RDMA)
        return weft__error(WEFT_ERROR_UNSUPPORTED,
                           "RDMA is demanded; between rank %d and rank %d UCX found %s",
                           engine->rank, peer->rank, names);
    return WEFT_OK;
}

/* Not while it connects: a rank that gave up then would destroy its worker while others still
 * connect to it, which some of UCX's assertions take for an error of their process (1.13: of 4
 * ranks that disagree, one in 4 jobs). */
weft_result weft__ucx_find_transports(void *state)
{
    const struct weft__ucx_engine *engine = state;
    for (int32_t rank = 0; rank < engine->num_ranks; rank++)
        if (engine->peers[rank].endpoint != NULL)
            WEFT__TRY(find_transport(engine, &engine->peers[rank]));
    return WEFT_OK;
}
