/* SPDX-License-Identifier: MIT */
/* A handle's memory: one block that holds all its tables. */
#include <stdlib.h>

#include "ep/ep.h"

enum table {
    TABLE_ROUTES,
    TABLE_CHUNK_BASE,
    TABLE_CHUNK_NODES,
    TABLE_RANK_BASE,
    TABLE_SEND_ROWS,
    TABLE_ENTRY_SELECTIONS,
    TABLE_RECV_RANK_ENDS,
    TABLE_RECV_ROWS, /* this and the next five are read by the host in one go */
    TABLE_ALL_RECV_ROWS,
    TABLE_RECV_RANK_ROWS,
    TABLE_RECV_EXPERT_ROWS,
    TABLE_RELAY_TOKENS,
    TABLE_DROPPED_ROWS,
    TABLE_NUM_BLOCKS_DONE,
    TABLE_SELECTIONS,
    TABLE_NODE_ROUTES, /* this and the following of several nodes only */
    TABLE_SEND_TOKENS,
    TABLE_NODE_TOKENS,
    TABLE_RELAY_BASE,
    TABLE_RELAYED_ROWS,
    TABLE_RELAYED_BY,
    NUM_TABLES
};

static int32_t max_routes(const weft_ep *ep, int32_t num_topk)
{
    return num_topk < ep->comm->num_ranks ? num_topk : ep->comm->num_ranks;
}

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

static int32_t max_relayed_rows(const weft_ep *ep, int32_t num_topk)
{
    return least(num_topk, ep->comm->num_ranks / ep->comm->topology.num_nodes);
}

/* A chunk for every warp of the largest layout. */
static int32_t num_chunks(const weft_ep *ep, int32_t max_tokens)
{
    const struct weft__grid grid =
        weft__ep_grid(ep, &(struct weft__work){.num_tokens = max_tokens});
    return grid.num_blocks * grid.num_warps;
}

/* Fills where each table begins; returns where the last one ends. */
static uint64_t place_tables(const weft_ep *ep, const struct weft__placement *placement,
                             int32_t max_tokens, int32_t num_topk, uint64_t offsets[NUM_TABLES])
{
    const uint64_t num_ranks = (uint64_t)ep->comm->num_ranks;
    const uint64_t chunks = (uint64_t)num_chunks(ep, max_tokens);
    const uint64_t num_local = (uint64_t)weft__placement_num_local(placement, ep->comm->rank);
    const uint64_t bytes[NUM_TABLES] = {
        [TABLE_ROUTES] =
            (uint64_t)max_tokens * (uint64_t)max_routes(ep, num_topk) * sizeof(struct wp_route),
        [TABLE_CHUNK_BASE] = chunks * num_ranks * sizeof(int32_t),
        [TABLE_CHUNK_NODES] = chunks * (uint64_t)ep->comm->topology.num_nodes * sizeof(int32_t),
        [TABLE_RANK_BASE] = num_ranks * sizeof(int32_t),
        [TABLE_SEND_ROWS] = num_ranks * sizeof(int32_t),
        [TABLE_ENTRY_SELECTIONS] = (uint64_t)placement->num_entries * sizeof(int32_t),
        [TABLE_RECV_RANK_ENDS] = num_ranks * sizeof(int32_t),
        [TABLE_RECV_ROWS] = sizeof(int32_t),
        [TABLE_ALL_RECV_ROWS] = num_ranks * sizeof(int32_t),
        [TABLE_RECV_RANK_ROWS] = num_ranks * sizeof(int32_t),
        [TABLE_RECV_EXPERT_ROWS] = num_local * sizeof(int32_t),
        [TABLE_RELAY_TOKENS] = (uint64_t)ep->comm->topology.num_nodes * sizeof(int32_t),
        [TABLE_DROPPED_ROWS] = sizeof(int64_t),
        [TABLE_NUM_BLOCKS_DONE] = sizeof(uint32_t),
        [TABLE_SELECTIONS] = (uint64_t)placement->num_entries * sizeof(int32_t),
    };
    uint64_t end = 0;
    for (int i = 0; i < TABLE_NODE_ROUTES; i++) {
        offsets[i] = end;
        end += (bytes[i] + 63) / 64 * 64;
    }
    return end;
}

/* Those of several nodes, behind the others. */
static uint64_t place_node_tables(const weft_ep *ep, int32_t max_tokens, int32_t num_topk,
                                  uint64_t begin, uint64_t offsets[NUM_TABLES])
{
    const int32_t num_nodes = ep->comm->topology.num_nodes;
    const uint64_t nodes = (uint64_t)num_nodes, tokens = (uint64_t)max_tokens;
    const uint64_t num_local = (uint64_t)(ep->comm->num_ranks / num_nodes);
    const uint64_t bytes[NUM_TABLES] = {
        [TABLE_NODE_ROUTES] =
            tokens * (uint64_t)least(num_topk, num_nodes) * sizeof(struct wp_route),
        [TABLE_SEND_TOKENS] = nodes * sizeof(int32_t),
        [TABLE_NODE_TOKENS] = nodes * tokens * sizeof(int32_t),
        [TABLE_RELAY_BASE] = nodes * num_local * sizeof(int32_t),
        [TABLE_RELAYED_ROWS] =
            nodes * tokens * (uint64_t)max_relayed_rows(ep, num_topk) * sizeof(struct wp_target),
        [TABLE_RELAYED_BY] = sizeof(int32_t),
    };
    uint64_t end = begin;
    for (int i = TABLE_NODE_ROUTES; i < NUM_TABLES; i++) {
        offsets[i] = end;
        end += (bytes[i] + 63) / 64 * 64;
    }
    return end;
}

static uint64_t place_all_tables(const weft_ep *ep, const struct weft__placement *placement,
                                 int32_t max_tokens, int32_t num_topk, uint64_t offsets[NUM_TABLES])
{
    const uint64_t end = place_tables(ep, placement, max_tokens, num_topk, offsets);
    return ep->internode == NULL ? end : place_node_tables(ep, max_tokens, num_topk, end, offsets);
}

uint64_t weft__handle_bytes(const weft_ep *ep, int32_t max_tokens, int32_t num_topk)
{
    uint64_t offsets[NUM_TABLES];
    return place_all_tables(ep, &ep->placement, max_tokens, num_topk, offsets);
}

static void point_into(weft_ep_handle *handle, char *memory, const uint64_t offsets[NUM_TABLES])
{
    struct wp_routing *routing = &handle->routing;
    routing->routes = (void *)(memory + offsets[TABLE_ROUTES]);
    routing->chunk_base = (void *)(memory + offsets[TABLE_CHUNK_BASE]);
    routing->rank_base = (void *)(memory + offsets[TABLE_RANK_BASE]);
    routing->send_rows = (void *)(memory + offsets[TABLE_SEND_ROWS]);
    routing->entry_selections = (void *)(memory + offsets[TABLE_ENTRY_SELECTIONS]);
    routing->recv_rows = (void *)(memory + offsets[TABLE_RECV_ROWS]);
    routing->recv_rank_ends = (void *)(memory + offsets[TABLE_RECV_RANK_ENDS]);
    routing->all_recv_rows = (void *)(memory + offsets[TABLE_ALL_RECV_ROWS]);
    routing->recv_rank_rows = (void *)(memory + offsets[TABLE_RECV_RANK_ROWS]);
    routing->recv_expert_rows = (void *)(memory + offsets[TABLE_RECV_EXPERT_ROWS]);
    routing->dropped_rows = (void *)(memory + offsets[TABLE_DROPPED_ROWS]);
    routing->nodes.chunk_base = (void *)(memory + offsets[TABLE_CHUNK_NODES]);
    handle->selections = (void *)(memory + offsets[TABLE_SELECTIONS]);
    handle->num_blocks_done = (void *)(memory + offsets[TABLE_NUM_BLOCKS_DONE]);
}

static void point_into_node_tables(weft_ep_handle *handle, char *memory,
                                   const uint64_t offsets[NUM_TABLES])
{
    const weft_ep *ep = handle->ep;
    const int32_t num_topk = handle->routing.num_topk;
    struct wp_node_routing *nodes = &handle->routing.nodes;
    nodes->max_tokens = handle->max_tokens;
    nodes->max_node_routes = least(num_topk, ep->comm->topology.num_nodes);
    nodes->max_relayed_rows = max_relayed_rows(ep, num_topk);
    nodes->routes = (void *)(memory + offsets[TABLE_NODE_ROUTES]);
    nodes->send_tokens = (void *)(memory + offsets[TABLE_SEND_TOKENS]);
    nodes->tokens = (void *)(memory + offsets[TABLE_NODE_TOKENS]);
    nodes->relay_tokens = (void *)(memory + offsets[TABLE_RELAY_TOKENS]);
    nodes->relay_base = (void *)(memory + offsets[TABLE_RELAY_BASE]);
    nodes->relayed_rows = (void *)(memory + offsets[TABLE_RELAYED_ROWS]);
    nodes->relayed_by = (void *)(memory + offsets[TABLE_RELAYED_BY]);
}

static weft_result allocate(weft_ep_handle *handle)
{
    weft_comm *comm = handle->ep->comm;
    const struct weft__machine *machine = weft__machine_of(comm);
    struct weft__handle_counts *counts = &handle->counts;
    uint64_t offsets[NUM_TABLES];
    const uint64_t bytes = place_all_tables(handle->ep, handle->placement, handle->max_tokens,
                                            handle->routing.num_topk, offsets);
    WEFT__TRY(machine->event_create(comm, WEFT__EVENT_ORDERS, &handle->notified));
    WEFT__TRY(machine->alloc(comm, bytes, &handle->memory));
    point_into(handle, handle->memory, offsets);
    if (handle->ep->internode != NULL)
        point_into_node_tables(handle, handle->memory, offsets);
    counts->all_rows_offset = offsets[TABLE_ALL_RECV_ROWS] - offsets[TABLE_RECV_ROWS];
    counts->rank_rows_offset = offsets[TABLE_RECV_RANK_ROWS] - offsets[TABLE_RECV_ROWS];
    counts->expert_rows_offset = offsets[TABLE_RECV_EXPERT_ROWS] - offsets[TABLE_RECV_ROWS];
    counts->relay_tokens_offset = offsets[TABLE_RELAY_TOKENS] - offsets[TABLE_RECV_ROWS];
    counts->dropped_rows_offset = offsets[TABLE_DROPPED_ROWS] - offsets[TABLE_RECV_ROWS];
    counts->bytes = counts->dropped_rows_offset + sizeof(int64_t);
    counts->host = calloc(1, counts->bytes);
    return counts->host != NULL ? WEFT_OK
                                : weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for a handle");
}

/* Local: that the ranks' numbers are the same, their calls tell. */
static weft_result place_experts(weft_ep_handle *handle, int32_t num_experts)
{
    weft_comm *comm = handle->ep->comm;
    const weft_ep_config config = {.num_experts = num_experts};
    handle->placement = &handle->ep->placement;
    if (num_experts == 0)
        return WEFT_OK;
    handle->placement = &handle->own_placement;
    WEFT__TRY(weft__placement_create(&handle->own_placement, &config, comm->num_ranks));
    return weft__placement_upload(&handle->own_placement, comm);
}

weft_result weft__handle_create(weft_ep *ep, const weft_ep_handle_config *config,
                                weft_ep_handle **out)
{
    weft_ep_handle *handle = calloc(1, sizeof *handle);
    if (handle == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for a handle");
    handle->ep = ep;
    handle->max_tokens = config->max_tokens;
    handle->expert_alignment = config->expert_alignment == 0 ? 1 : config->expert_alignment;
    handle->routing.rank = ep->comm->rank;
    handle->routing.num_ranks = ep->comm->num_ranks;
    handle->routing.num_topk = config->num_topk;
    handle->routing.max_routes = max_routes(ep, config->num_topk);
    handle->routing.num_chunks = num_chunks(ep, config->max_tokens);
    weft_result result = place_experts(handle, config->num_experts);
    if (result == WEFT_OK)
        result = allocate(handle);
    if (result != WEFT_OK) {
        weft__handle_destroy(handle);
        return result;
    }
    *out = handle;
    return WEFT_OK;
}

void weft__handle_destroy(weft_ep_handle *handle)
{
    weft_comm *comm = handle->ep->comm;
    const struct weft__machine *machine = weft__machine_of(comm);
    weft__exchange_wait(handle->ep->exchange); /* the tables are in use until then */
    if (handle->notified != NULL)
        machine->event_destroy(handle->notified);
    machine->free(comm, handle->memory);
    weft__placement_unload(&handle->own_placement, comm);
    weft__placement_destroy(&handle->own_placement);
    free(handle->counts.host);
    free(handle);
}

weft_result weft__handle_read_counts(weft_ep_handle *handle)
{
    weft_comm *comm = handle->ep->comm;
    return weft__machine_of(comm)->copy(comm, handle->counts.host, handle->routing.recv_rows,
                                        handle->counts.bytes);
}
