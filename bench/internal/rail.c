/* SPDX-License-Identifier: MIT */
#include "rail.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "net/devices.h"

enum { NUM_EMPTY_ROUNDS = 20, SLEEP_MS = 10, MAX_ADDRESS_BYTES = 8192 };

static weft_result find_peers(struct rail *rail)
{
    weft_team_info team = WEFT_INIT(weft_team_info);
    weft_result result = weft_team_query(rail->comm, WEFT_TEAM_RAIL, &team);
    if (result != WEFT_OK)
        return result;
    rail->peers = calloc((size_t)team.num_ranks, sizeof(*rail->peers));
    if (rail->peers == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for %d peers", team.num_ranks);
    for (int32_t i = 0; i < team.num_ranks; i++)
        if (i != team.rank_idx)
            rail->peers[rail->num_peers++] = weft_team_world_rank(rail->comm, WEFT_TEAM_RAIL, i);
    return WEFT_OK;
}

static weft_result open_net(struct rail *rail)
{
    char devices[WEFT__NET_DEVICES_BYTES];
    struct weft__net_config config = {.rank = rail->rank, .num_ranks = rail->num_ranks};
    memcpy(config.secret, rail->comm->point.nonce, sizeof(config.secret));
    WEFT__TRY(weft__net_read_settings(&config));
    if (config.devices == NULL && weft__net_default_devices(rail->comm, devices) == WEFT_OK)
        config.devices = devices;
    return weft__net_open(&config, &rail->net);
}

struct address {
    uint64_t num_bytes;
    unsigned char bytes[MAX_ADDRESS_BYTES];
};

static weft_result connect_to_peers(struct rail *rail, struct address *all,
                                    struct weft__net_blob *blobs)
{
    struct weft__net_blob own;
    struct address mine = {0};
    WEFT__TRY(weft__net_address(rail->net, &own));
    if (own.num_bytes > sizeof(mine.bytes))
        return weft__error(WEFT_ERROR_UNSUPPORTED, "an address of %zu bytes", own.num_bytes);
    mine.num_bytes = own.num_bytes;
    memcpy(mine.bytes, own.bytes, own.num_bytes);
    WEFT__TRY(weft_comm_host_all_gather(rail->comm, &mine, sizeof(mine), all));
    for (int32_t i = 0; i < rail->num_peers; i++) {
        const struct address *address = &all[rail->peers[i]];
        blobs[rail->peers[i]] = (struct weft__net_blob){address->bytes, address->num_bytes};
    }
    return weft__net_connect(rail->net, blobs);
}

static weft_result connect_net(struct rail *rail)
{
    struct address *all = calloc((size_t)rail->num_ranks, sizeof(*all));
    struct weft__net_blob *blobs = calloc((size_t)rail->num_ranks, sizeof(*blobs));
    const weft_result result =
        all == NULL || blobs == NULL
            ? weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for %d addresses", rail->num_ranks)
            : connect_to_peers(rail, all, blobs);
    free(all);
    free(blobs);
    return result;
}

static weft_result learn(struct rail *rail, const struct weft__net_region_card *all)
{
    for (int32_t i = 0; i < rail->num_peers; i++)
        WEFT__TRY(weft__net_learn_region(rail->net, rail->peers[i], 0, &all[rail->peers[i]]));
    return WEFT_OK;
}

static weft_result share_memory(struct rail *rail, uint64_t num_bytes)
{
    struct weft__net_region_card own;
    struct weft__net_region_card *all = calloc((size_t)rail->num_ranks, sizeof(*all));
    if (all == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for %d ranks", rail->num_ranks);
    weft_result result =
        weft__net_reg(rail->net, 0, rail->memory, num_bytes, WEFT__NET_HOST_MEMORY);
    if (result == WEFT_OK) {
        weft__net_tell_region(rail->net, 0, &own);
        result = weft_comm_host_all_gather(rail->comm, &own, sizeof(own), all);
    }
    if (result == WEFT_OK)
        result = learn(rail, all);
    free(all);
    return result;
}

weft_result rail_open(struct rail *rail, weft_comm *comm, uint64_t num_bytes)
{
    const size_t page_bytes = 4096;
    *rail = (struct rail){
        .comm = comm, .rank = weft_comm_rank(comm), .num_ranks = weft_comm_num_ranks(comm)};
    rail->memory =
        aligned_alloc(page_bytes, (num_bytes + page_bytes - 1) / page_bytes * page_bytes);
    if (rail->memory == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for slots");
    memset(rail->memory, 0, num_bytes);
    WEFT__TRY(find_peers(rail));
    WEFT__TRY(open_net(rail));
    WEFT__TRY(connect_net(rail));
    return share_memory(rail, num_bytes);
}

void rail_close(struct rail *rail)
{
    if (rail->net != NULL)
        weft__net_close(rail->net);
    free(rail->peers);
    free(rail->memory);
}

weft_result rail_progress(struct rail *rail)
{
    if (weft__net_progress(rail->net) > 0) {
        rail->num_idle_rounds = 0;
        return WEFT_OK;
    }
    const int32_t failed_peer = weft__net_failed_peer(rail->net);
    if (failed_peer >= 0)
        return weft__net_peer_error(rail->net, failed_peer);
    if (++rail->num_idle_rounds < NUM_EMPTY_ROUNDS) {
        sched_yield();
        return WEFT_OK;
    }
    rail->num_idle_rounds = 0;
    if (weft__net_arm(rail->net) == WEFT__NET_ARMED) {
        struct pollfd readable = {.fd = weft__net_fd(rail->net), .events = POLLIN};
        poll(&readable, 1, SLEEP_MS);
    }
    return WEFT_OK;
}

/* ---------------------------------------------------------------- meeting */

struct gather {
    weft_comm *comm;
    const void *send;
    size_t bytes;
    void *recv;
    weft_result result;
    _Atomic int is_done;
};

static void *gather(void *argument)
{
    struct gather *gather = argument;
    gather->result =
        weft_comm_host_all_gather(gather->comm, gather->send, gather->bytes, gather->recv);
    atomic_store(&gather->is_done, 1);
    return NULL;
}

/* A rank that waited without progress would take nothing from those that have not ended yet. */
weft_result rail_all_gather(struct rail *rail, const void *send, size_t bytes, void *recv)
{
    struct gather call = {.comm = rail->comm, .send = send, .bytes = bytes, .recv = recv};
    pthread_t thread;
    weft_result result = WEFT_OK;
    if (pthread_create(&thread, NULL, gather, &call) != 0)
        return weft__error(WEFT_ERROR_SYSTEM, "cannot start a thread");
    while (result == WEFT_OK && !atomic_load(&call.is_done))
        result = rail_progress(rail);
    pthread_join(thread, NULL);
    return call.result != WEFT_OK ? call.result : result;
}
