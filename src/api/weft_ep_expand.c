/* SPDX-License-Identifier: MIT */
/* The stream operations between dispatch and combine. */
#include "api/ep_checks.h"
#include "api/ep_extents.h"
#include "api/structs.h"
#include "ep/planes.h"

/* Without a layout the rows are the caller's own. */
static weft_result check_operation(const weft_ep_handle *handle, weft_stream *stream)
{
    WEFT__TRY(weft__ep_check_operation(handle, stream, WEFT__HANDLE_EMPTY));
    return handle->state == WEFT__HANDLE_EMPTY
               ? WEFT_OK
               : weft__ep_check_state(handle, WEFT__HANDLE_NOTIFIED);
}

/* Rows of the expanded layout are counted in int32, with all gaps (weft__ep_most_tokens). */
static weft_result check_gaps(const weft_ep_handle *handle, int32_t capacity)
{
    const int32_t most_rows = (INT32_MAX - WEFT__EP_MAX_ALIGNMENT) / handle->routing.num_topk;
    if (handle->state == WEFT__HANDLE_EMPTY)
        WEFT__TRY(weft__check_range(capacity, 0, most_rows, "capacity"));
    const int64_t most = WEFT__EP_MAX_ALIGNMENT;
    const int64_t num_rows =
        (int64_t)handle->expansion.num_experts * (handle->expert_alignment - 1);
    if (num_rows <= most)
        return WEFT_OK;
    return weft__invalid("handle: its expert_alignment of %d makes gaps of up to %lld rows behind "
                         "the %d experts of rank %d, allowed are %lld",
                         handle->expert_alignment, (long long)num_rows,
                         handle->expansion.num_experts, handle->ep->comm->rank, (long long)most);
}

/* A quantised plane has been told to dispatch: here its rows and scales are bytes. */
static weft_result check_plane(const weft_ep_handle *handle, const weft_plane *plane, int32_t i,
                               const weft_ep_expand_args *args)
{
    if (plane->row_bytes < 1 || plane->row_bytes > WEFT_MAX_ROW_BYTES)
        return weft__invalid("planes[%d].row_bytes is %llu, allowed are 1..%d", i,
                             (unsigned long long)plane->row_bytes, WEFT_MAX_ROW_BYTES);
    if (!weft__plane_is_plain(plane))
        return weft__invalid("planes[%d]: its scales and the fields behind must be 0: rows that "
                             "dispatch has quantised are one plane here, their scales another",
                             i);
    WEFT__TRY(weft__check_array(plane->src, args->capacity, weft__plane_names[i].src));
    WEFT__TRY(weft__check_array(plane->dst, args->expanded_capacity, weft__plane_names[i].dst));
    WEFT__TRY(weft__ep_check_pointer(handle, plane->src, weft__plane_names[i].src));
    return weft__ep_check_pointer(handle, plane->dst, weft__plane_names[i].dst);
}

static weft_result check_choices(const weft_ep_handle *handle, const weft_ep_expand_args *args)
{
    WEFT__TRY(weft__check_enum(WEFT__ENUM_DTYPE, (int32_t)args->index_type,
                               args->recv_topk_idx == NULL ? WEFT_DTYPE_NONE : WEFT_INT32,
                               WEFT_INT64, "index_type"));
    WEFT__TRY(weft__check_array(args->choice_rows, args->capacity, "choice_rows"));
    if (args->recv_topk_idx == NULL && args->capacity > 0 && !handle->is_expanded)
        return weft__invalid("recv_topk_idx is NULL, allowed only after a weft_ep_expand that had "
                             "it, since the handle's last weft_ep_notify");
    WEFT__TRY(weft__ep_check_pointer(handle, args->recv_topk_idx, "recv_topk_idx"));
    return weft__ep_check_pointer(handle, args->choice_rows, "choice_rows");
}

static weft_result check_row_notes(const weft_ep_handle *handle, const weft_ep_expand_args *args)
{
    if (args->recv_topk_weights != NULL || args->row_weights != NULL) {
        WEFT__TRY(weft__check_array(args->recv_topk_weights, args->capacity, "recv_topk_weights"));
        WEFT__TRY(weft__check_array(args->row_weights, args->expanded_capacity, "row_weights"));
    }
    WEFT__TRY(weft__ep_check_pointer(handle, args->recv_topk_weights, "recv_topk_weights"));
    WEFT__TRY(weft__ep_check_pointer(handle, args->row_weights, "row_weights"));
    return weft__ep_check_pointer(handle, args->src_rows, "src_rows");
}

weft_result weft_ep_expand(weft_ep_handle *handle, const weft_ep_expand_args *user_args,
                           weft_stream *stream)
{
    weft_ep_expand_args args;
    weft_plane planes[WEFT_MAX_PLANES];
    WEFT__TRY(check_operation(handle, stream));
    WEFT__TRY(WEFT__READ(weft_ep_expand_args, &args, user_args, "args"));
    WEFT__TRY(weft__check_range(args.num_planes, 0, WEFT_MAX_PLANES, "num_planes"));
    WEFT__TRY(WEFT__READ_ARRAY(weft_plane, planes, args.planes, args.num_planes, "planes"));
    args.planes = planes;
    WEFT__TRY(weft__check_range(args.capacity, 0, INT32_MAX, "capacity"));
    WEFT__TRY(weft__check_range(args.expanded_capacity, 0, INT32_MAX, "expanded_capacity"));
    WEFT__TRY(weft__check_enum(WEFT__ENUM_EP_GAPS, (int32_t)args.gaps, WEFT_GAPS_LEFT,
                               WEFT_GAPS_ZEROED, "gaps"));
    WEFT__TRY(weft__ep_check_num_blocks(handle, args.num_blocks));
    WEFT__TRY(check_gaps(handle, args.capacity));
    for (int32_t i = 0; i < args.num_planes; i++)
        WEFT__TRY(check_plane(handle, &planes[i], i, &args));
    WEFT__TRY(check_choices(handle, &args));
    WEFT__TRY(check_row_notes(handle, &args));
    WEFT__TRY(weft__check_expand_memory(handle, &args));
    weft__current_call = WEFT__CALL_EP_EXPAND;
    return weft__ep_expand(handle, &args, stream);
}

static weft_result check_sums(const weft_ep_handle *handle, const weft_ep_reduce_args *args)
{
    WEFT__TRY(
        weft__check_enum(WEFT__ENUM_DTYPE, (int32_t)args->dtype, WEFT_BF16, WEFT_FP32, "dtype"));
    if (args->out_dtype != WEFT_DTYPE_NONE && args->out_dtype != args->dtype &&
        args->out_dtype != WEFT_FP32)
        return weft__invalid(
            "out_dtype is %s (%d), allowed are dtype, which is %s, WEFT_FP32 and 0",
            weft__constant_name(WEFT__ENUM_DTYPE, args->out_dtype), (int)args->out_dtype,
            weft__constant_name(WEFT__ENUM_DTYPE, args->dtype));
    const weft_dtype largest = args->out_dtype == WEFT_FP32 ? WEFT_FP32 : args->dtype;
    WEFT__TRY(weft__check_range(args->hidden, 1,
                                WEFT_MAX_ROW_BYTES / (int64_t)wp_dtype_bytes(largest), "hidden"));
    WEFT__TRY(weft__check_array(args->rows, args->expanded_capacity, "rows"));
    WEFT__TRY(weft__check_array(args->out, args->capacity, "out"));
    WEFT__TRY(weft__ep_check_pointer(handle, args->rows, "rows"));
    return weft__ep_check_pointer(handle, args->out, "out");
}

static weft_result check_weights(const weft_ep_handle *handle, const weft_ep_reduce_args *args)
{
    if (args->row_weights == NULL && args->topk_weights == NULL)
        return WEFT_OK;
    WEFT__TRY(weft__check_array(args->row_weights, args->expanded_capacity, "row_weights"));
    WEFT__TRY(weft__check_array(args->topk_weights, args->capacity, "topk_weights"));
    WEFT__TRY(weft__ep_check_pointer(handle, args->row_weights, "row_weights"));
    return weft__ep_check_pointer(handle, args->topk_weights, "topk_weights");
}

weft_result weft_ep_reduce(weft_ep_handle *handle, const weft_ep_reduce_args *user_args,
                           weft_stream *stream)
{
    weft_ep_reduce_args args;
    WEFT__TRY(check_operation(handle, stream));
    WEFT__TRY(WEFT__READ(weft_ep_reduce_args, &args, user_args, "args"));
    WEFT__TRY(weft__check_range(args.capacity, 0, INT32_MAX, "capacity"));
    WEFT__TRY(weft__check_range(args.expanded_capacity, 0, INT32_MAX, "expanded_capacity"));
    WEFT__TRY(weft__ep_check_num_blocks(handle, args.num_blocks));
    WEFT__TRY(weft__check_unused((uint64_t)args.reserved, "reserved"));
    WEFT__TRY(check_sums(handle, &args));
    WEFT__TRY(weft__check_array(args.choice_rows, args.capacity, "choice_rows"));
    WEFT__TRY(weft__ep_check_pointer(handle, args.choice_rows, "choice_rows"));
    WEFT__TRY(check_weights(handle, &args));
    WEFT__TRY(weft__check_reduce_memory(handle, &args));
    weft__current_call = WEFT__CALL_EP_REDUCE;
    return weft__ep_reduce(handle, &args, stream);
}
