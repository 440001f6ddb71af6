/* SPDX-License-Identifier: MIT */
/* The expanded layout: launches of what one rank does with the rows that dispatch has delivered. */
#include "ep/ep.h"
#include "programs/ep/expand_rows.h"
#include "programs/ep/place_choices.h"
#include "programs/ep/reduce_rows.h"

/* NULL: no notify tells of them, they are the caller's own. */
static const int32_t *recv_rows(const weft_ep_handle *handle)
{
    return handle->state == WEFT__HANDLE_EMPTY ? NULL : handle->routing.recv_rows;
}

static struct wp_choices choices_of(const weft_ep_handle *handle, int32_t capacity,
                                    int32_t expanded_capacity, const int32_t *choice_rows)
{
    return (struct wp_choices){.num_topk = handle->routing.num_topk,
                               .capacity = capacity,
                               .expanded_capacity = expanded_capacity,
                               .recv_rows = recv_rows(handle),
                               .rows = choice_rows};
}

static weft_result launch_placing(const weft_ep_handle *handle, enum wp_placing placing,
                                  const weft_ep_expand_args *args, weft_stream *stream)
{
    const weft_ep *ep = handle->ep;
    const struct weft__grid grid =
        weft__ep_grid(ep, &(struct weft__work){.num_tokens = args->capacity});
    const int32_t num_warps = grid.num_blocks * grid.num_warps;
    const int32_t most_chunks = handle->expansion.num_chunks;
    const struct wp_place_choices_args program_args = {
        .placing = placing,
        .num_topk = handle->routing.num_topk,
        .capacity = args->capacity,
        .expanded_capacity = args->expanded_capacity,
        .expert_alignment = handle->expert_alignment,
        .num_chunks = num_warps < most_chunks ? num_warps : most_chunks,
        .index_type = args->index_type,
        .expansion = handle->expansion,
        .recv_rows = recv_rows(handle),
        .recv_expert_rows = handle->routing.recv_expert_rows,
        .recv_topk_idx = args->recv_topk_idx,
        .choice_rows = args->choice_rows,
        .num_blocks_done = handle->num_blocks_done,
    };
    return weft__exchange_launch(ep->exchange, stream, WP_PROGRAM_place_choices, grid,
                                 &program_args, sizeof program_args);
}

static weft_result place_choices(weft_ep_handle *handle, const weft_ep_expand_args *args,
                                 weft_stream *stream)
{
    WEFT__TRY(launch_placing(handle, WP_COUNT_CHOICES, args, stream));
    WEFT__TRY(launch_placing(handle, WP_PLACE_CHOICES, args, stream));
    handle->is_expanded = 1;
    return WEFT_OK;
}

weft_result weft__ep_expand(weft_ep_handle *handle, const weft_ep_expand_args *args,
                            weft_stream *stream)
{
    const weft_ep *ep = handle->ep;
    struct wp_expand_rows_args program_args = {
        .choices = choices_of(handle, args->capacity, args->expanded_capacity, args->choice_rows),
        .expansion = handle->expansion,
        .recv_expert_rows = handle->routing.recv_expert_rows,
        .num_planes = args->num_planes,
        .gaps = args->gaps,
        .recv_topk_weights = args->recv_topk_weights,
        .row_weights = args->row_weights,
        .src_rows = args->src_rows,
    };
    struct weft__work work = {.kind = WEFT__WORK_PUSH_TENSOR, .num_tokens = args->capacity};
    for (int32_t i = 0; i < args->num_planes; i++) {
        const weft_plane *plane = &args->planes[i];
        program_args.planes[i] = (struct wp_expanded_plane){
            .src = plane->src,
            .dst = plane->dst,
            .row_bytes = plane->row_bytes,
            .src_stride_bytes =
                plane->src_stride_bytes == 0 ? plane->row_bytes : plane->src_stride_bytes,
        };
        work.row_bytes = plane->row_bytes > work.row_bytes ? plane->row_bytes : work.row_bytes;
    }
    if (args->recv_topk_idx != NULL || args->capacity == 0)
        WEFT__TRY(place_choices(handle, args, stream));
    return weft__exchange_launch(ep->exchange, stream, WP_PROGRAM_expand_rows,
                                 weft__ep_grid_of_call(ep, &work, args->num_blocks), &program_args,
                                 sizeof program_args);
}

weft_result weft__ep_reduce(weft_ep_handle *handle, const weft_ep_reduce_args *args,
                            weft_stream *stream)
{
    const weft_ep *ep = handle->ep;
    const struct wp_reduce_rows_args program_args = {
        .choices = choices_of(handle, args->capacity, args->expanded_capacity, args->choice_rows),
        .dtype = args->dtype,
        .out_dtype = args->out_dtype == WEFT_DTYPE_NONE ? args->dtype : args->out_dtype,
        .row_bytes = (uint64_t)args->hidden * wp_dtype_bytes(args->dtype),
        .rows = args->rows,
        .out = args->out,
        .row_weights = args->row_weights,
        .topk_weights = args->topk_weights,
    };
    const struct weft__work work = {.kind = WEFT__WORK_PULL_TENSOR,
                                    .num_tokens = args->capacity,
                                    .row_bytes = program_args.row_bytes};
    return weft__exchange_launch(ep->exchange, stream, WP_PROGRAM_reduce_rows,
                                 weft__ep_grid_of_call(ep, &work, args->num_blocks), &program_args,
                                 sizeof program_args);
}
