/* SPDX-License-Identifier: MIT */
/* A handle's tables, in three blocks of memory: those whose sizes never change, and which the
 * caller may look into; those of this rank's tokens; those of tokens that are relayed for other
 * nodes. The latter two grow if the handle has no max_tokens. */
#include <stdlib.h>

#include "ep/ep.h"

enum table {
    TABLE_RANK_BASE,
    TABLE_SEND_ROWS,
    TABLE_ENTRY_SELECTIONS,
    TABLE_RECV_RANK_ENDS,
    TABLE_RECV_ROWS, /* the host reads this and the next ten in one copy */
    TABLE_ALL_RECV_ROWS,
    TABLE_RECV_RANK_ROWS,
    TABLE_RECV_EXPERT_ROWS,
    TABLE_EXPERT_SELECTIONS,
    TABLE_EXPERT_FIRSTS,
    TABLE_EXPANDED_ROWS,
    TABLE_TAGS,
    TABLE_RELAY_TOKENS,
    TABLE_DROPPED_EXPANDED_ROWS,
    TABLE_DROPPED_ROWS,
    TABLE_NUM_BLOCKS_DONE,
    TABLE_PLACED_ROWS,
    TABLE_EXPERT_CHUNKS,
    TABLE_SELECTIONS,
    TABLE_SEND_TOKENS, /* this and the next two of several nodes only */
    TABLE_RELAY_BASE,
    TABLE_RELAYED_BY,
    TABLE_ROUTES, /* WEFT__BLOCK_TOKENS begins */
    TABLE_CHUNK_BASE,
    TABLE_CHUNK_NODES,
    TABLE_NODE_ROUTES, /* this and the following of several nodes only */
    TABLE_NODE_TOKENS,
    TABLE_RELAYED_ROWS, /* WEFT__BLOCK_RELAYED begins */
    NUM_TABLES
};

static const enum table first_tables[WEFT__NUM_BLOCKS + 1] = {
    [WEFT__BLOCK_COUNTS] = TABLE_RANK_BASE,
    [WEFT__BLOCK_TOKENS] = TABLE_ROUTES,
    [WEFT__BLOCK_RELAYED] = TABLE_RELAYED_ROWS,
    [WEFT__NUM_BLOCKS] = NUM_TABLES,
};

/* The sizes that tables are made for. */
struct sizes {
    const weft_ep *ep;
    const struct weft__placement *placement;
    int32_t num_topk;
    struct weft__handle_room room;
};

/* Where the tables of a block begin. */
struct places {
    uint64_t offsets[NUM_TABLES];
    uint64_t bytes[WEFT__NUM_BLOCKS];
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
static int32_t num_chunks(const weft_ep *ep, int32_t num_tokens)
{
    const struct weft__grid grid =
        weft__ep_grid(ep, &(struct weft__work){.num_tokens = num_tokens});
    return grid.num_blocks * grid.num_warps;
}

/* In which the choices that have come are counted, each for all local experts: for many of these
 * fewer, lest they take much memory. */
static int32_t num_expert_chunks(const weft_ep *ep, int32_t num_local)
{
    enum { MOST_COUNTERS = 1 << 18 };
    const int32_t most = num_local > 0 ? MOST_COUNTERS / num_local : MOST_COUNTERS;
    const int32_t of_launch = num_chunks(ep, INT32_MAX);
    return most < 1 ? 1 : least(most, of_launch);
}

static void size_tables(const struct sizes *sizes, uint64_t bytes[NUM_TABLES])
{
    const weft_ep *ep = sizes->ep;
    const uint64_t num_ranks = (uint64_t)ep->comm->num_ranks;
    const uint64_t num_nodes = (uint64_t)ep->comm->topology.num_nodes;
    const uint64_t chunks = (uint64_t)num_chunks(ep, sizes->room.own_tokens);
    const uint64_t num_entries = (uint64_t)sizes->placement->num_entries;
    const uint64_t num_local =
        (uint64_t)weft__placement_num_local(sizes->placement, ep->comm->rank);
    bytes[TABLE_RANK_BASE] = num_ranks * sizeof(int32_t);
    bytes[TABLE_SEND_ROWS] = num_ranks * sizeof(int32_t);
    bytes[TABLE_ENTRY_SELECTIONS] = num_entries * sizeof(int32_t);
    bytes[TABLE_RECV_RANK_ENDS] = num_ranks * sizeof(int32_t);
    bytes[TABLE_RECV_ROWS] = sizeof(int32_t);
    bytes[TABLE_ALL_RECV_ROWS] = num_ranks * sizeof(int32_t);
    bytes[TABLE_RECV_RANK_ROWS] = num_ranks * sizeof(int32_t);
    bytes[TABLE_RECV_EXPERT_ROWS] = num_local * sizeof(int32_t);
    bytes[TABLE_EXPERT_SELECTIONS] = num_local * sizeof(int32_t);
    bytes[TABLE_EXPERT_FIRSTS] = num_local * sizeof(int32_t);
    bytes[TABLE_EXPANDED_ROWS] = sizeof(int32_t);
    bytes[TABLE_TAGS] = num_ranks * sizeof(int32_t);
    bytes[TABLE_RELAY_TOKENS] = num_nodes * sizeof(int32_t);
    bytes[TABLE_DROPPED_EXPANDED_ROWS] = sizeof(int64_t);
    bytes[TABLE_DROPPED_ROWS] = sizeof(int64_t);
    bytes[TABLE_NUM_BLOCKS_DONE] = sizeof(uint32_t);
    bytes[TABLE_PLACED_ROWS] = num_local * sizeof(int32_t);
    bytes[TABLE_EXPERT_CHUNKS] =
        num_local * (uint64_t)num_expert_chunks(ep, (int32_t)num_local) * sizeof(int32_t);
    bytes[TABLE_SELECTIONS] = num_entries * sizeof(int32_t);
    bytes[TABLE_ROUTES] = (uint64_t)sizes->room.own_tokens *
                          (uint64_t)max_routes(ep, sizes->num_topk) * sizeof(struct wp_route);
    bytes[TABLE_CHUNK_BASE] = chunks * num_ranks * sizeof(int32_t);
    bytes[TABLE_CHUNK_NODES] = chunks * num_nodes * sizeof(int32_t);
}

/* Those of several nodes. */
static void size_node_tables(const struct sizes *sizes, uint64_t bytes[NUM_TABLES])
{
    const weft_ep *ep = sizes->ep;
    const int32_t num_nodes = ep->comm->topology.num_nodes;
    const uint64_t nodes = (uint64_t)num_nodes;
    const uint64_t tokens = (uint64_t)sizes->room.own_tokens;
    bytes[TABLE_SEND_TOKENS] = nodes * sizeof(int32_t);
    bytes[TABLE_RELAY_BASE] = (uint64_t)ep->comm->num_ranks * sizeof(int32_t);
    bytes[TABLE_RELAYED_BY] = sizeof(int32_t);
    bytes[TABLE_NODE_ROUTES] =
        tokens * (uint64_t)least(sizes->num_topk, num_nodes) * sizeof(struct wp_route);
    bytes[TABLE_NODE_TOKENS] = nodes * tokens * sizeof(int32_t);
    bytes[TABLE_RELAYED_ROWS] = nodes * (uint64_t)sizes->room.relayed_tokens *
                                (uint64_t)max_relayed_rows(ep, sizes->num_topk) *
                                sizeof(struct wp_target);
}

static struct places place_tables(const struct sizes *sizes)
{
    struct places places;
    uint64_t bytes[NUM_TABLES] = {0};
    size_tables(sizes, bytes);
    if (sizes->ep->internode != NULL)
        size_node_tables(sizes, bytes);
    for (int block = 0; block < WEFT__NUM_BLOCKS; block++) {
        uint64_t end = 0;
        for (enum table i = first_tables[block]; i < first_tables[block + 1]; i++) {
            places.offsets[i] = end;
            end += (bytes[i] + 63) / 64 * 64;
        }
        places.bytes[block] = end;
    }
    return places;
}

uint64_t weft__handle_bytes(const weft_ep *ep, int32_t max_tokens, int32_t num_topk)
{
    const struct sizes sizes = {ep, &ep->placement, num_topk, {max_tokens, max_tokens}};
    const struct places places = place_tables(&sizes);
    uint64_t bytes = 0;
    for (int block = 0; block < WEFT__NUM_BLOCKS; block++)
        bytes += places.bytes[block];
    return bytes;
}

static void point_into_expansion(weft_ep_handle *handle, char *memory,
                                 const uint64_t offsets[NUM_TABLES])
{
    const weft_ep *ep = handle->ep;
    struct wp_expansion *expansion = &handle->expansion;
    expansion->num_experts = weft__placement_num_local(handle->placement, ep->comm->rank);
    expansion->num_chunks = num_expert_chunks(ep, expansion->num_experts);
    expansion->num_selections = (void *)(memory + offsets[TABLE_EXPERT_SELECTIONS]);
    expansion->firsts = (void *)(memory + offsets[TABLE_EXPERT_FIRSTS]);
    expansion->num_rows = (void *)(memory + offsets[TABLE_EXPANDED_ROWS]);
    expansion->num_placed = (void *)(memory + offsets[TABLE_PLACED_ROWS]);
    expansion->chunk_firsts = (void *)(memory + offsets[TABLE_EXPERT_CHUNKS]);
    expansion->dropped_rows = (void *)(memory + offsets[TABLE_DROPPED_EXPANDED_ROWS]);
}

static void point_into_counts(weft_ep_handle *handle, const uint64_t offsets[NUM_TABLES])
{
    char *memory = handle->blocks[WEFT__BLOCK_COUNTS];
    struct wp_routing *routing = &handle->routing;
    routing->rank_base = (void *)(memory + offsets[TABLE_RANK_BASE]);
    routing->send_rows = (void *)(memory + offsets[TABLE_SEND_ROWS]);
    routing->entry_selections = (void *)(memory + offsets[TABLE_ENTRY_SELECTIONS]);
    routing->recv_rows = (void *)(memory + offsets[TABLE_RECV_ROWS]);
    routing->recv_rank_ends = (void *)(memory + offsets[TABLE_RECV_RANK_ENDS]);
    routing->all_recv_rows = (void *)(memory + offsets[TABLE_ALL_RECV_ROWS]);
    routing->recv_rank_rows = (void *)(memory + offsets[TABLE_RECV_RANK_ROWS]);
    routing->recv_expert_rows = (void *)(memory + offsets[TABLE_RECV_EXPERT_ROWS]);
    routing->tags = (void *)(memory + offsets[TABLE_TAGS]);
    routing->dropped_rows = (void *)(memory + offsets[TABLE_DROPPED_ROWS]);
    handle->selections = (void *)(memory + offsets[TABLE_SELECTIONS]);
    handle->num_blocks_done = (void *)(memory + offsets[TABLE_NUM_BLOCKS_DONE]);
    point_into_expansion(handle, memory, offsets);
    if (handle->ep->internode == NULL)
        return;
    routing->nodes.send_tokens = (void *)(memory + offsets[TABLE_SEND_TOKENS]);
    routing->nodes.relay_tokens = (void *)(memory + offsets[TABLE_RELAY_TOKENS]);
    routing->nodes.relay_base = (void *)(memory + offsets[TABLE_RELAY_BASE]);
    routing->nodes.relayed_by = (void *)(memory + offsets[TABLE_RELAYED_BY]);
}

static void point_into_tokens(weft_ep_handle *handle, const uint64_t offsets[NUM_TABLES])
{
    char *memory = handle->blocks[WEFT__BLOCK_TOKENS];
    struct wp_routing *routing = &handle->routing;
    routing->num_chunks = num_chunks(handle->ep, handle->room.own_tokens);
    routing->routes = (void *)(memory + offsets[TABLE_ROUTES]);
    routing->chunk_base = (void *)(memory + offsets[TABLE_CHUNK_BASE]);
    routing->nodes.chunk_base = (void *)(memory + offsets[TABLE_CHUNK_NODES]);
    if (handle->ep->internode == NULL)
        return;
    routing->nodes.max_tokens = handle->room.own_tokens;
    routing->nodes.routes = (void *)(memory + offsets[TABLE_NODE_ROUTES]);
    routing->nodes.tokens = (void *)(memory + offsets[TABLE_NODE_TOKENS]);
}

static void point_into_relayed(weft_ep_handle *handle)
{
    handle->routing.nodes.max_relayed_tokens = handle->room.relayed_tokens;
    handle->routing.nodes.relayed_rows = handle->blocks[WEFT__BLOCK_RELAYED];
}

/* A new block for that room in place of the one before, which operations may use until now. If
 * there is no memory, the handle stays as it was. */
static weft_result allocate(weft_ep_handle *handle, enum weft__handle_block block,
                            struct weft__handle_room room)
{
    const weft_ep *ep = handle->ep;
    const struct weft__machine *machine = weft__machine_of(ep->comm);
    const struct sizes sizes = {ep, handle->placement, handle->routing.num_topk, room};
    const struct places places = place_tables(&sizes);
    void *memory = NULL;
    if (places.bytes[block] > 0)
        WEFT__TRY(machine->alloc(ep->comm, places.bytes[block], &memory));
    if (handle->blocks[block] != NULL) {
        weft__exchange_wait(ep->exchange);
        machine->free(ep->comm, handle->blocks[block]);
    }
    handle->blocks[block] = memory;
    handle->room = room;
    if (block == WEFT__BLOCK_COUNTS)
        point_into_counts(handle, places.offsets);
    else if (block == WEFT__BLOCK_TOKENS)
        point_into_tokens(handle, places.offsets);
    else
        point_into_relayed(handle);
    return WEFT_OK;
}

static weft_result create_counts(weft_ep_handle *handle)
{
    const struct sizes sizes = {handle->ep, handle->placement, handle->routing.num_topk,
                                handle->room};
    const struct places places = place_tables(&sizes);
    const uint64_t *offsets = places.offsets;
    struct weft__handle_counts *counts = &handle->counts;
    counts->all_rows_offset = offsets[TABLE_ALL_RECV_ROWS] - offsets[TABLE_RECV_ROWS];
    counts->rank_rows_offset = offsets[TABLE_RECV_RANK_ROWS] - offsets[TABLE_RECV_ROWS];
    counts->expert_rows_offset = offsets[TABLE_RECV_EXPERT_ROWS] - offsets[TABLE_RECV_ROWS];
    counts->selections_offset = offsets[TABLE_EXPERT_SELECTIONS] - offsets[TABLE_RECV_ROWS];
    counts->firsts_offset = offsets[TABLE_EXPERT_FIRSTS] - offsets[TABLE_RECV_ROWS];
    counts->expanded_rows_offset = offsets[TABLE_EXPANDED_ROWS] - offsets[TABLE_RECV_ROWS];
    counts->tags_offset = offsets[TABLE_TAGS] - offsets[TABLE_RECV_ROWS];
    counts->relay_tokens_offset = offsets[TABLE_RELAY_TOKENS] - offsets[TABLE_RECV_ROWS];
    counts->dropped_expanded_offset =
        offsets[TABLE_DROPPED_EXPANDED_ROWS] - offsets[TABLE_RECV_ROWS];
    counts->dropped_rows_offset = offsets[TABLE_DROPPED_ROWS] - offsets[TABLE_RECV_ROWS];
    counts->bytes = counts->dropped_rows_offset + sizeof(int64_t);
    counts->host = calloc(1, counts->bytes);
    return counts->host != NULL ? WEFT_OK : weft__no_memory("no memory for a handle");
}

static weft_result create_tables(weft_ep_handle *handle)
{
    weft_comm *comm = handle->ep->comm;
    const struct weft__handle_room room = {handle->max_tokens, handle->max_tokens};
    WEFT__TRY(weft__machine_of(comm)->event_create(comm, WEFT__EVENT_ORDERS, &handle->notified));
    for (int block = 0; block < WEFT__NUM_BLOCKS; block++)
        WEFT__TRY(allocate(handle, (enum weft__handle_block)block, room));
    return create_counts(handle);
}

/* At least twice the room, so that a handle seldom waits for its operations. */
static int32_t grown(const weft_ep_handle *handle, int32_t room_tokens, int32_t num_tokens)
{
    const int32_t most = weft__ep_most_tokens(handle->ep, handle->routing.num_topk);
    const int32_t twice = room_tokens < most / 2 ? 2 * room_tokens : most;
    return num_tokens > twice ? num_tokens : twice;
}

weft_result weft__handle_make_room(weft_ep_handle *handle, int32_t num_tokens)
{
    struct weft__handle_room room = handle->room;
    if (num_tokens <= room.own_tokens)
        return WEFT_OK;
    WEFT__TRY(weft__check_may_wait("weft_ep_layout"));
    room.own_tokens = grown(handle, room.own_tokens, num_tokens);
    WEFT__TRY(allocate(handle, WEFT__BLOCK_TOKENS, room));
    handle->state = WEFT__HANDLE_EMPTY; /* what was laid out is gone */
    return WEFT_OK;
}

weft_result weft__handle_make_room_for_relayed(weft_ep_handle *handle, const char *call)
{
    weft_comm *comm = handle->ep->comm;
    struct weft__handle_room room = handle->room;
    int32_t num_tokens = 0;
    if (handle->max_tokens > 0 || handle->has_room || handle->ep->internode == NULL)
        return WEFT_OK;
    WEFT__TRY(weft__check_may_wait(call));
    WEFT__TRY(weft__handle_wait_counts(handle));
    const int32_t *from_nodes =
        (const void *)(handle->counts.host + handle->counts.relay_tokens_offset);
    for (int32_t node = 0; node < comm->topology.num_nodes; node++)
        num_tokens = from_nodes[node] > num_tokens ? from_nodes[node] : num_tokens;
    if (num_tokens > room.relayed_tokens) {
        room.relayed_tokens = grown(handle, room.relayed_tokens, num_tokens);
        WEFT__TRY(allocate(handle, WEFT__BLOCK_RELAYED, room));
    }
    handle->has_room = 1;
    return WEFT_OK;
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
    WEFT__TRY(weft__nodes_check(ep->comm, "dispatch and combine"));
    weft_ep_handle *handle = calloc(1, sizeof *handle);
    WEFT__CHECK_MEMORY(handle, "no memory for a handle");
    handle->ep = ep;
    handle->max_tokens = config->max_tokens;
    handle->order = config->order;
    handle->expert_alignment = config->expert_alignment == 0 ? 1 : config->expert_alignment;
    handle->routing.rank = ep->comm->rank;
    handle->routing.num_ranks = ep->comm->num_ranks;
    handle->routing.num_topk = config->num_topk;
    handle->routing.max_routes = max_routes(ep, config->num_topk);
    if (ep->internode != NULL) {
        handle->routing.nodes.max_node_routes =
            least(config->num_topk, ep->comm->topology.num_nodes);
        handle->routing.nodes.max_relayed_rows = max_relayed_rows(ep, config->num_topk);
    }
    weft_result result = place_experts(handle, config->num_experts);
    if (result == WEFT_OK)
        result = create_tables(handle);
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
    for (int block = 0; block < WEFT__NUM_BLOCKS; block++)
        machine->free(comm, handle->blocks[block]);
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

weft_result weft__handle_wait_counts(weft_ep_handle *handle)
{
    weft_comm *comm = handle->ep->comm;
    weft__standing_hold(
        (struct weft__hold){.kind = WEFT__HELD_BY_STREAM, .stream_id = handle->notify_stream_id});
    const weft_result result = weft__machine_of(comm)->event_synchronize(handle->notified);
    weft__standing_release();
    WEFT__TRY(result);
    WEFT__TRY(weft__machine_check(comm));
    return weft__handle_read_counts(handle);
}
