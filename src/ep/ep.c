/* SPDX-License-Identifier: MIT */
#include "ep/ep.h"

#include <stddef.h>
#include <stdlib.h>

#include "ep/ep_staging.h"
#include "launch/names.h"
#include "programs/ep/notify.h"

struct contribution {
    int64_t num_experts, max_topk, num_entries, placement, staging_bytes, combine_wire;
    int32_t max_blocks; /* may differ: the most count */
};

static const char *wire_name(int64_t combine_wire)
{
    return combine_wire == 0 ? "0" : weft__constant_name(WEFT__ENUM_DTYPE, (int32_t)combine_wire);
}

static const struct weft__term terms[] = {
    {WEFT__TERM(struct contribution, num_experts)},
    {WEFT__TERM(struct contribution, max_topk)},
    {"the expert placement (a hash of expert_offsets and expert_ranks)",
     offsetof(struct contribution, placement), NULL},
    {"the number of expert_ranks", offsetof(struct contribution, num_entries), NULL},
    {WEFT__TERM(struct contribution, staging_bytes)},
    {"combine_wire", offsetof(struct contribution, combine_wire), wire_name},
};

static int32_t most_blocks(const weft_comm *comm, const struct contribution *all)
{
    int32_t most = 0;
    for (int32_t rank = 0; rank < comm->num_ranks; rank++)
        most = all[rank].max_blocks > most ? all[rank].max_blocks : most;
    return most;
}

int32_t weft__ep_max_local_blocks(const weft_ep *ep)
{
    return ep->grid.num_blocks > 0 ? ep->grid.num_blocks : weft__machine_of(ep->comm)->max_blocks;
}

static int32_t max_blocks(const weft_ep *ep)
{
    const int32_t num_blocks = weft__ep_max_local_blocks(ep);
    return ep->internode == NULL
               ? num_blocks
               : num_blocks + weft__internode_max_blocks(ep->internode, ep->grid.num_warps);
}

static weft_result agree(weft_ep *ep)
{
    weft_comm *comm = ep->comm;
    const struct contribution own = {
        .num_experts = ep->placement.host.num_experts,
        .max_topk = ep->max_topk,
        .num_entries = ep->placement.num_entries,
        .placement = (int64_t)weft__placement_hash(&ep->placement),
        .staging_bytes = (int64_t)ep->staging_bytes,
        .combine_wire = (int64_t)ep->combine_wire,
        .max_blocks = max_blocks(ep),
    };
    weft_result result;
    struct contribution *all = weft__comm_gather_new(comm, WEFT_OK, &own, sizeof own, &result);
    if (all == NULL)
        return result;
    result = weft__comm_compare(comm, all, sizeof *all, terms, sizeof terms / sizeof *terms);
    if (result == WEFT_OK)
        ep->max_blocks = most_blocks(comm, all);
    free(all);
    return result;
}

weft_result weft__ep_upload(weft_ep *ep)
{
    weft_comm *comm = ep->comm;
    WEFT__TRY(weft__placement_upload(&ep->placement, comm));
    return weft__machine_duplicate(comm, comm->topology.node_of_rank,
                                   (uint64_t)comm->num_ranks * sizeof(int32_t), &ep->node_of_rank);
}

static weft_result plan_internode(weft_ep *ep, const weft_ep_config *config)
{
    weft_result result;
    ep->internode = weft__comm_calloc(ep->comm, sizeof *ep->internode, "have a weft_ep", &result);
    return ep->internode != NULL ? weft__internode_plan(ep->comm, config, ep->internode) : result;
}

/* Nothing is spread over more warps than many short rows are. */
static int32_t most_combine_warps(const weft_ep *ep)
{
    const struct weft__work work = {
        .kind = WEFT__WORK_PULL_ROWS, .num_tokens = INT32_MAX, .row_bytes = 1};
    return weft__internode_most_warps(ep->internode, WEFT__RINGS_ONE_WAY, weft__ep_grid(ep, &work));
}

static weft_result alloc_staging(weft_ep *ep)
{
    void *staging;
    WEFT__TRY(weft__heap_alloc(ep->comm, ep->staging_bytes, &staging));
    ep->staging = staging;
    return WEFT_OK;
}

static weft_result set_up(weft_ep *ep, const weft_ep_config *config)
{
    weft_comm *comm = ep->comm;
    if (comm->topology.num_nodes > 1 && weft__nodes_are_alike(comm))
        WEFT__TRY(plan_internode(ep, config));
    WEFT__TRY(agree(ep));
    if (ep->internode != NULL)
        WEFT__TRY(
            weft__internode_create(comm, &ep->placement, most_combine_warps(ep), ep->internode));
    WEFT__TRY(weft__comm_agree(comm, weft__ep_upload(ep), "have the tables of a weft_ep"));
    if (ep->staging_bytes > 0)
        WEFT__TRY(alloc_staging(ep));
    /* Each source's rows for all ranks, and its choices of the local experts. */
    ep->counts_stride =
        wp_notify_counts_stride(comm->num_ranks, weft__placement_max_local(&ep->placement));
    return weft__exchange_create(comm, ep->internode == NULL ? NULL : &ep->internode->nodes,
                                 ep->max_blocks,
                                 wp_notify_counts_bytes(comm->num_ranks, ep->counts_stride) +
                                     weft__staging_words_bytes(ep->staging_bytes),
                                 &ep->exchange);
}

/* A table that is refused is this rank's error alone, as any argument: it has called nothing
 * yet. */
static weft_result place_experts(weft_comm *comm, const weft_ep_config *config,
                                 struct weft__placement *placement)
{
    const weft_result mine = weft__placement_create(placement, config, comm->num_ranks);
    const weft_result result = mine == WEFT_ERROR_INVALID_ARGUMENT
                                   ? mine
                                   : weft__comm_agree(comm, mine, "place its experts");
    if (result != WEFT_OK)
        weft__placement_destroy(placement);
    return result;
}

weft_result weft__ep_create(weft_comm *comm, const weft_ep_config *config, weft_ep **out)
{
    struct weft__placement placement = {.num_entries = 0};
    weft_result result = place_experts(comm, config, &placement);
    if (result != WEFT_OK)
        return result;
    weft_ep *ep = weft__comm_calloc(comm, sizeof *ep, "have a weft_ep", &result);
    if (ep == NULL) {
        weft__placement_destroy(&placement);
        return result;
    }
    ep->comm = comm;
    ep->placement = placement;
    ep->max_topk = config->max_topk == 0 ? WEFT_MAX_TOPK : config->max_topk;
    ep->grid.num_blocks = config->num_blocks;
    ep->grid.num_warps = config->num_warps;
    ep->staging_bytes = config->staging_bytes;
    ep->combine_wire = config->combine_wire;
    result = set_up(ep, config);
    if (result != WEFT_OK) {
        weft__ep_destroy(ep);
        return result;
    }
    *out = ep;
    return WEFT_OK;
}

weft_result weft__ep_create_experts(weft_comm *comm, const weft_ep_config *config, weft_ep **out)
{
    weft_ep *ep = calloc(1, sizeof *ep);
    WEFT__CHECK_MEMORY(ep, "no memory for a weft_ep");
    const weft_result result = weft__placement_create(&ep->placement, config, comm->num_ranks);
    if (result != WEFT_OK) {
        free(ep);
        return result;
    }
    ep->comm = comm;
    ep->max_topk = config->max_topk;
    *out = ep;
    return WEFT_OK;
}

struct weft__grid weft__ep_grid(const weft_ep *ep, const struct weft__work *work)
{
    struct weft__grid grid = weft__machine_of(ep->comm)->choose_grid(ep->comm, work);
    if (ep->grid.num_blocks > 0)
        grid.num_blocks = ep->grid.num_blocks;
    if (ep->grid.num_warps > 0)
        grid.num_warps = ep->grid.num_warps;
    return grid;
}

struct weft__grid weft__ep_grid_of_call(const weft_ep *ep, const struct weft__work *work,
                                        int32_t num_blocks)
{
    struct weft__grid grid = weft__ep_grid(ep, work);
    if (num_blocks > 0)
        grid.num_blocks = num_blocks;
    return grid;
}

void weft__ep_destroy(weft_ep *ep)
{
    weft_comm *comm = ep->comm;
    if (ep->exchange != NULL)
        weft__exchange_wait(ep->exchange);
    weft__exchange_destroy(ep->exchange);
    if (ep->staging != NULL)
        (void)weft__heap_free(comm->heap, ep->staging);
    if (ep->internode != NULL)
        weft__internode_destroy(comm, ep->internode);
    free(ep->internode);
    weft__machine_of(comm)->free(comm, ep->node_of_rank);
    weft__placement_unload(&ep->placement, comm);
    weft__placement_destroy(&ep->placement);
    free(ep);
}
