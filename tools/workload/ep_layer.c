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

static int is_narrow(const struct ep_layer *layer)
{
    return layer->options->row_format != EP_ROW_FORMAT_DTYPE;
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
    size_args.num_planes = is_narrow(layer) ? 3 : options->num_planes;
    size_args.plane_row_bytes = is_narrow(layer) ? narrow_bytes : options->plane_bytes;
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

static weft_result open_intervals(struct ep_layer *layer)
{
    weft_result result = WEFT_OK;
    for (int op = 0; op < EP_NUM_OPS && result == WEFT_OK; op++) {
        result = weft_event_create(layer->comm, &layer->intervals[op].start);
        if (result == WEFT_OK)
            result = weft_event_create(layer->comm, &layer->intervals[op].stop);
    }
    return result;
}

static weft_result alloc_received(struct ep_layer *layer, size_t bytes, void **buffer)
{
    return layer->options->memory == EP_MEMORY_HEAP ? weft_arena_alloc(layer->arena, bytes, buffer)
                                                    : weft_memory_alloc(layer->comm, bytes, buffer);
}

static weft_result open_received(struct ep_layer *layer, uint64_t arena_bytes)
{
    const struct ep_layer_options *options = layer->options;
    const size_t capacity = (size_t)layer->capacity;
    const size_t selections = capacity * (size_t)options->num_topk;
    const struct {
        void **buffer;
        size_t bytes;
    } list[] = {
        {(void **)&layer->recv_x[0], capacity * options->plane_bytes[0]},
        {(void **)&layer->recv_x[1], capacity * options->plane_bytes[1]},
        {(void **)&layer->recv_topk_idx, selections * sizeof(int32_t)},
        {(void **)&layer->recv_topk_weights, selections * sizeof(float)},
        {(void **)&layer->recv_src_token, capacity * sizeof(int32_t)},
        {(void **)&layer->recv_narrow,
         is_narrow(layer) ? capacity * ep_ll_element_bytes(options) : 0},
        {(void **)&layer->recv_scales, capacity * ep_ll_scale_bytes(options)},
    };
    weft_result result = weft_arena_create(layer->comm, arena_bytes, &layer->arena);
    for (size_t i = 0; i < sizeof list / sizeof *list && result == WEFT_OK; i++)
        if (list[i].bytes > 0)
            result = alloc_received(layer, list[i].bytes, list[i].buffer);
    return result;
}

static weft_result alloc_own_buffers(struct ep_layer *layer)
{
    const size_t num_tokens = (size_t)layer->num_tokens, num_ranks = (size_t)layer->num_ranks;
    const size_t row_bytes = layer->options->row_bytes;
    const size_t num_choices = num_tokens * (size_t)layer->options->num_topk;
    const struct {
        void **buffer;
        size_t bytes;
    } list[] = {
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
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        TRY(weft_memory_alloc(layer->comm, list[i].bytes, list[i].buffer));
    return WEFT_OK;
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

static weft_result enqueue_layout(struct ep_layer *layer)
{
    weft_ep_layout_args args = WEFT_INIT(weft_ep_layout_args);
    args.num_tokens = layer->num_tokens;
    args.index_type = WEFT_INT32;
    args.topk_idx = layer->topk_idx;
    args.num_tokens_per_rank = layer->tokens_per_rank;
    args.num_tokens_per_node = layer->tokens_per_node;
    args.num_tokens_per_expert = layer->tokens_per_expert;
    args.is_token_in_rank = layer->is_token_in_rank;
    return weft_ep_layout(layer->handle, &args, layer->stream);
}

static weft_result enqueue_dispatch(struct ep_layer *layer)
{
    weft_plane planes[EP_MAX_PLANES];
    for (int32_t i = 0; i < layer->options->num_planes; i++)
        planes[i] = (weft_plane){.size = sizeof(weft_plane),
                                 .src = layer->x[i],
                                 .dst = layer->recv_x[i],
                                 .row_bytes = layer->options->plane_bytes[i]};
    if (is_narrow(layer)) {
        const weft_rows_args rows = ep_ll_rows_args(layer->options);
        planes[0].dst = layer->recv_narrow;
        planes[0].scales = layer->recv_scales;
        planes[0].dtype = rows.dtype;
        planes[0].narrow_dtype = rows.narrow_dtype;
        planes[0].scale = rows.scale;
        planes[0].group_elements = (int32_t)rows.group_elements;
    }
    weft_ep_dispatch_args args = WEFT_INIT(weft_ep_dispatch_args);
    args.num_planes = layer->options->num_planes;
    args.planes = planes;
    args.capacity = layer->capacity;
    if (layer->options->carried == EP_CARRY_ROWS)
        return weft_ep_dispatch(layer->handle, &args, layer->stream);
    args.index_type = WEFT_INT32;
    args.topk_idx = layer->topk_idx;
    args.topk_weights = layer->topk_weights;
    args.recv_topk_idx = layer->recv_topk_idx;
    args.recv_topk_weights = layer->recv_topk_weights;
    args.recv_src_token = layer->recv_src_token;
    return weft_ep_dispatch(layer->handle, &args, layer->stream);
}

weft_result ep_layer_restore_rows(struct ep_layer *layer, int64_t num_rows)
{
    if (!is_narrow(layer))
        return WEFT_OK;
    weft_rows_args args = ep_ll_rows_args(layer->options);
    args.src = layer->recv_narrow;
    args.dst = layer->recv_x[0];
    args.scales = layer->recv_scales;
    args.num_rows = num_rows;
    return weft_rows_dequantise(layer->comm, &args, layer->stream);
}

static weft_result enqueue_combine(struct ep_layer *layer)
{
    weft_ep_combine_args args = WEFT_INIT(weft_ep_combine_args);
    args.dtype = layer->options->kind;
    args.hidden = layer->options->hidden;
    args.capacity = layer->capacity;
    args.x = layer->recv_x[0];
    args.out = layer->out;
    return weft_ep_combine(layer->handle, &args, layer->stream);
}

weft_result ep_layer_route(struct ep_layer *layer, weft_ep_counts *counts)
{
    TRY(enqueue_layout(layer));
    TRY(weft_ep_notify(layer->handle, layer->stream));
    return weft_ep_wait_counts(layer->handle, counts);
}

static weft_result enqueue_once(struct ep_layer *layer, enum ep_op op)
{
    const int parts = ep_op_parts(op, layer->options);
    weft_ep_counts counts = WEFT_INIT(weft_ep_counts);
    if (layer->options->mode == EP_MODE_LOW_LATENCY)
        return ep_ll_enqueue(layer, parts);
    if (parts & EP_PART_LAYOUT)
        TRY(enqueue_layout(layer));
    if (parts & EP_PART_NOTIFY)
        TRY(weft_ep_notify(layer->handle, layer->stream));
    if (parts & EP_PART_COUNTS)
        TRY(weft_ep_wait_counts(layer->handle, &counts));
    if (parts & EP_PART_DISPATCH)
        TRY(enqueue_dispatch(layer));
    return parts & EP_PART_COMBINE ? enqueue_combine(layer) : WEFT_OK;
}

weft_result ep_layer_enqueue(struct ep_layer *layer, enum ep_op op)
{
    return layer->graphs[op] ? weft_graph_launch(layer->graphs[op], layer->stream)
                             : enqueue_once(layer, op);
}

weft_result ep_layer_prepare(struct ep_layer *layer, enum ep_op op)
{
    const int parts = ep_op_parts(op, layer->options);
    const int is_low_latency = layer->options->mode == EP_MODE_LOW_LATENCY;
    return is_low_latency && !(parts & EP_PART_DISPATCH) ? ep_ll_dispatch(layer) : WEFT_OK;
}

weft_result ep_layer_finish(struct ep_layer *layer, enum ep_op op)
{
    const int parts = ep_op_parts(op, layer->options);
    if (layer->options->mode == EP_MODE_LOW_LATENCY)
        return ep_ll_leaves_result(parts) ? weft_ll_release(layer->ll.ll, layer->stream) : WEFT_OK;
    /* The next operations need the counts of this layout. */
    const int is_layout_alone = (parts & EP_PART_LAYOUT) && !(parts & EP_PART_NOTIFY);
    return is_layout_alone ? weft_ep_notify(layer->handle, layer->stream) : WEFT_OK;
}

static weft_result record_calls(struct ep_layer *layer, enum ep_op op)
{
    TRY(weft_graph_begin(layer->stream));
    weft_result result = WEFT_OK;
    for (int i = 0; i < EP_GRAPH_CALLS && result == WEFT_OK; i++)
        result = enqueue_once(layer, op);
    const weft_result ended = weft_graph_end(layer->stream, &layer->graphs[op]);
    return result == WEFT_OK ? ended : result;
}

static weft_result record(struct ep_layer *layer, enum ep_op op)
{
    TRY(ep_layer_prepare(layer, op));
    TRY(record_calls(layer, op));
    return ep_layer_finish(layer, op);
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

weft_result ep_layer_open(struct ep_layer *layer, weft_comm *comm, weft_stream *stream,
                          const struct ep_layer_options *options, const struct ep_routing *routing)
{
    weft_team_info node = WEFT_INIT(weft_team_info);
    *layer = (struct ep_layer){
        .options = options,
        .routing = routing,
        .comm = comm,
        .stream = stream,
        .rank = weft_comm_rank(comm),
        .num_ranks = weft_comm_num_ranks(comm),
    };
    weft_result result = weft_team_query(comm, WEFT_TEAM_LOCAL, &node);
    if (result != WEFT_OK)
        return result;
    layer->node = node.team_idx;
    layer->num_nodes = node.num_teams;
    layer->num_tokens =
        (int32_t)(routing->first_tokens[layer->rank + 1] - routing->first_tokens[layer->rank]);
    result = open_ep(layer);
    if (result == WEFT_OK)
        result = open_intervals(layer);
    if (result == WEFT_OK)
        result = open_own_buffers(layer);
    if (result == WEFT_OK)
        result = options->mode == EP_MODE_LOW_LATENCY ? ep_ll_open(layer) : open_normal(layer);
    for (int op = 0; op < EP_NUM_OPS && result == WEFT_OK; op++)
        if (ep_op_calls(op, options) > 1)
            result = record(layer, op);
    return result;
}

void ep_layer_close(struct ep_layer *layer)
{
    for (int op = 0; op < EP_NUM_OPS; op++)
        if (layer->graphs[op])
            weft_graph_destroy(layer->graphs[op]);
    ep_ll_close(layer);
    for (int op = 0; op < EP_NUM_OPS; op++) {
        if (layer->intervals[op].start)
            weft_event_destroy(layer->intervals[op].start);
        if (layer->intervals[op].stop)
            weft_event_destroy(layer->intervals[op].stop);
    }
    if (layer->arena)
        weft_arena_destroy(layer->arena);
    if (layer->handle)
        weft_ep_handle_destroy(layer->handle);
    if (layer->ep)
        weft_ep_destroy(layer->ep);
    void *const buffers[] = {layer->x[0],
                             layer->x[1],
                             layer->out,
                             layer->topk_idx,
                             layer->topk_weights,
                             layer->tokens_per_rank,
                             layer->tokens_per_node,
                             layer->tokens_per_expert,
                             layer->is_token_in_rank};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        if (buffers[i])
            weft_memory_free(layer->comm, buffers[i]);
    void *const received[] = {layer->recv_x[0],         layer->recv_x[1],      layer->recv_topk_idx,
                              layer->recv_topk_weights, layer->recv_src_token, layer->recv_narrow,
                              layer->recv_scales};
    for (size_t i = 0; i < sizeof received / sizeof *received; i++)
        if (received[i] && layer->options->memory == EP_MEMORY_OTHER)
            weft_memory_free(layer->comm, received[i]);
}
