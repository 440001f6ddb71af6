/* SPDX-License-Identifier: MIT */
#include "workload/ep_layer.h"

#include <stdlib.h>

#include "workload/ep_ll.h"
#include "workload/failure.h"
#include "workload/try.h"

struct payload ep_layer_payload(const struct ep_layer *layer)
{
    return (struct payload){layer->options->seed, layer->options->kind};
}

static weft_result open_ep(struct ep_layer *layer)
{
    const struct ep_layer_options *options = layer->options;
    weft_ep_config config = WEFT_INIT(weft_ep_config);
    config.num_experts = options->num_experts;
    config.max_topk = options->num_topk;
    config.num_blocks = options->num_blocks;
    config.num_warps = options->num_warps;
    config.num_channels = options->num_channels;
    config.num_staging_slots = options->num_staging_slots;
    config.staging_slot_bytes = options->staging_slot_bytes;
    config.staging_bytes = options->staging_bytes;
    config.combine_wire = ep_wire_dtype(options);
    return weft_ep_create(layer->comm, &config, &layer->ep);
}

static weft_result open_handle(struct ep_layer *layer, uint64_t *arena_bytes)
{
    const struct ep_layer_options *options = layer->options;
    const uint64_t narrow_bytes[] = {options->row_bytes, ep_ll_element_bytes(options),
                                     ep_ll_scale_bytes(options)};
    weft_ep_handle_config handle_config = WEFT_INIT(weft_ep_handle_config);
    handle_config.max_tokens = options->num_tokens > 0 ? options->num_tokens : 1;
    handle_config.num_topk = options->num_topk;
    weft_ep_size_args size_args = WEFT_INIT(weft_ep_size_args);
    size_args.max_tokens_per_rank = options->num_tokens;
    size_args.num_topk = options->num_topk;
    size_args.num_planes = ep_layer_is_narrow(layer) ? 3 : options->num_planes;
    size_args.plane_row_bytes = ep_layer_is_narrow(layer) ? narrow_bytes : options->plane_bytes;
    size_args.index_type = WEFT_INT32;
    size_args.with_topk = 1;
    size_args.with_src_token = 1;
    weft_ep_sizes sizes = WEFT_INIT(weft_ep_sizes);

    weft_result result = weft_ep_handle_create(layer->ep, &handle_config, &layer->handle);
    if (result == WEFT_OK)
        result = weft_ep_query_sizes(layer->ep, &size_args, &sizes);
    if (result == WEFT_OK) {
        layer->capacity = (int32_t)sizes.max_recv_tokens;
        *arena_bytes = sizes.arena_bytes;
    }
    return result;
}

weft_result ep_layer_alloc(struct ep_layer *layer, enum ep_memory memory,
                           const struct ep_buffer *list, size_t num_buffers)
{
    for (size_t i = 0; i < num_buffers; i++) {
        if (list[i].bytes == 0)
            continue;
        if (memory == EP_MEMORY_HEAP) {
            TRY(weft_arena_alloc(layer->arena, list[i].bytes, list[i].pointer));
            continue;
        }
        TRY(weft_memory_alloc(layer->comm, list[i].bytes, list[i].pointer));
        layer->blocks[layer->num_blocks++] = *list[i].pointer;
    }
    return WEFT_OK;
}

static weft_result open_received(struct ep_layer *layer, uint64_t arena_bytes)
{
    const struct ep_layer_options *options = layer->options;
    const size_t capacity = (size_t)layer->capacity;
    const size_t selections = capacity * (size_t)options->num_topk;
    const struct ep_buffer list[] = {
        {(void **)&layer->recv_x[0], capacity * options->plane_bytes[0]},
        {(void **)&layer->recv_x[1], capacity * options->plane_bytes[1]},
        {(void **)&layer->recv_topk_idx, selections * sizeof(int32_t)},
        {(void **)&layer->recv_topk_weights, selections * sizeof(float)},
        {(void **)&layer->recv_src_token, capacity * sizeof(int32_t)},
        {(void **)&layer->recv_narrow,
         ep_layer_is_narrow(layer) ? capacity * ep_ll_element_bytes(options) : 0},
        {(void **)&layer->recv_scales, capacity * ep_ll_scale_bytes(options)},
    };
    TRY(weft_arena_create(layer->comm, arena_bytes, &layer->arena));
    return ep_layer_alloc(layer, options->memory, list, sizeof list / sizeof *list);
}

static weft_result alloc_own_buffers(struct ep_layer *layer)
{
    /* Without tokens there are pointers too. */
    const size_t num_tokens = (size_t)layer->num_tokens + (layer->num_tokens == 0);
    const size_t num_ranks = (size_t)layer->num_ranks;
    const size_t row_bytes = layer->options->row_bytes;
    const size_t num_choices = num_tokens * (size_t)layer->options->num_topk;
    const struct ep_buffer list[] = {
        {(void **)&layer->x[0], num_tokens * layer->options->plane_bytes[0]},
        {(void **)&layer->x[1], num_tokens * layer->options->plane_bytes[1]},
        {(void **)&layer->out, num_tokens * row_bytes},
        {(void **)&layer->topk_idx, num_choices * sizeof(int32_t)},
        {(void **)&layer->topk_weights, num_choices * sizeof(float)},
        {(void **)&layer->tokens_per_rank, num_ranks * sizeof(int32_t)},
        {(void **)&layer->tokens_per_node, (size_t)layer->num_nodes * sizeof(int32_t)},
        {(void **)&layer->tokens_per_expert, (size_t)layer->options->num_experts * sizeof(int32_t)},
        {(void **)&layer->is_token_in_rank, num_tokens * num_ranks},
    };
    return ep_layer_alloc(layer, EP_MEMORY_OTHER, list, sizeof list / sizeof *list);
}

static weft_result fill_plane(struct ep_layer *layer, const struct payload *payload, int32_t plane)
{
    const size_t num_tokens = (size_t)layer->num_tokens;
    const size_t row_bytes = layer->options->plane_bytes[plane];
    const int64_t first_token = layer->routing->first_tokens[layer->rank];
    unsigned char *rows = malloc(num_tokens * row_bytes + 1);
    if (!rows)
        return LACKS_MEMORY("%zu rows of %zu bytes", num_tokens, row_bytes);
    for (size_t t = 0; t < num_tokens; t++)
        payload_fill_row(payload, first_token + (int64_t)t, plane, rows + t * row_bytes, row_bytes);
    const weft_result result =
        weft_memory_copy(layer->comm, layer->x[plane], rows, num_tokens * row_bytes);
    free(rows);
    return result;
}

weft_result ep_layer_fill_x(struct ep_layer *layer, const struct payload *payload)
{
    for (int32_t plane = 0; plane < layer->options->num_planes; plane++)
        TRY(fill_plane(layer, payload, plane));
    return WEFT_OK;
}

static weft_result open_own_buffers(struct ep_layer *layer)
{
    const int64_t first_token = layer->routing->first_tokens[layer->rank];
    const size_t num_choices = (size_t)layer->num_tokens * (size_t)layer->options->num_topk;
    const struct payload payload = ep_layer_payload(layer);
    TRY(alloc_own_buffers(layer));
    TRY(ep_layer_fill_x(layer, &payload));
    TRY(weft_memory_copy(layer->comm, layer->topk_idx,
                         ep_routing_topk_idx(layer->routing, first_token),
                         num_choices * sizeof(int32_t)));
    return weft_memory_copy(layer->comm, layer->topk_weights,
                            ep_routing_topk_weights(layer->routing, first_token),
                            num_choices * sizeof(float));
}

/* Leaves the routing in the handle. */
static weft_result open_normal(struct ep_layer *layer)
{
    uint64_t arena_bytes;
    weft_ep_counts counts = WEFT_INIT(weft_ep_counts);
    TRY(open_handle(layer, &arena_bytes));
    TRY(open_received(layer, arena_bytes));
    return ep_layer_route(layer, &counts);
}

weft_result ep_layer_open_routing(struct ep_routing *routing,
                                  const struct ep_layer_options *options, weft_comm *comm,
                                  enum ep_routing_extent extent)
{
    const int32_t num_ranks = weft_comm_num_ranks(comm);
    int32_t *nodes = calloc((size_t)num_ranks, sizeof *nodes);
    const struct ep_ranks ranks = {num_ranks, weft_comm_rank(comm), nodes};
    for (int32_t rank = 0; rank < num_ranks && nodes; rank++)
        nodes[rank] = weft_comm_node(comm, rank);
    *routing = (struct ep_routing){0};
    const int is_open = nodes && ep_routing_open(routing, options, &ranks, extent) == 0;
    free(nodes);
    return is_open ? WEFT_OK : LACKS_MEMORY("the routing of the tokens");
}

static weft_result open_parts(struct ep_layer *layer)
{
    const struct ep_layer_options *options = layer->options;
    TRY(open_ep(layer));
    TRY(open_own_buffers(layer));
    TRY(options->mode == EP_MODE_LOW_LATENCY ? ep_ll_open(layer) : open_normal(layer));
    for (int op = 0; op < EP_NUM_OPS; op++)
        if (ep_op_calls(op, options) > 1)
            TRY(ep_layer_record(layer, op));
    return WEFT_OK;
}

weft_result ep_layer_open(struct ep_layer *layer, weft_comm *comm, weft_stream *stream,
                          const struct ep_layer_options *options, const struct ep_routing *routing)
{
    const int32_t rank = weft_comm_rank(comm);
    weft_team_info node = WEFT_INIT(weft_team_info);
    *layer = (struct ep_layer){
        .options = options,
        .routing = routing,
        .comm = comm,
        .stream = stream,
        .rank = rank,
        .num_ranks = weft_comm_num_ranks(comm),
        .num_tokens = (int32_t)(routing->first_tokens[rank + 1] - routing->first_tokens[rank]),
    };
    TRY(weft_team_query(comm, WEFT_TEAM_LOCAL, &node));
    layer->node = node.team_idx;
    layer->num_nodes = node.num_teams;
    return open_parts(layer);
}

void ep_layer_close(struct ep_layer *layer)
{
    for (int op = 0; op < EP_NUM_OPS; op++)
        if (layer->graphs[op])
            weft_graph_destroy(layer->graphs[op]);
    if (layer->ll.ll)
        weft_ll_destroy(layer->ll.ll);
    if (layer->arena)
        weft_arena_destroy(layer->arena);
    if (layer->handle)
        weft_ep_handle_destroy(layer->handle);
    if (layer->ep)
        weft_ep_destroy(layer->ep);
    for (int32_t i = 0; i < layer->num_blocks; i++)
        weft_memory_free(layer->comm, layer->blocks[i]);
}
