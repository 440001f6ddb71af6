/* SPDX-License-Identifier: MIT */
#include "workload/ep_layer.h"
#include "workload/ep_ll.h"
#include "workload/try.h"

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
    if (ep_layer_is_narrow(layer)) {
        const weft_rows_args rows = ep_ll_rows_args(layer->options);
        planes[0].dst = layer->recv_narrow;
        planes[0].scales = layer->recv_scales;
        planes[0].dtype = rows.dtype;
        planes[0].quantisation = rows.quantisation;
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
    if (!ep_layer_is_narrow(layer))
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

weft_result ep_layer_record(struct ep_layer *layer, enum ep_op op)
{
    TRY(ep_layer_prepare(layer, op));
    TRY(record_calls(layer, op));
    return ep_layer_finish(layer, op);
}
