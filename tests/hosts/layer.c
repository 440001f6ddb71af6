/* SPDX-License-Identifier: MIT */
#include "layer.h"

#include <stdlib.h>

#include "workload/try.h"

enum { NUM_TOKENS = 48, HIDDEN = 1500, NUM_TOPK = 3, EXPERTS_PER_RANK = 3 };

struct layer {
    weft_comm *comm;
    int32_t rank, num_ranks, capacity;
    weft_stream *stream;
    weft_ep *ep;
    weft_ep_handle *handle;
    float *rows; /* in the heap */
    float x[NUM_TOKENS][HIDDEN], out[NUM_TOKENS][HIDDEN];
    int32_t topk_idx[NUM_TOKENS][NUM_TOPK];
    int32_t num_copies[NUM_TOKENS]; /* ranks that a token goes to */
};

static weft_result open_objects(struct layer *layer)
{
    weft_ep_config config = WEFT_INIT(weft_ep_config);
    weft_ep_handle_config handle_config = WEFT_INIT(weft_ep_handle_config);
    void *rows;
    config.num_experts = EXPERTS_PER_RANK * layer->num_ranks;
    config.max_topk = NUM_TOPK;
    handle_config.max_tokens = NUM_TOKENS;
    handle_config.num_topk = NUM_TOPK;
    TRY(weft_stream_create(layer->comm, &layer->stream));
    TRY(weft_ep_create(layer->comm, &config, &layer->ep));
    TRY(weft_ep_handle_create(layer->ep, &handle_config, &layer->handle));
    TRY(weft_heap_alloc(layer->comm, (size_t)layer->capacity * HIDDEN * sizeof(float), &rows));
    layer->rows = rows;
    return WEFT_OK;
}

struct layer *layer_open(weft_comm *comm)
{
    struct layer *layer = calloc(1, sizeof(*layer));
    if (layer == NULL)
        return NULL;
    layer->comm = comm;
    layer->rank = weft_comm_rank(comm);
    layer->num_ranks = weft_comm_num_ranks(comm);
    layer->capacity = NUM_TOKENS * layer->num_ranks;
    if (open_objects(layer) == WEFT_OK)
        return layer;
    layer_close(layer);
    return NULL;
}

void layer_close(struct layer *layer)
{
    if (layer->stream != NULL)
        weft_stream_destroy(layer->stream);
    if (layer->handle != NULL)
        weft_ep_handle_destroy(layer->handle);
    if (layer->ep != NULL)
        weft_ep_destroy(layer->ep);
    weft_heap_free(layer->comm, layer->rows);
    free(layer);
}

/* Small whole numbers: sums of them are exact, in whatever order and however often they are
 * rounded. */
static float element(int32_t round, int32_t rank, int32_t token, int32_t h)
{
    return (float)((round * 31 + rank * 17 + token * 5 + h * 3) % 41 - 20);
}

static int32_t count_ranks(const int32_t *experts)
{
    int32_t num_ranks = 0;
    for (int32_t k = 0; k < NUM_TOPK; k++) {
        int32_t is_new = 1;
        for (int32_t earlier = 0; earlier < k; earlier++)
            if (experts[earlier] / EXPERTS_PER_RANK == experts[k] / EXPERTS_PER_RANK)
                is_new = 0;
        num_ranks += is_new;
    }
    return num_ranks;
}

static void fill(struct layer *layer, int32_t round)
{
    const int32_t num_experts = EXPERTS_PER_RANK * layer->num_ranks;
    for (int32_t token = 0; token < NUM_TOKENS; token++) {
        const int32_t first = (round * 7 + layer->rank * 11 + token * 13) % num_experts;
        for (int32_t k = 0; k < NUM_TOPK; k++)
            layer->topk_idx[token][k] = (first + k * (1 + token % 3)) % num_experts;
        layer->num_copies[token] = count_ranks(layer->topk_idx[token]);
        for (int32_t h = 0; h < HIDDEN; h++)
            layer->x[token][h] = element(round, layer->rank, token, h);
    }
}

static weft_result enqueue(struct layer *layer)
{
    weft_ep_layout_args layout = WEFT_INIT(weft_ep_layout_args);
    weft_ep_dispatch_args dispatch = WEFT_INIT(weft_ep_dispatch_args);
    weft_ep_combine_args combine = WEFT_INIT(weft_ep_combine_args);
    const weft_plane plane = {.size = sizeof(weft_plane),
                              .src = layer->x,
                              .dst = layer->rows,
                              .row_bytes = sizeof(layer->x[0])};
    layout.num_tokens = NUM_TOKENS;
    layout.index_type = WEFT_INT32;
    layout.topk_idx = layer->topk_idx;
    dispatch.num_planes = 1;
    dispatch.planes = &plane;
    dispatch.capacity = layer->capacity;
    combine.dtype = WEFT_FP32;
    combine.hidden = HIDDEN;
    combine.capacity = layer->capacity;
    combine.x = layer->rows;
    combine.out = layer->out;
    TRY(weft_ep_layout(layer->handle, &layout, layer->stream));
    TRY(weft_ep_notify(layer->handle, layer->stream));
    TRY(weft_ep_dispatch(layer->handle, &dispatch, layer->stream));
    return weft_ep_combine(layer->handle, &combine, layer->stream);
}

weft_result layer_run(struct layer *layer, int32_t round, int64_t *num_wrong)
{
    fill(layer, round);
    TRY(enqueue(layer));
    TRY(weft_stream_synchronize(layer->stream));
    *num_wrong = 0;
    for (int32_t token = 0; token < NUM_TOKENS; token++)
        for (int32_t h = 0; h < HIDDEN; h++)
            *num_wrong += layer->out[token][h] !=
                          (float)layer->num_copies[token] * element(round, layer->rank, token, h);
    return WEFT_OK;
}
