/* SPDX-License-Identifier: MIT */
/* A handle's tables, in three blocks of memory: those whose sizes never change, and which the
 * caller may look into; those of this rank's tokens; those of tokens that are relayed for other
 * nodes. The latter two grow if the handle has no max_tokens. */
#include <stdlib.h>

#include "ep/ep.h"

/* A block whose tables are laid one after the other. Without memory it tells how long it is. */
struct block {
    char *memory;
    uint64_t bytes;
};

static void *lay(struct block *block, uint64_t bytes)
{
    void *table = block->memory == NULL ? NULL : block->memory + block->bytes;
    block->bytes += (bytes + 63) / 64 * 64;
    return table;
}

static int32_t *lay_int32(struct block *block, int64_t count)
{
    return lay(block, (uint64_t)count * sizeof(int32_t));
}

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
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

/* From recv_rows to dropped_rows: what the host reads in one copy. */
static void lay_read_counts(weft_ep_handle *handle, struct block *block)
{
    const weft_ep *ep = handle->ep;
    struct wp_routing *routing = &handle->routing;
    struct wp_expansion *expansion = &handle->expansion;
    const int32_t num_ranks = ep->comm->num_ranks;
    routing->recv_rows = lay_int32(block, 1);
    routing->all_recv_rows = lay_int32(block, num_ranks);
    routing->recv_rank_rows = lay_int32(block, num_ranks);
    routing->recv_expert_rows = lay_int32(block, expansion->num_experts);
    expansion->num_selections = lay_int32(block, expansion->num_experts);
    expansion->firsts = lay_int32(block, expansion->num_experts);
    expansion->num_rows = lay_int32(block, 1);
    routing->tags = lay_int32(block, num_ranks);
    int32_t *relay_tokens = lay_int32(block, ep->comm->topology.num_nodes);
    routing->nodes.relay_tokens = ep->internode != NULL ? relay_tokens : NULL;
    expansion->dropped_rows = lay(block, sizeof *expansion->dropped_rows);
    routing->dropped_rows = lay(block, sizeof *routing->dropped_rows);
}

/* Those whose sizes never change. */
static void lay_counts(weft_ep_handle *handle, struct block *block)
{
    const weft_ep *ep = handle->ep;
    struct wp_routing *routing = &handle->routing;
    struct wp_expansion *expansion = &handle->expansion;
    const int32_t num_ranks = ep->comm->num_ranks, num_entries = handle->placement->num_entries;
    expansion->num_experts = weft__placement_num_local(handle->placement, ep->comm->rank);
    expansion->num_chunks = num_expert_chunks(ep, expansion->num_experts);
    routing->rank_base = lay_int32(block, num_ranks);
    routing->send_rows = lay_int32(block, num_ranks);
    routing->entry_selections = lay_int32(block, num_entries);
    routing->recv_rank_ends = lay_int32(block, num_ranks);
    lay_read_counts(handle, block);
    handle->num_blocks_done = lay(block, sizeof *handle->num_blocks_done);
    expansion->num_placed = lay_int32(block, expansion->num_experts);
    expansion->chunk_firsts =
        lay_int32(block, (int64_t)expansion->num_experts * expansion->num_chunks);
    handle->selections = lay_int32(block, num_entries);
    if (ep->internode == NULL)
        return;
    routing->nodes.send_tokens = lay_int32(block, ep->comm->topology.num_nodes);
    routing->nodes.relay_base = lay_int32(block, num_ranks);
    routing->nodes.relayed_by = lay_int32(block, 1);
}

static void lay_tokens(weft_ep_handle *handle, struct block *block)
{
    const weft_ep *ep = handle->ep;
    struct wp_routing *routing = &handle->routing;
    const int32_t num_nodes = ep->comm->topology.num_nodes;
    const uint64_t tokens = (uint64_t)handle->room.own_tokens;
    routing->num_chunks = num_chunks(ep, handle->room.own_tokens);
    routing->routes = lay(block, tokens * (uint64_t)routing->max_routes * sizeof(struct wp_route));
    routing->chunk_base = lay_int32(block, (int64_t)routing->num_chunks * ep->comm->num_ranks);
    routing->nodes.chunk_base = lay_int32(block, (int64_t)routing->num_chunks * num_nodes);
    if (ep->internode == NULL)
        return;
    routing->nodes.max_tokens = handle->room.own_tokens;
    routing->nodes.routes =
        lay(block, tokens * (uint64_t)routing->nodes.max_node_routes * sizeof(struct wp_route));
    routing->nodes.tokens = lay_int32(block, (int64_t)num_nodes * handle->room.own_tokens);
}

static void lay_relayed(weft_ep_handle *handle, struct block *block)
{
    struct wp_node_routing *nodes = &handle->routing.nodes;
    if (handle->ep->internode == NULL)
        return;
    nodes->max_relayed_tokens = handle->room.relayed_tokens;
    nodes->relayed_rows =
        lay(block, (uint64_t)handle->ep->comm->topology.num_nodes *
                       (uint64_t)nodes->max_relayed_tokens * (uint64_t)nodes->max_relayed_rows *
                       sizeof(struct wp_target));
}

/* Lets the handle point into the block's memory. Returns the bytes that its tables take. */
static uint64_t lay_tables(weft_ep_handle *handle, enum weft__handle_block kind, void *memory)
{
    struct block block = {.memory = memory};
    if (kind == WEFT__BLOCK_COUNTS)
        lay_counts(handle, &block);
    else if (kind == WEFT__BLOCK_TOKENS)
        lay_tokens(handle, &block);
    else
        lay_relayed(handle, &block);
    return block.bytes;
}

static void describe_routing(weft_ep_handle *handle, int32_t num_topk)
{
    const weft_comm *comm = handle->ep->comm;
    struct wp_routing *routing = &handle->routing;
    routing->rank = comm->rank;
    routing->num_ranks = comm->num_ranks;
    routing->num_topk = num_topk;
    routing->max_routes = least(num_topk, comm->num_ranks);
    if (handle->ep->internode == NULL)
        return;
    routing->nodes.max_node_routes = least(num_topk, comm->topology.num_nodes);
    routing->nodes.max_relayed_rows = least(num_topk, comm->num_ranks / comm->topology.num_nodes);
}

uint64_t weft__handle_bytes(const weft_ep *ep, int32_t max_tokens, int32_t num_topk)
{
    weft_ep_handle handle = {.ep = (weft_ep *)(uintptr_t)ep,
                             .placement = &ep->placement,
                             .room = {max_tokens, max_tokens}};
    uint64_t bytes = 0;
    describe_routing(&handle, num_topk);
    for (int block = 0; block < WEFT__NUM_BLOCKS; block++)
        bytes += lay_tables(&handle, (enum weft__handle_block)block, NULL);
    return bytes;
}

/* A new block for that room in place of the one before, which operations may use until now. If
 * there is no memory, the handle stays as it was. */
static weft_result allocate(weft_ep_handle *handle, enum weft__handle_block block,
                            struct weft__handle_room room)
{
    const weft_ep *ep = handle->ep;
    const struct weft__machine *machine = weft__machine_of(ep->comm);
    weft_ep_handle planned = *handle;
    void *memory = NULL;
    planned.room = room;
    const uint64_t bytes = lay_tables(&planned, block, NULL);
    if (bytes > 0)
        WEFT__TRY(machine->alloc(ep->comm, bytes, &memory));
    if (handle->blocks[block] != NULL) {
        weft__exchange_wait(ep->exchange);
        machine->free(ep->comm, handle->blocks[block]);
    }
    handle->blocks[block] = memory;
    handle->room = room;
    (void)lay_tables(handle, block, memory);
    return WEFT_OK;
}

const void *weft__handle_counted(const weft_ep_handle *handle, const void *table)
{
    return handle->counts.host + ((const char *)table - (const char *)handle->routing.recv_rows);
}

static weft_result create_counts(weft_ep_handle *handle)
{
    const char *first = (const char *)handle->routing.recv_rows;
    const char *end = (const char *)(handle->routing.dropped_rows + 1);
    handle->counts.bytes = (uint64_t)(end - first);
    handle->counts.host = calloc(1, handle->counts.bytes);
    return handle->counts.host != NULL ? WEFT_OK : weft__no_memory("no memory for a handle");
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
    const int32_t *from_nodes = weft__handle_counted(handle, handle->routing.nodes.relay_tokens);
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
    describe_routing(handle, config->num_topk);
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
