/* SPDX-License-Identifier: MIT */
#include "machine/sim/sim_nic.h"

#include <stdlib.h>
#include <string.h>

#include "machine/nic_access.h"
#include "machine/sim/sim_launch.h"

/* Numbers of other accesses are below. */
enum { INDEX_BITS = 48, SINK_KEY = 0x100, HEAP_KEY };

/* ---------------------------------------------------------------- life */

void sim_nics_make(const weft_comm *comm)
{
    struct weft__link *link = comm->link;
    const size_t num_ranks = (size_t)link->num_ranks;
    weft_heap_info info;
    weft__heap_query(comm->heap, &info);
    struct sim_nics *nics = sim_run_alloc(sizeof *nics);
    uint64_t *sinks = sim_run_alloc(num_ranks * sizeof *sinks);
    sim_shadow_set(sinks, num_ranks * sizeof *sinks, SIM_CONTENT_ANY);
    nics->ports = sim_run_alloc(num_ranks * sizeof *nics->ports);
    nics->heap = sim_run_alloc(sizeof *nics->heap + num_ranks * sizeof nics->heap->keys[0]);
    nics->heap->end = info.max_bytes;
    for (int32_t rank = 0; rank < link->num_ranks; rank++) {
        const char *base = link->comms[rank]->heap->bases[rank];
        nics->heap->keys[rank] = (struct weft__nic_key){(uintptr_t)base, HEAP_KEY};
        nics->ports[rank] = (struct weft__nic_port){
            .rank = rank,
            .channels = sim_run_alloc(num_ranks * sizeof(struct weft__nic_channel)),
            .sink = {(uintptr_t)&sinks[rank], SINK_KEY},
            .last_step = nics->heap};
    }
    link->nics = nics;
}

static struct sim_nic_pair *find_pair(const struct sim_nics *nics, int32_t rank, int32_t peer)
{
    struct sim_nic_pair *pair = nics->pairs;
    while (pair != NULL && (pair->rank != rank || pair->peer != peer))
        pair = pair->next;
    return pair;
}

static weft_result add_pair(struct weft__link *link, int32_t rank, int32_t peer,
                            struct sim_nic_pair **made)
{
    struct sim_nic_pair *pair = aligned_alloc(_Alignof(struct sim_nic_pair), sizeof *pair);
    WEFT__CHECK_MEMORY(pair, "no memory for a NIC");
    memset(pair, 0, sizeof *pair);
    pair->link = link;
    pair->rank = rank;
    pair->peer = peer;
    pair->channel = &link->nics->ports[rank].channels[peer];
    pair->next = link->nics->pairs;
    link->nics->pairs = pair;
    *made = pair;
    return sim_nic_open(pair);
}

/* With the first access of either. */
static weft_result join(struct weft__link *link, int32_t rank, int32_t peer)
{
    struct sim_nic_pair *there = NULL, *back = NULL;
    if (find_pair(link->nics, rank, peer) != NULL)
        return WEFT_OK;
    WEFT__TRY(add_pair(link, rank, peer, &there));
    WEFT__TRY(add_pair(link, peer, rank, &back));
    WEFT__TRY(sim_nic_start(there, back));
    return sim_nic_start(back, there);
}

void sim_nics_free(struct weft__link *link)
{
    struct sim_nic_pair *pair = link->nics != NULL ? link->nics->pairs : NULL;
    while (pair != NULL) {
        struct sim_nic_pair *next = pair->next;
        weft__nic_model_destroy(pair->model);
        sim_free(pair);
        pair = next;
    }
    link->nics = NULL;
}

int sim_nic_is_idle(const struct weft__link *link, int32_t rank)
{
    const struct sim_nic_pair *pair = link->nics != NULL ? link->nics->pairs : NULL;
    for (; pair != NULL; pair = pair->next)
        if (pair->rank == rank && pair->num_done != pair->channel->queue.ready &&
            !pair->has_failed && pair->channel->queue.failure == 0)
            return 0;
    return 1;
}

/* ---------------------------------------------------------------- posting */

/* A lane's past, which what it does for the others does not become. */
struct kept_past {
    struct sim_clock clock, fenced;
};

static void keep_past(struct kept_past *kept)
{
    memset(kept, 0, sizeof *kept);
    sim_clock_join(&kept->clock, &sim_current()->clock);
    sim_clock_join(&kept->fenced, &sim_current()->fenced);
}

static void set_past(const struct sim_clock *clock, const struct sim_clock *fenced)
{
    struct sim_fiber *fiber = sim_current();
    const uint32_t now = sim_now(fiber);
    sim_clock_clear(&fiber->clock);
    sim_clock_join(&fiber->clock, clock);
    sim_clock_set(&fiber->clock, fiber->id, now);
    sim_clock_clear(&fiber->fenced);
    sim_clock_join(&fiber->fenced, fenced);
}

static void forget(struct kept_past *kept)
{
    sim_clock_clear(&kept->clock);
    sim_clock_clear(&kept->fenced);
}

enum wp_status sim_nic_pause(struct wp_nic_wait *wait)
{
    wait->status = sim_await(wait->warp, wait->news, wait->seen + 1, wait->site);
    wait->seen = *wait->news;
    return wait->status;
}

uint64_t sim_nic_post(struct wp_warp *warp, const struct wp_access *access,
                      const struct sim_clock *past)
{
    const weft_comm *comm = warp->shared->launch->request->comm;
    struct weft__nic_port *port = &comm->link->nics->ports[comm->rank];
    const struct wp_wait_site site = wp_nic_post_site(access, comm->timeout_ms);
    uint64_t *news = &port->channels[access->rank].num_news;
    struct wp_nic_wait wait = wp_nic_begin_wait(warp, news, *news, &site);
    struct kept_past own;
    uint64_t index = 0;
    if (join(comm->link, comm->rank, access->rank) != WEFT_OK)
        sim_end_without_memory();
    keep_past(&own);
    set_past(past, past);
    if (wp_nic_post(port, access, &wait, &index) != WP_STATUS_OK &&
        wait.status == WP_STATUS_ABSENT && access->absent_after_ms == 0 &&
        !weft__status_rank_is_gone(&comm->status, access->rank))
        (void)weft__sim_fail(warp, &(struct wp_failure){.kind = WP_FAILURE_TIMEOUT, .site = site});
    set_past(&own.clock, &own.fenced);
    forget(&own);
    (*news)++; /* for those who wait for their turn behind it */
    return (uint64_t)(access->rank + 1) << INDEX_BITS | index;
}

int sim_nic_has_number(uint64_t number)
{
    return number >> INDEX_BITS != 0;
}

enum wp_status sim_nic_await(struct wp_warp *warp, uint64_t number, const struct wp_wait_site *site,
                             int is_weakened)
{
    const weft_comm *comm = warp->shared->launch->request->comm;
    const int32_t rank = (int32_t)(number >> INDEX_BITS) - 1;
    struct weft__nic_channel *channel = &comm->link->nics->ports[comm->rank].channels[rank];
    struct wp_nic_wait wait = wp_nic_begin_wait(warp, &channel->num_news, channel->num_news, site);
    struct kept_past own;
    keep_past(&own);
    const enum wp_status status =
        wp_nic_await(&channel->queue, number & (((uint64_t)1 << INDEX_BITS) - 1), &wait);
    if (is_weakened)
        set_past(&own.clock, &own.fenced);
    forget(&own);
    if (status == WP_STATUS_OK || wait.status != WP_STATUS_OK)
        return wait.status;
    /* As machine/cpu/nic_remote.c does it. */
    struct wp_failure failure = {.kind = WP_FAILURE_COMM, .site = *site};
    if (atomic_load(&comm->status.result) == WEFT_OK) {
        if (channel->queue.failure != WEFT__NIC_QUEUE_FAILED)
            return WP_STATUS_OK;
        failure.kind = WP_FAILURE_TIMEOUT;
        failure.site.rank = rank;
    }
    return weft__sim_fail(warp, &failure);
}
