/* SPDX-License-Identifier: MIT */
#include "ep_layer.h"

#include <stdlib.h>

#include "ep_ll.h"
#include "workload/failure.h"
#include "workload/try.h"

const char *const ep_op_names[EP_NUM_OPS] = {"layout", "notify",      "dispatch",   "combine",
                                             "layer",  "ll_dispatch", "ll_combine", "ll_layer"};

struct payload ep_layer_payload(const struct ep_layer *layer)
{
    return (struct payload){layer->options->seed, layer->options->kind};
}

static weft_result open_ep(struct ep_layer *layer)
{
    const struct ep_options *options = layer->options;
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
    weft_result result = weft_stream_create(layer->comm, &layer->stream);
    return result == WEFT_OK ? weft_ep_create(layer->comm, &config, &layer->ep) : result;
}

static int is_narrow(const struct ep_layer *layer)
{
    return layer->options->row_format != EP_ROW_FORMAT_DTYPE;
}

static weft_result open_handle(struct ep_layer *layer, uint64_t *arena_bytes)
{
    const struct ep_options *options = layer->options;
    const uint64_t row_bytes[] = {options->row_bytes, ep_ll_element_bytes(options),
                                  ep_ll_scale_bytes(options)};
    weft_ep_handle_config handle_config = WEFT_INIT(weft_ep_handle_config);
    handle_config.max_tokens = layer->num_tokens;
    handle_config.num_topk = options->num_topk;
    weft_ep_size_args size_args = WEFT_INIT(weft_ep_size_args);
    size_args.max_tokens_per_rank = options->num_tokens;
    size_args.num_topk = options->num_topk;
    size_args.num_planes = is_narrow(layer) ? 3 : 1;
    size_args.plane_row_bytes = row_bytes;
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
    size_t capacity = (size_t)layer->capacity;
    size_t selections = capacity * (size_t)layer->options->num_topk;
    void *buffers[6] = {NULL};
    const size_t bytes[6] = {capacity * layer->options->row_bytes,
                             selections * sizeof(int32_t),
                             selections * sizeof(float),
                             capacity * sizeof(int32_t),
                             capacity * ep_ll_element_bytes(layer->options),
                             capacity * ep_ll_scale_bytes(layer->options)};
    const int num_buffers = is_narrow(layer) ? 6 : 4;
    weft_result result = weft_arena_create(layer->comm, arena_bytes, &layer->arena);
    for (int i = 0; i < num_buffers && result == WEFT_OK; i++)
        result = alloc_received(layer, bytes[i], &buffers[i]);
    layer->recv_x = buffers[0];
    layer->recv_topk_idx = buffers[1];
    layer->recv_topk_weights = buffers[2];
    layer->recv_src_token = buffers[3];
    layer->recv_narrow = buffers[4];
    layer->recv_scales = buffers[5];
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
        {(void **)&layer->x, num_tokens * row_bytes},
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

weft_result ep_layer_fill_x(struct ep_layer *layer, const struct payload *payload)
{
    const size_t num_tokens = (size_t)layer->num_tokens, row_bytes = layer->options->row_bytes;
    const int64_t first_token = layer->routing->first_tokens[layer->rank];
    unsigned char *rows = malloc(num_tokens * row_bytes + 1);
    if (!rows)
        return LACKS_MEMORY("%zu rows of %zu bytes", num_tokens, row_bytes);
    for (size_t t = 0; t < num_tokens; t++)
        payload_fill_row(payload, first_token + (int64_t)t, 0, rows + t * row_bytes, row_bytes);
    const weft_result result =
        weft_memory_copy(layer->comm, layer->x, rows, num_tokens * row_bytes);
    free(rows);
    return result;
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

static weft_result open_normal(struct ep_layer *layer)
{
    uint64_t arena_bytes;
    weft_result result = open_handle(layer, &arena_bytes);
    return result == WEFT_OK ? open_received(layer, arena_bytes) : result;
}

weft_result ep_layer_open(struct ep_layer *layer, weft_comm *comm, const struct ep_options *options,
                          const struct ep_routing *routing)
{
    weft_team_info node = WEFT_INIT(weft_team_info);
    *layer = (struct ep_layer){
        .options = options,
        .routing = routing,
        .comm = comm,
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
    return result;
}

void ep_layer_close(struct ep_layer *layer)
{
    ep_ll_close(layer);
    if (layer->stream)
        weft_stream_destroy(layer->stream);
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
    void *const buffers[] = {layer->x,
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
    void *const received[] = {layer->recv_x,         layer->recv_topk_idx, layer->recv_topk_weights,
                              layer->recv_src_token, layer->recv_narrow,   layer->recv_scales};
    for (size_t i = 0; i < sizeof received / sizeof *received; i++)
        if (received[i] && layer->options->memory == EP_MEMORY_OTHER)
            weft_memory_free(layer->comm, received[i]);
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
    weft_plane plane = {.size = sizeof(weft_plane),
                        .src = layer->x,
                        .dst = layer->recv_x,
                        .row_bytes = layer->options->row_bytes};
    if (is_narrow(layer)) {
        const weft_rows_args rows = ep_ll_rows_args(layer->options);
        plane.dst = layer->recv_narrow;
        plane.scales = layer->recv_scales;
        plane.dtype = rows.dtype;
        plane.quantisation = rows.quantisation;
    }
    weft_ep_dispatch_args args = WEFT_INIT(weft_ep_dispatch_args);
    args.num_planes = 1;
    args.planes = &plane;
    args.capacity = layer->capacity;
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
    args.dst = layer->recv_x;
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
    args.x = layer->recv_x;
    args.out = layer->out;
    return weft_ep_combine(layer->handle, &args, layer->stream);
}

weft_result ep_layer_enqueue(struct ep_layer *layer, enum ep_op op)
{
    weft_result result = WEFT_OK;
    switch (op) {
    case EP_LAYOUT:
        return enqueue_layout(layer);
    case EP_NOTIFY:
        return weft_ep_notify(layer->handle, layer->stream);
    case EP_DISPATCH:
        return enqueue_dispatch(layer);
    case EP_COMBINE:
        return enqueue_combine(layer);
    case EP_LL_DISPATCH:
    case EP_LL_COMBINE:
    case EP_LL_LAYER:
        return ep_ll_enqueue(layer, op);
    default:
        for (int part = EP_LAYOUT; part <= EP_COMBINE && result == WEFT_OK; part++)
            if (ep_op_exists(part, layer->options))
                result = ep_layer_enqueue(layer, part);
        return result;
    }
}

int32_t ep_layer_calls(const struct ep_layer *layer)
{
    return layer->options->start == EP_START_GRAPH ? EP_LL_GRAPH_CALLS : 1;
}

weft_result ep_layer_prepare(struct ep_layer *layer, enum ep_op op)
{
    return op == EP_LL_COMBINE ? ep_ll_dispatch(layer) : WEFT_OK;
}

weft_result ep_layer_finish(struct ep_layer *layer, enum ep_op op)
{
    const int is_stream = layer->options->start == EP_START_STREAM;
    const int leaves_result = op == EP_LL_COMBINE || (op == EP_LL_DISPATCH && is_stream);
    return leaves_result ? weft_ll_release(layer->ll.ll, layer->stream) : WEFT_OK;
}
