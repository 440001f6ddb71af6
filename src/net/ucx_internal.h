/* SPDX-License-Identifier: MIT */
/* Shared by the files of the engine on UCX. */
#pragma once

#include "net/engine.h"
#include "net/ucx_library.h"

enum { WEFT__UCX_AM_ID = 7 };

struct weft__ucx_peer {
    struct weft__ucx_engine *engine;
    int32_t rank;
    ucp_ep_h endpoint; /* NULL: none */
    ucp_rkey_h keys[WEFT__NET_MAX_NUMBERS];
    uint64_t bases[WEFT__NET_MAX_NUMBERS];
};

struct weft__ucx_engine {
    const struct weft__ucx *ucx;
    struct weft__net *net;
    int32_t rank, num_ranks;
    enum weft__net_demand demand;
    const char *devices; /* the config's, until it is connected; NULL: all */
    unsigned minor_version;
    ucp_context_h context;
    ucp_worker_h worker;
    int event_fd;
    ucp_mem_h memory[WEFT__NET_MAX_NUMBERS];
    struct weft__ucx_peer *peers; /* [num_ranks] */
    int num_pending;              /* flushes and closings of close */
};

/* ucx_connect.c: entries of the engine's table. */
weft_result weft__ucx_open(struct weft__net *net, const struct weft__net_config *config,
                           void **state);
size_t weft__ucx_max_message_bytes(void *state);
size_t weft__ucx_min_write_bytes(void *state);
weft_result weft__ucx_address(void *state, void *bytes, size_t *num_bytes);
weft_result weft__ucx_connect(void *state, const struct weft__net_blob *addresses);
weft_result weft__ucx_find_transports(void *state);
/* When no endpoints are left. */
void weft__ucx_free(struct weft__ucx_engine *engine);
weft_result weft__ucx_failed(const struct weft__ucx_engine *engine, const char *what,
                             ucs_status_t status);

/* ucx_region.c: likewise. */
weft_result weft__ucx_reg(void *state, uint32_t region, void *memory, size_t num_bytes, void *key,
                          uint32_t *key_bytes);
weft_result weft__ucx_learn(void *state, int32_t rank, uint32_t region, const void *key,
                            uint32_t key_bytes);
void weft__ucx_unreg(void *state, uint32_t region);
