/* SPDX-License-Identifier: MIT */
#include "api/ep_extents.h"

#include "api/overlap.h"
#include "ep/planes.h"

enum { MAX_EXTENTS = 2 * WEFT_MAX_PLANES + 8 };

struct list {
    struct weft__extent extents[MAX_EXTENTS];
    int32_t num_extents;
};

static void add(struct list *list, struct weft__extent extent)
{
    list->extents[list->num_extents++] = extent;
}

static void add_read(struct list *list, const char *name, const void *ptr, uint64_t num_rows,
                     uint64_t row_bytes)
{
    add(list, weft__extent_of(name, WEFT__EXTENT_READ, ptr, num_rows, row_bytes));
}

static void add_written(struct list *list, const char *name, const void *ptr, uint64_t num_rows,
                        uint64_t row_bytes)
{
    add(list, weft__extent_of(name, WEFT__EXTENT_WRITTEN, ptr, num_rows, row_bytes));
}

static weft_result check(const struct list *list)
{
    return weft__check_overlaps(list->extents, list->num_extents);
}

weft_result weft__check_layout_memory(const weft_ep_handle *handle, const weft_ep_layout_args *args)
{
    const weft_ep *ep = handle->ep;
    const uint64_t num_ranks = (uint64_t)ep->comm->num_ranks;
    const uint64_t num_tokens = (uint64_t)args->num_tokens;
    struct list list = {.num_extents = 0};
    add_read(&list, "topk_idx", args->topk_idx, num_tokens,
             (uint64_t)handle->routing.num_topk * wp_dtype_bytes(args->index_type));
    add_read(&list, "tokens_to_ranks", args->tokens_to_ranks, num_tokens, num_ranks);
    add_read(&list, "selections_per_expert", args->selections_per_expert,
             (uint64_t)handle->placement->num_entries, sizeof *args->selections_per_expert);
    add_written(&list, "num_tokens_per_rank", args->num_tokens_per_rank, num_ranks,
                sizeof *args->num_tokens_per_rank);
    add_written(&list, "num_tokens_per_node", args->num_tokens_per_node,
                (uint64_t)ep->comm->topology.num_nodes, sizeof *args->num_tokens_per_node);
    add_written(&list, "num_tokens_per_expert", args->num_tokens_per_expert,
                (uint64_t)handle->placement->host.num_experts, sizeof *args->num_tokens_per_expert);
    add_written(&list, "is_token_in_rank", args->is_token_in_rank, num_tokens, num_ranks);
    return check(&list);
}

static void add_plane(struct list *list, const weft_plane *plane, int32_t i, uint64_t num_tokens,
                      uint64_t capacity)
{
    add(list, (struct weft__extent){"planes", i, ".src", WEFT__EXTENT_READ, plane->src, num_tokens,
                                    plane->row_bytes, plane->src_stride_bytes});
    add(list, (struct weft__extent){"planes", i, ".dst", WEFT__EXTENT_WRITTEN, plane->dst, capacity,
                                    weft__plane_received_bytes(plane), 0});
    if (weft__plane_is_quantised(plane))
        add(list, (struct weft__extent){"planes", i, ".scales", WEFT__EXTENT_WRITTEN, plane->scales,
                                        capacity, weft__plane_scales_bytes(plane), 0});
}

weft_result weft__check_dispatch_memory(const weft_ep_handle *handle,
                                        const weft_ep_dispatch_args *args)
{
    const uint64_t num_tokens = (uint64_t)handle->routing.num_tokens;
    const uint64_t num_topk = (uint64_t)handle->routing.num_topk;
    const uint64_t capacity = (uint64_t)args->capacity;
    const uint64_t ids_bytes = num_topk * wp_dtype_bytes(args->index_type);
    struct list list = {.num_extents = 0};
    for (int32_t i = 0; i < args->num_planes; i++)
        add_plane(&list, &args->planes[i], i, num_tokens, capacity);
    add_read(&list, "topk_idx", args->topk_idx, num_tokens, ids_bytes);
    add_read(&list, "topk_weights", args->topk_weights, num_tokens, num_topk * sizeof(float));
    add_written(&list, "recv_topk_idx", args->recv_topk_idx, capacity, ids_bytes);
    add_written(&list, "recv_topk_weights", args->recv_topk_weights, capacity,
                num_topk * sizeof(float));
    add_written(&list, "recv_src_token", args->recv_src_token, capacity,
                sizeof *args->recv_src_token);
    return check(&list);
}

weft_result weft__check_combine_memory(const weft_ep_handle *handle,
                                       const weft_ep_combine_args *args)
{
    const uint64_t num_tokens = (uint64_t)handle->routing.num_tokens;
    const uint64_t weights_bytes = (uint64_t)handle->routing.num_topk * sizeof(float);
    const uint64_t row_bytes = (uint64_t)args->hidden * wp_dtype_bytes(args->dtype);
    const uint64_t capacity = (uint64_t)args->capacity;
    struct list list = {.num_extents = 0};
    add_read(&list, "x", args->x, capacity, row_bytes);
    add_read(&list, "topk_weights", args->topk_weights, capacity, weights_bytes);
    for (int32_t i = 0; i < 2; i++)
        add(&list, (struct weft__extent){"bias", i, "", WEFT__EXTENT_READ, args->bias[i],
                                         num_tokens, row_bytes, 0});
    add_written(&list, "out", args->out, num_tokens, row_bytes);
    add_written(&list, "out_topk_weights", args->out_topk_weights, num_tokens, weights_bytes);
    return check(&list);
}

weft_result weft__check_expand_memory(const weft_ep_handle *handle, const weft_ep_expand_args *args)
{
    const uint64_t num_topk = (uint64_t)handle->routing.num_topk;
    const uint64_t capacity = (uint64_t)args->capacity;
    const uint64_t expanded = (uint64_t)args->expanded_capacity;
    const int is_again = args->recv_topk_idx == NULL;
    struct list list = {.num_extents = 0};
    for (int32_t i = 0; i < args->num_planes; i++) {
        const weft_plane *plane = &args->planes[i];
        add(&list, (struct weft__extent){"planes", i, ".src", WEFT__EXTENT_READ, plane->src,
                                         capacity, plane->row_bytes, plane->src_stride_bytes});
        add(&list, (struct weft__extent){"planes", i, ".dst", WEFT__EXTENT_WRITTEN, plane->dst,
                                         expanded, plane->row_bytes, 0});
    }
    add_read(&list, "recv_topk_idx", args->recv_topk_idx, capacity,
             num_topk * wp_dtype_bytes(args->index_type));
    add(&list, weft__extent_of("choice_rows", is_again ? WEFT__EXTENT_READ : WEFT__EXTENT_WRITTEN,
                               args->choice_rows, capacity, num_topk * sizeof(int32_t)));
    add_read(&list, "recv_topk_weights", args->recv_topk_weights, capacity,
             num_topk * sizeof(float));
    add_written(&list, "row_weights", args->row_weights, expanded, sizeof(float));
    add_written(&list, "src_rows", args->src_rows, expanded, sizeof(int32_t));
    return check(&list);
}

weft_result weft__check_reduce_memory(const weft_ep_handle *handle, const weft_ep_reduce_args *args)
{
    const uint64_t num_topk = (uint64_t)handle->routing.num_topk;
    const uint64_t capacity = (uint64_t)args->capacity;
    const uint64_t expanded = (uint64_t)args->expanded_capacity;
    const weft_dtype out_dtype = args->out_dtype == WEFT_DTYPE_NONE ? args->dtype : args->out_dtype;
    struct list list = {.num_extents = 0};
    add_read(&list, "rows", args->rows, expanded,
             (uint64_t)args->hidden * wp_dtype_bytes(args->dtype));
    add_read(&list, "choice_rows", args->choice_rows, capacity, num_topk * sizeof(int32_t));
    add_read(&list, "row_weights", args->row_weights, expanded, sizeof(float));
    add_written(&list, "out", args->out, capacity,
                (uint64_t)args->hidden * wp_dtype_bytes(out_dtype));
    add_written(&list, "topk_weights", args->topk_weights, capacity, num_topk * sizeof(float));
    return check(&list);
}

weft_result weft__check_move_memory(const weft_plane *planes, int32_t num_planes,
                                    struct weft__move_rows rows)
{
    struct list list = {.num_extents = 0};
    for (int32_t i = 0; i < num_planes; i++) {
        const weft_plane *plane = &planes[i];
        add(&list, (struct weft__extent){"planes", i, ".src", WEFT__EXTENT_READ, plane->src,
                                         rows.src, plane->row_bytes, 0});
        add(&list, (struct weft__extent){"planes", i, ".dst", WEFT__EXTENT_WRITTEN, plane->dst,
                                         rows.dst, plane->row_bytes, 0});
    }
    return check(&list);
}
