/* SPDX-License-Identifier: MIT */
#include "layer.h"

#include <stdlib.h>

#include "row.h"
#include "try.h"

/* What lies in the heap for each row that this rank received. */
struct layer_rows {
    uint16_t *x, *y, *dy, *dx; /* [num_rows][hidden] */
    int32_t *topk_idx;         /* [num_rows][num_topk] local experts or -1 */
    float *topk_weights, *dweights;
};

struct layer {
    struct shape shape;
    weft_ep *ep;
    weft_ep_handle *handle;
    weft_arena *arena;
    weft_stream *stream;
    float *parameters; /* [num_local_experts][expert_num_parameters] */
    float *dparameters;
    struct row_workspace workspace;
    int32_t num_rows;
    struct layer_rows rows;
};

static weft_result fill_parameters(struct layer *layer, int32_t rank)
{
    const struct shape *shape = &layer->shape;
    const int32_t num_local = weft_ep_num_local_experts(layer->ep, rank);
    const size_t num_parameters = expert_num_parameters(shape);
    layer->parameters = malloc(((size_t)num_local * num_parameters + 1) * sizeof(float));
    if (layer->parameters == NULL)
        return WEFT_ERROR_OUT_OF_MEMORY;
    for (int32_t i = 0; i < num_local; i++)
        expert_fill(shape, weft_ep_global_expert(layer->ep, rank, i),
                    layer->parameters + (size_t)i * num_parameters);
    return WEFT_OK;
}

static weft_result create_arena(struct layer *layer, weft_comm *comm)
{
    const uint64_t row_bytes = (uint64_t)layer->shape.hidden * sizeof(uint16_t);
    weft_ep_size_args args = WEFT_INIT(weft_ep_size_args);
    args.max_tokens_per_rank = layer->shape.num_tokens;
    args.num_topk = layer->shape.num_topk;
    args.num_planes = 5; /* the arrays of layer_rows that are not outputs of dispatch count too */
    args.plane_row_bytes = (const uint64_t[]){row_bytes, row_bytes, row_bytes, row_bytes,
                                              (uint64_t)layer->shape.num_topk * sizeof(float)};
    args.index_type = WEFT_INT32;
    args.with_topk = 1;
    weft_ep_sizes sizes = WEFT_INIT(weft_ep_sizes);
    TRY(weft_ep_query_sizes(layer->ep, &args, &sizes));
    return weft_arena_create(comm, sizes.arena_bytes, &layer->arena);
}

static weft_result layer_init(struct layer *layer, weft_comm *comm)
{
    const struct shape *shape = &layer->shape;
    weft_ep_config ep_config = WEFT_INIT(weft_ep_config);
    ep_config.num_experts = shape->num_experts;
    ep_config.max_topk = shape->num_topk;
    TRY(weft_ep_create(comm, &ep_config, &layer->ep));
    weft_ep_handle_config handle_config = WEFT_INIT(weft_ep_handle_config);
    handle_config.max_tokens = shape->num_tokens;
    handle_config.num_topk = shape->num_topk;
    TRY(weft_ep_handle_create(layer->ep, &handle_config, &layer->handle));
    TRY(weft_stream_create(comm, &layer->stream));
    TRY(create_arena(layer, comm));
    TRY(row_workspace_init(&layer->workspace, shape));
    return fill_parameters(layer, weft_comm_rank(comm));
}

weft_result layer_create(weft_comm *comm, const struct shape *shape, float *dparameters,
                         struct layer **layer)
{
    struct layer *created = calloc(1, sizeof(*created));
    if (created == NULL)
        return WEFT_ERROR_OUT_OF_MEMORY;
    created->shape = *shape;
    created->dparameters = dparameters;
    const weft_result result = layer_init(created, comm);
    if (result != WEFT_OK) {
        layer_destroy(created);
        return result;
    }
    *layer = created;
    return WEFT_OK;
}

void layer_destroy(struct layer *layer)
{
    if (layer == NULL)
        return;
    if (layer->stream != NULL)
        weft_stream_destroy(layer->stream);
    if (layer->handle != NULL)
        weft_ep_handle_destroy(layer->handle);
    if (layer->ep != NULL)
        weft_ep_destroy(layer->ep);
    if (layer->arena != NULL)
        weft_arena_destroy(layer->arena);
    row_workspace_destroy(&layer->workspace);
    free(layer->parameters);
    free(layer);
}

int32_t layer_num_rows(const struct layer *layer)
{
    return layer->num_rows;
}

static weft_result alloc_rows(struct layer *layer, size_t num_rows)
{
    const size_t row_bytes = num_rows * (size_t)layer->shape.hidden * sizeof(uint16_t);
    const size_t topk_bytes = num_rows * (size_t)layer->shape.num_topk * sizeof(float);
    struct layer_rows *rows = &layer->rows;
    TRY(weft_arena_reset(layer->arena));
    TRY(weft_arena_alloc(layer->arena, row_bytes, (void **)&rows->x));
    TRY(weft_arena_alloc(layer->arena, row_bytes, (void **)&rows->y));
    TRY(weft_arena_alloc(layer->arena, row_bytes, (void **)&rows->dy));
    TRY(weft_arena_alloc(layer->arena, row_bytes, (void **)&rows->dx));
    TRY(weft_arena_alloc(layer->arena, topk_bytes, (void **)&rows->topk_idx));
    TRY(weft_arena_alloc(layer->arena, topk_bytes, (void **)&rows->topk_weights));
    return weft_arena_alloc(layer->arena, topk_bytes, (void **)&rows->dweights);
}

/* Learns which rows come to this rank, and makes room for them. */
static weft_result exchange_routing(struct layer *layer, const struct batch *batch)
{
    weft_ep_layout_args args = WEFT_INIT(weft_ep_layout_args);
    args.num_tokens = batch->num_tokens;
    args.index_type = WEFT_INT32;
    args.topk_idx = batch->topk_idx;
    TRY(weft_ep_layout(layer->handle, &args, layer->stream));
    TRY(weft_ep_notify(layer->handle, layer->stream));
    weft_ep_counts counts = WEFT_INIT(weft_ep_counts);
    TRY(weft_ep_wait_counts(layer->handle, &counts));
    layer->num_rows = counts.num_recv_tokens;
    return alloc_rows(layer, (size_t)counts.num_recv_tokens);
}

/* Sends the rows of this rank's tokens to their experts' ranks. With batch: their choices too. */
static weft_result dispatch(struct layer *layer, const uint16_t *src, uint16_t *dst,
                            const struct batch *batch)
{
    const weft_plane plane = {.size = sizeof(weft_plane),
                              .src = src,
                              .dst = dst,
                              .row_bytes = (uint64_t)layer->shape.hidden * sizeof(uint16_t)};
    weft_ep_dispatch_args args = WEFT_INIT(weft_ep_dispatch_args);
    args.num_planes = 1;
    args.planes = &plane;
    args.capacity = layer->num_rows;
    if (batch != NULL) {
        args.index_type = WEFT_INT32;
        args.topk_idx = batch->topk_idx;
        args.topk_weights = batch->topk_weights;
        args.recv_topk_idx = layer->rows.topk_idx;
        args.recv_topk_weights = layer->rows.topk_weights;
    }
    TRY(weft_ep_dispatch(layer->handle, &args, layer->stream));
    return weft_stream_synchronize(layer->stream);
}

/* Sums the answers of all ranks at each token's owner. With dweights: the weights' gradients too. */
static weft_result combine(struct layer *layer, const uint16_t *x, uint16_t *out, float *dweights)
{
    weft_ep_combine_args args = WEFT_INIT(weft_ep_combine_args);
    args.dtype = WEFT_BF16;
    args.hidden = layer->shape.hidden;
    args.capacity = layer->num_rows;
    args.x = x;
    args.out = out;
    if (dweights != NULL) {
        args.topk_weights = layer->rows.dweights;
        args.out_topk_weights = dweights;
    }
    TRY(weft_ep_combine(layer->handle, &args, layer->stream));
    return weft_stream_synchronize(layer->stream);
}

static void find_choices(const struct layer *layer, int32_t row, struct row_choices *choices)
{
    const int32_t num_topk = layer->shape.num_topk;
    const size_t num_parameters = expert_num_parameters(&layer->shape);
    choices->num_choices = 0;
    for (int32_t k = 0; k < num_topk; k++) {
        const size_t i = (size_t)row * (size_t)num_topk + (size_t)k;
        if (layer->rows.topk_idx[i] < 0)
            continue;
        const size_t offset = (size_t)layer->rows.topk_idx[i] * num_parameters;
        choices->choices[choices->num_choices++] =
            (struct row_choice){.k = k,
                                .weight = layer->rows.topk_weights[i],
                                .parameters = layer->parameters + offset,
                                .dparameters = layer->dparameters + offset};
    }
}

weft_result layer_forward(struct layer *layer, const struct batch *batch, uint16_t *y)
{
    TRY(exchange_routing(layer, batch));
    TRY(dispatch(layer, batch->x, layer->rows.x, batch));
    for (int32_t row = 0; row < layer->num_rows; row++) {
        const size_t offset = (size_t)row * (size_t)layer->shape.hidden;
        struct row_choices choices;
        find_choices(layer, row, &choices);
        row_forward(&layer->shape, &choices, &layer->workspace, layer->rows.x + offset,
                    layer->rows.y + offset);
    }
    return combine(layer, layer->rows.y, y, NULL);
}

/* The gradient of combine is a dispatch along the same routing, that of dispatch a combine. */
weft_result layer_backward(struct layer *layer, const uint16_t *dy, uint16_t *dx, float *dweights)
{
    const struct layer_rows *rows = &layer->rows;
    TRY(dispatch(layer, dy, rows->dy, NULL));
    for (int32_t row = 0; row < layer->num_rows; row++) {
        const size_t offset = (size_t)row * (size_t)layer->shape.hidden;
        struct row_choices choices;
        find_choices(layer, row, &choices);
        row_backward(&layer->shape, &choices, &layer->workspace, rows->x + offset,
                     rows->dy + offset, rows->dx + offset,
                     rows->dweights + (size_t)row * (size_t)layer->shape.num_topk);
    }
    return combine(layer, rows->dx, dx, dweights);
}
