/* SPDX-License-Identifier: MIT */
/*
 * The engine on UCX, of which it uses little: active messages, puts, and a flush per peer. No
 * atomics, no fences and none of its shared memory; docs/network.md says what is wrong with them.
 */
#include <stddef.h>

#include "comm/host/thread.h"
#include "net/ucx_internal.h"

enum { NUM_ROUNDS = 32 /* of its progress in one of ours */ };

static weft_result probe(void)
{
    const struct weft__ucx *ucx;
    return weft__ucx_load(&ucx);
}

/* Their transports are modules, which few builds of UCX have. */
static int knows_gpus(void *state)
{
    const struct weft__ucx_engine *engine = state;
    ucp_context_attr_t attributes = {.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES};
    return engine->ucx->ucp_context_query(engine->context, &attributes) == UCS_OK &&
           (attributes.memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA)) != 0;
}

/* ---------------------------------------------------------------- traffic */

static void finish(void *request, ucs_status_t status, void *operation)
{
    const struct weft__ucx_engine *engine = ((struct weft__net_operation *)operation)->engine;
    engine->ucx->ucp_request_free(request);
    weft__net_done(operation, status == UCS_OK ? WEFT_OK : WEFT_ERROR_RANK_FAILED);
}

static ucp_request_param_t operation_params(struct weft__ucx_engine *engine,
                                            struct weft__net_operation *operation)
{
    operation->engine = engine;
    return (ucp_request_param_t){.op_attr_mask =
                                     UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                 .cb = {.send = finish},
                                 .user_data = operation};
}

static enum weft__net_start started(const struct weft__ucx_engine *engine, int32_t rank,
                                    ucs_status_ptr_t request)
{
    if (request == NULL)
        return WEFT__NET_DONE;
    if (!UCS_PTR_IS_ERR(request))
        return WEFT__NET_STARTED;
    weft__net_fail_peer(engine->net, rank, "UCX cannot send to rank %d: %s", rank,
                        engine->ucx->ucs_status_string(UCS_PTR_STATUS(request)));
    return WEFT__NET_LOST;
}

static enum weft__net_start send_message(void *state, struct weft__net_operation *operation)
{
    struct weft__ucx_engine *engine = state;
    const struct weft__ucx_peer *peer = &engine->peers[operation->peer];
    if (peer->endpoint == NULL)
        return WEFT__NET_LOST;
    ucp_request_param_t params = operation_params(engine, operation);
    params.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = UCP_AM_SEND_FLAG_EAGER; /* else a longer one becomes a rendezvous */
    return started(engine, peer->rank,
                   engine->ucx->ucp_am_send_nbx(peer->endpoint, WEFT__UCX_AM_ID, &operation->header,
                                                sizeof(operation->header), operation->payload,
                                                operation->header.num_bytes, &params));
}

static enum weft__net_start write_bytes(void *state, struct weft__net_operation *operation)
{
    struct weft__ucx_engine *engine = state;
    const struct weft__ucx_peer *peer = &engine->peers[operation->peer];
    const uint32_t region = weft__net_region_of(operation->header.place);
    const uint64_t offset = weft__net_offset_of(operation->header.place);
    if (peer->endpoint == NULL)
        return WEFT__NET_LOST;
    ucp_request_param_t params = operation_params(engine, operation);
    return started(
        engine, peer->rank,
        engine->ucx->ucp_put_nbx(peer->endpoint, operation->payload, operation->header.num_bytes,
                                 peer->bases[region] + offset, peer->keys[region], &params));
}

static enum weft__net_start flush_writes(void *state, struct weft__net_operation *operation)
{
    struct weft__ucx_engine *engine = state;
    const struct weft__ucx_peer *peer = &engine->peers[operation->peer];
    if (peer->endpoint == NULL)
        return WEFT__NET_LOST;
    ucp_request_param_t params = operation_params(engine, operation);
    return started(engine, peer->rank, engine->ucx->ucp_ep_flush_nbx(peer->endpoint, &params));
}

static int progress(void *state)
{
    const struct weft__ucx_engine *engine = state;
    int num_events = 0;
    for (int round = 0; round < NUM_ROUNDS; round++) {
        int num_now = (int)engine->ucx->ucp_worker_progress(engine->worker);
        if (num_now == 0)
            break;
        num_events += num_now;
    }
    return num_events;
}

static enum weft__net_armed arm(void *state)
{
    const struct weft__ucx_engine *engine = state;
    return engine->ucx->ucp_worker_arm(engine->worker) == UCS_OK ? WEFT__NET_ARMED : WEFT__NET_BUSY;
}

static int fd_of(const void *state)
{
    return ((const struct weft__ucx_engine *)state)->event_fd;
}

/* ---------------------------------------------------------------- ending */

static void count_down(void *request, ucs_status_t status, void *argument)
{
    struct weft__ucx_engine *engine = argument;
    (void)status;
    engine->ucx->ucp_request_free(request);
    engine->num_pending--;
}

static ucp_request_param_t end_params(struct weft__ucx_engine *engine)
{
    return (ucp_request_param_t){.op_attr_mask =
                                     UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                 .cb = {.send = count_down},
                                 .user_data = engine};
}

/* Ends all operations with the peer, by their callbacks. */
static void disconnect(void *state, int32_t rank)
{
    struct weft__ucx_engine *engine = state;
    struct weft__ucx_peer *peer = &engine->peers[rank];
    if (peer->endpoint == NULL)
        return;
    ucp_request_param_t params = end_params(engine);
    params.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = UCP_EP_CLOSE_FLAG_FORCE;
    ucs_status_ptr_t request = engine->ucx->ucp_ep_close_nbx(peer->endpoint, &params);
    peer->endpoint = NULL;
    if (request != NULL && !UCS_PTR_IS_ERR(request))
        engine->num_pending++;
}

static void wait_for_pending(struct weft__ucx_engine *engine, int64_t deadline_ns)
{
    while (engine->num_pending > 0 && weft__now_ns() < deadline_ns)
        engine->ucx->ucp_worker_progress(engine->worker);
}

/* A graceful close of UCX could wait for a peer that is stopped; so first the flush, with a
 * deadline, then the other kind. */
static void close_ucx(void *state, int64_t deadline_ns)
{
    enum { FORCED_MS = 1000 };
    struct weft__ucx_engine *engine = state;
    for (int32_t rank = 0; rank < engine->num_ranks; rank++) {
        const struct weft__ucx_peer *peer = &engine->peers[rank];
        ucp_request_param_t params = end_params(engine);
        ucs_status_ptr_t request =
            peer->endpoint != NULL ? engine->ucx->ucp_ep_flush_nbx(peer->endpoint, &params) : NULL;
        if (request != NULL && !UCS_PTR_IS_ERR(request))
            engine->num_pending++;
    }
    wait_for_pending(engine, deadline_ns);
    for (int32_t rank = 0; rank < engine->num_ranks; rank++)
        disconnect(engine, rank);
    wait_for_pending(engine, weft__now_ns() + FORCED_MS * WEFT__NS_PER_MS);
    weft__ucx_free(engine);
}

const struct weft__net_engine weft__net_ucx = {.name = "ucx",
                                               .header_bytes = sizeof(struct weft__net_header),
                                               .probe = probe,
                                               .open = weft__ucx_open,
                                               .max_message_bytes = weft__ucx_max_message_bytes,
                                               .min_write_bytes = weft__ucx_min_write_bytes,
                                               .reg = weft__ucx_reg,
                                               .learn = weft__ucx_learn,
                                               .unreg = weft__ucx_unreg,
                                               .knows_gpus = knows_gpus,
                                               .address = weft__ucx_address,
                                               .connect = weft__ucx_connect,
                                               .find_transports = weft__ucx_find_transports,
                                               .send = send_message,
                                               .write = write_bytes,
                                               .flush_writes = flush_writes,
                                               .progress = progress,
                                               .arm = arm,
                                               .fd = fd_of,
                                               .disconnect = disconnect,
                                               .close = close_ucx};
