/* SPDX-License-Identifier: MIT */
/* The stream operations of expert parallelism, and what their handle tells. */
#include "api/ep_checks.h"
#include "api/ep_extents.h"
#include "api/objects.h"
#include "api/structs.h"
#include "ep/planes.h"

static weft_result check_routing_by_experts(const weft_ep_handle *handle,
                                            const weft_ep_layout_args *args)
{
    WEFT__TRY(weft__check_enum(WEFT__ENUM_DTYPE, (int32_t)args->index_type, WEFT_INT32, WEFT_INT64,
                               "index_type"));
    WEFT__TRY(weft__check_array(args->topk_idx, args->num_tokens, "topk_idx"));
    return weft__ep_check_pointer(handle, args->topk_idx, "topk_idx");
}

static weft_result check_routing_by_table(const weft_ep_handle *handle,
                                          const weft_ep_layout_args *args)
{
    if (args->topk_idx != NULL)
        return weft__invalid("topk_idx is not NULL, nor are tokens_to_ranks or "
                             "selections_per_expert: give topk_idx, or these two");
    WEFT__TRY(weft__check_unused((uint64_t)args->index_type, "index_type"));
    WEFT__TRY(weft__check_array(args->tokens_to_ranks, args->num_tokens, "tokens_to_ranks"));
    WEFT__TRY(weft__check_not_null(args->selections_per_expert, "selections_per_expert"));
    WEFT__TRY(weft__ep_check_pointer(handle, args->tokens_to_ranks, "tokens_to_ranks"));
    return weft__ep_check_pointer(handle, args->selections_per_expert, "selections_per_expert");
}

weft_result weft_ep_layout(weft_ep_handle *handle, const weft_ep_layout_args *user_args,
                           weft_stream *stream)
{
    weft_ep_layout_args args;
    WEFT__TRY(weft__ep_check_operation(handle, stream, WEFT__HANDLE_EMPTY));
    WEFT__TRY(WEFT__READ(weft_ep_layout_args, &args, user_args, "args"));
    const int32_t max_tokens = handle->max_tokens > 0
                                   ? handle->max_tokens
                                   : weft__ep_most_tokens(handle->ep, handle->routing.num_topk);
    WEFT__TRY(weft__check_range(args.num_tokens, 0, max_tokens, "num_tokens"));
    WEFT__TRY(args.tokens_to_ranks == NULL && args.selections_per_expert == NULL
                  ? check_routing_by_experts(handle, &args)
                  : check_routing_by_table(handle, &args));
    WEFT__TRY(weft__ep_check_pointer(handle, args.num_tokens_per_rank, "num_tokens_per_rank"));
    WEFT__TRY(weft__ep_check_pointer(handle, args.num_tokens_per_node, "num_tokens_per_node"));
    WEFT__TRY(weft__ep_check_pointer(handle, args.num_tokens_per_expert, "num_tokens_per_expert"));
    WEFT__TRY(weft__ep_check_pointer(handle, args.is_token_in_rank, "is_token_in_rank"));
    WEFT__TRY(weft__check_layout_memory(handle, &args));
    weft__current_call = WEFT__CALL_EP_LAYOUT;
    return weft__ep_layout(handle, &args, stream);
}

weft_result weft_ep_notify(weft_ep_handle *handle, weft_stream *stream)
{
    WEFT__TRY(weft__ep_check_operation(handle, stream, WEFT__HANDLE_LAID_OUT));
    weft__current_call = WEFT__CALL_EP_NOTIFY;
    return weft__exchange_note(handle->ep->exchange, stream, WEFT__CALL_IS_WHOLE,
                               weft__ep_notify(handle, stream));
}

static int32_t counted_int32(const weft_ep_handle *handle, const int32_t *table)
{
    return *(const int32_t *)weft__handle_counted(handle, table);
}

/* Those of each node; this node's own number is always 0. */
static int32_t num_relayed_tokens(const weft_ep_handle *handle)
{
    int32_t num_tokens = 0;
    if (handle->ep->internode == NULL)
        return 0;
    const int32_t *from_nodes = weft__handle_counted(handle, handle->routing.nodes.relay_tokens);
    for (int32_t node = 0; node < handle->ep->comm->topology.num_nodes; node++)
        num_tokens += from_nodes[node];
    return num_tokens;
}

static int32_t max_recv_tokens(const weft_ep_handle *handle)
{
    const int32_t *all_rows = weft__handle_counted(handle, handle->routing.all_recv_rows);
    int32_t most = 0;
    for (int32_t rank = 0; rank < handle->ep->comm->num_ranks; rank++)
        most = all_rows[rank] > most ? all_rows[rank] : most;
    return most;
}

weft_result weft_ep_wait_counts(weft_ep_handle *handle, weft_ep_counts *counts)
{
    WEFT__TRY(weft__check_may_wait(__func__));
    WEFT__TRY(weft__object_check(WEFT__KIND_HANDLE, handle, "handle"));
    WEFT__TRY(WEFT__CHECK_OUTPUT(weft_ep_counts, counts, "counts"));
    WEFT__TRY(weft__ep_check_state(handle, WEFT__HANDLE_NOTIFIED));
    const weft_ep *ep = handle->ep;
    if (handle->is_captured)
        return weft__invalid(
            "handle: its last weft_ep_notify was captured into a graph, which the host cannot wait "
            "for: use weft_ep_query_device_counts and a capacity");
    WEFT__TRY(weft__handle_wait_counts(handle));
    const struct wp_routing *routing = &handle->routing;
    const struct wp_expansion *expansion = &handle->expansion;
    const weft_ep_counts found = {
        .num_recv_tokens = counted_int32(handle, routing->recv_rows),
        .num_local_experts = weft__placement_num_local(handle->placement, ep->comm->rank),
        .num_recv_per_rank = weft__handle_counted(handle, routing->recv_rank_rows),
        .num_recv_per_expert = weft__handle_counted(handle, routing->recv_expert_rows),
        .num_relayed_tokens = num_relayed_tokens(handle),
        .max_recv_tokens = max_recv_tokens(handle),
        .tags = weft__handle_counted(handle, routing->tags),
        .num_selections_per_expert = weft__handle_counted(handle, expansion->num_selections),
        .first_row_per_expert = weft__handle_counted(handle, expansion->firsts),
        .num_expanded_rows = counted_int32(handle, expansion->num_rows),
    };
    WEFT__WRITE(weft_ep_counts, counts, &found);
    return WEFT_OK;
}

weft_result weft_ep_query_device_counts(const weft_ep_handle *handle, weft_ep_device_counts *counts)
{
    WEFT__TRY(weft__object_check(WEFT__KIND_HANDLE, handle, "handle"));
    WEFT__TRY(WEFT__CHECK_OUTPUT(weft_ep_device_counts, counts, "counts"));
    const weft_ep_device_counts found = {
        .num_recv_tokens = handle->routing.recv_rows,
        .num_recv_per_rank = handle->routing.recv_rank_rows,
        .num_recv_per_expert = handle->routing.recv_expert_rows,
        .recv_rank_ends = handle->routing.recv_rank_ends,
        .num_selections_per_expert = handle->expansion.num_selections,
        .first_row_per_expert = handle->expansion.firsts,
        .num_expanded_rows = handle->expansion.num_rows,
    };
    WEFT__WRITE(weft_ep_device_counts, counts, &found);
    return WEFT_OK;
}

/* Checks a quantised plane; sets group_elements if it was 0. */
static weft_result check_quantised(weft_plane *plane, int32_t i, int32_t capacity)
{
    const char *const name = weft__plane_names[i].scales;
    WEFT__TRY(
        weft__check_enum(WEFT__ENUM_DTYPE, (int32_t)plane->dtype, WEFT_BF16, WEFT_FP32, "dtype"));
    const int64_t element_bytes = (int64_t)wp_dtype_bytes(plane->dtype);
    if (plane->row_bytes % (uint64_t)element_bytes != 0)
        return weft__invalid("planes[%d].row_bytes is %llu, must be a multiple of %lld, the bytes "
                             "of an element of its dtype",
                             i, (unsigned long long)plane->row_bytes, (long long)element_bytes);
    const int64_t hidden = (int64_t)plane->row_bytes / element_bytes;
    WEFT__TRY(weft__check_quantisation(&plane->quantisation, hidden));
    if (plane->quantisation.group_elements == 0)
        plane->quantisation.group_elements = (int32_t)hidden;
    if (weft__plane_scales_bytes(plane) > INT32_MAX)
        return weft__invalid("%s: those of a row have %llu bytes, allowed are 1..%d", name,
                             (unsigned long long)weft__plane_scales_bytes(plane), INT32_MAX);
    return weft__check_array(plane->scales, capacity, name);
}

static weft_result check_not_quantised(const weft_plane *plane, int32_t i)
{
    if (plane->scales == NULL && plane->dtype == WEFT_DTYPE_NONE &&
        plane->quantisation.scale == WEFT_SCALE_FP32 && plane->quantisation.group_elements == 0)
        return WEFT_OK;
    return weft__invalid("planes[%d].quantisation.dtype is WEFT_DTYPE_NONE: its scales, dtype and "
                         "the rest of quantisation must be 0",
                         i);
}

static weft_result check_plane(const weft_ep_handle *handle, weft_plane *plane, int32_t i,
                               int32_t capacity)
{
    const int32_t num_tokens = handle->routing.num_tokens;
    if (plane->row_bytes < 1 || plane->row_bytes > WEFT_MAX_ROW_BYTES)
        return weft__invalid("planes[%d].row_bytes is %llu, allowed are 1..%d", i,
                             (unsigned long long)plane->row_bytes, WEFT_MAX_ROW_BYTES);
    if (plane->src == NULL && num_tokens > 0)
        return weft__invalid("planes[%d].src is NULL, allowed only for 0 tokens, not for %d", i,
                             num_tokens);
    WEFT__TRY(weft__check_array(plane->dst, capacity, weft__plane_names[i].dst));
    WEFT__TRY(weft__plane_is_quantised(plane) ? check_quantised(plane, i, capacity)
                                              : check_not_quantised(plane, i));
    return weft__ep_check_pointer(handle, plane->src, weft__plane_names[i].src);
}

/* Those of one dispatch: `planes` are its own copies. */
static weft_result check_planes(const weft_ep_handle *handle, const weft_ep_dispatch_args *args,
                                weft_plane *planes)
{
    const int32_t quantised = weft__planes_quantised(args);
    for (int32_t i = 0; i < args->num_planes; i++) {
        WEFT__TRY(check_plane(handle, &planes[i], i, args->capacity));
        if (weft__plane_is_quantised(&planes[i]) && i != quantised)
            return weft__invalid("planes[%d] and planes[%d] have a quantisation: at most one plane "
                                 "of a dispatch is quantised",
                                 quantised, i);
    }
    if (weft__planes_num(args) <= WEFT_MAX_PLANES)
        return WEFT_OK;
    return weft__invalid(
        "num_planes is %d, allowed are 0..%d: planes[%d] is quantised, and its scales are one more",
        args->num_planes, WEFT_MAX_PLANES - 1, quantised);
}

static weft_result check_topk_arrays(const weft_ep_dispatch_args *args, int32_t num_tokens)
{
    const int with_idx = args->topk_idx != NULL || args->recv_topk_idx != NULL;
    const int with_weights = args->topk_weights != NULL || args->recv_topk_weights != NULL;
    WEFT__TRY(weft__check_enum(WEFT__ENUM_DTYPE, (int32_t)args->index_type,
                               with_idx ? WEFT_INT32 : WEFT_DTYPE_NONE, WEFT_INT64, "index_type"));
    if (with_weights && !with_idx)
        return weft__invalid("topk_idx is NULL but topk_weights is not: weights go with ids only");
    if (with_idx) {
        WEFT__TRY(weft__check_array(args->topk_idx, num_tokens, "topk_idx"));
        WEFT__TRY(weft__check_array(args->recv_topk_idx, args->capacity, "recv_topk_idx"));
    }
    if (with_weights) {
        WEFT__TRY(weft__check_array(args->topk_weights, num_tokens, "topk_weights"));
        WEFT__TRY(weft__check_array(args->recv_topk_weights, args->capacity, "recv_topk_weights"));
    }
    return WEFT_OK;
}

weft_result weft_ep_dispatch(weft_ep_handle *handle, const weft_ep_dispatch_args *user_args,
                             weft_stream *stream)
{
    weft_ep_dispatch_args args;
    weft_plane planes[WEFT_MAX_PLANES];
    WEFT__TRY(weft__ep_check_operation(handle, stream, WEFT__HANDLE_NOTIFIED));
    WEFT__TRY(WEFT__READ(weft_ep_dispatch_args, &args, user_args, "args"));
    WEFT__TRY(weft__check_range(args.num_planes, 0, WEFT_MAX_PLANES, "num_planes"));
    WEFT__TRY(WEFT__READ_ARRAY(weft_plane, planes, args.planes, args.num_planes, "planes"));
    args.planes = planes;
    WEFT__TRY(weft__check_range(args.capacity, 0, INT32_MAX, "capacity"));
    WEFT__TRY(weft__ep_check_num_blocks(handle, args.num_blocks));
    WEFT__TRY(check_planes(handle, &args, planes));
    WEFT__TRY(check_topk_arrays(&args, handle->routing.num_tokens));
    WEFT__TRY(weft__ep_check_pointer(handle, args.topk_idx, "topk_idx"));
    WEFT__TRY(weft__ep_check_pointer(handle, args.topk_weights, "topk_weights"));
    WEFT__TRY(weft__check_dispatch_memory(handle, &args));
    weft__current_call = WEFT__CALL_EP_DISPATCH;
    return weft__exchange_note(handle->ep->exchange, stream, WEFT__CALL_IS_WHOLE,
                               weft__ep_dispatch(handle, &args, stream));
}

weft_result weft_ep_combine(weft_ep_handle *handle, const weft_ep_combine_args *user_args,
                            weft_stream *stream)
{
    weft_ep_combine_args args;
    WEFT__TRY(weft__ep_check_operation(handle, stream, WEFT__HANDLE_NOTIFIED));
    WEFT__TRY(WEFT__READ(weft_ep_combine_args, &args, user_args, "args"));
    WEFT__TRY(
        weft__check_enum(WEFT__ENUM_DTYPE, (int32_t)args.dtype, WEFT_BF16, WEFT_FP32, "dtype"));
    WEFT__TRY(weft__check_range(
        args.hidden, 1, WEFT_MAX_ROW_BYTES / (int64_t)wp_dtype_bytes(args.dtype), "hidden"));
    WEFT__TRY(weft__check_range(args.capacity, 0, INT32_MAX, "capacity"));
    WEFT__TRY(weft__ep_check_num_blocks(handle, args.num_blocks));
    WEFT__TRY(weft__check_unused((uint64_t)args.reserved, "reserved"));
    WEFT__TRY(weft__check_array(args.x, args.capacity, "x"));
    WEFT__TRY(weft__check_array(args.out, handle->routing.num_tokens, "out"));
    if (args.topk_weights != NULL || args.out_topk_weights != NULL) {
        WEFT__TRY(weft__check_array(args.topk_weights, args.capacity, "topk_weights"));
        WEFT__TRY(weft__check_array(args.out_topk_weights, handle->routing.num_tokens,
                                    "out_topk_weights"));
    }
    WEFT__TRY(weft__ep_check_pointer(handle, args.bias[0], "bias[0]"));
    WEFT__TRY(weft__ep_check_pointer(handle, args.bias[1], "bias[1]"));
    WEFT__TRY(weft__ep_check_pointer(handle, args.out, "out"));
    WEFT__TRY(weft__ep_check_pointer(handle, args.out_topk_weights, "out_topk_weights"));
    WEFT__TRY(weft__check_combine_memory(handle, &args));
    weft__current_call = WEFT__CALL_EP_COMBINE;
    return weft__exchange_note(handle->ep->exchange, stream, WEFT__CALL_IS_WHOLE,
                               weft__ep_combine(handle, &args, stream));
}

weft_result weft_ep_check(weft_ep_handle *handle, int32_t *num_dropped)
{
    WEFT__TRY(weft__check_may_wait(__func__));
    WEFT__TRY(weft__object_check(WEFT__KIND_HANDLE, handle, "handle"));
    WEFT__TRY(weft__machine_check(handle->ep->comm));
    WEFT__TRY(weft__handle_read_counts(handle));
    const int32_t num_rows = counted_int32(handle, handle->routing.recv_rows);
    const int64_t dropped =
        *(const int64_t *)weft__handle_counted(handle, handle->routing.dropped_rows);
    const int64_t unplaced =
        *(const int64_t *)weft__handle_counted(handle, handle->expansion.dropped_rows);
    if (num_dropped != NULL) /* of rows that are counted so */
        *num_dropped = (int32_t)(dropped > unplaced ? dropped : unplaced);
    if (dropped > 0)
        return weft__error(
            WEFT_ERROR_CAPACITY,
            "capacity was %lld for the %d rows that came to rank %d: %lld were dropped",
            (long long)(num_rows - dropped), num_rows, handle->ep->comm->rank, (long long)dropped);
    if (unplaced > 0)
        return weft__error(WEFT_ERROR_CAPACITY,
                           "expanded_capacity did not suffice for the %d expanded rows of rank %d: "
                           "%lld choices have none",
                           counted_int32(handle, handle->expansion.num_rows),
                           handle->ep->comm->rank, (long long)unplaced);
    return WEFT_OK;
}
