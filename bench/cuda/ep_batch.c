/* SPDX-License-Identifier: MIT */
#include "ep_batch.h"

#include <stdlib.h>

#include "try.h"

/* ---------------------------------------------------------------- memory */

/* In 64 bits, as tensor libraries have them. */
static int upload_topk(struct ep_batch *batch)
{
    const struct plan *plan = batch->plan;
    const size_t num_choices = (size_t)plan->num_tokens * (size_t)plan->num_topk;
    const int32_t *choices = plan->topk_idx + (size_t)batch->rank->rank * num_choices;
    int64_t *topk_idx = malloc(num_choices * sizeof(int64_t));
    if (topk_idx == NULL) {
        perror("malloc");
        return -1;
    }
    for (size_t i = 0; i < num_choices; i++)
        topk_idx[i] = choices[i];
    const int result = device_upload(&batch->routing, topk_idx, num_choices * sizeof(int64_t),
                                     (void **)&batch->topk_idx);
    free(topk_idx);
    return result;
}

static int alloc_in_heap(struct ep_batch *batch, int32_t row_bytes, char **rows)
{
    const size_t bytes = (size_t)batch->capacity * (size_t)row_bytes;
    WEFT_TRY(weft_heap_alloc(batch->rank->comm, bytes, (void **)rows));
    return 0;
}

static int alloc_tokens(struct ep_batch *batch)
{
    const size_t num_tokens = (size_t)batch->plan->num_tokens;
    batch->tokens = (struct pattern){.num_rows = batch->plan->num_tokens,
                                     .num_planes = batch->format->num_planes};
    batch->received =
        (struct pattern){.num_planes = batch->format->num_planes, .num_wrong = batch->num_wrong};
    for (int32_t plane = 0; plane < batch->format->num_planes; plane++) {
        const int32_t row_bytes = batch->format->row_bytes[plane];
        batch->tokens.row_bytes[plane] = batch->received.row_bytes[plane] = row_bytes;
        TRY(device_alloc(&batch->memory, num_tokens * (size_t)row_bytes,
                         (void **)&batch->tokens.planes[plane]));
        TRY(alloc_in_heap(batch, row_bytes, &batch->received.planes[plane]));
    }
    return 0;
}

static int alloc_answers(struct ep_batch *batch)
{
    const int32_t row_bytes = batch->options->formats[0].row_bytes[0];
    batch->answers =
        (struct pattern){.num_planes = 1, .tag = batch->rank->rank + 1, .row_bytes = {row_bytes}};
    batch->sums = (struct token_rows){.rank = batch->rank->rank,
                                      .num_ranks = batch->rank->num_ranks,
                                      .num_tokens = batch->plan->num_tokens,
                                      .num_planes = 1,
                                      .planes = {{.row_bytes = row_bytes}}};
    TRY(alloc_in_heap(batch, row_bytes, &batch->answers.planes[0]));
    return device_alloc(&batch->memory, (size_t)batch->plan->num_tokens * (size_t)row_bytes,
                        (void **)&batch->sums.out);
}

static int upload_routing(struct ep_batch *batch)
{
    const struct plan *plan = batch->plan;
    const int32_t rank = batch->rank->rank;
    TRY(row_tables_upload(&batch->tables, &batch->routing, plan, rank));
    TRY(upload_topk(batch));
    batch->tokens.numbers = batch->tables.sent;
    batch->received.numbers = batch->answers.numbers = batch->tables.received;
    batch->received.num_rows = batch->answers.num_rows = plan->num_recv[rank];
    batch->sums.rows = batch->tables.rows;
    /* The stream does not wait for the uploads by itself. */
    CUDA_TRY(cudaDeviceSynchronize());
    return 0;
}

int ep_batch_init(struct ep_batch *batch)
{
    const int32_t most = plan_most_recv(batch->plan);
    batch->capacity = most > batch->capacity ? most : batch->capacity;
    TRY(device_alloc(&batch->memory, sizeof(uint32_t), (void **)&batch->num_wrong));
    TRY(alloc_tokens(batch));
    TRY(alloc_answers(batch));
    TRY(upload_routing(batch));
    CUDA_TRY(pattern_fill(&batch->tokens, batch->rank->cuda_stream));
    return 0;
}

int ep_batch_follow(struct ep_batch *batch, const struct plan *plan)
{
    CUDA_TRY(cudaStreamSynchronize(batch->rank->cuda_stream));
    device_free_all(&batch->routing);
    batch->plan = plan;
    return upload_routing(batch);
}

void ep_batch_destroy(struct ep_batch *batch)
{
    weft_comm *comm = batch->rank->comm;
    for (int32_t plane = 0; plane < batch->received.num_planes; plane++)
        weft_heap_free(comm, batch->received.planes[plane]);
    weft_heap_free(comm, batch->answers.planes[0]);
    device_free_all(&batch->routing);
    device_free_all(&batch->memory);
}

/* ---------------------------------------------------------------- operations */

int ep_batch_open(struct ep_batch *batch, int32_t num_blocks)
{
    const struct plan *plan = batch->plan;
    weft_ep_config config = WEFT_INIT(weft_ep_config);
    config.num_experts = plan->num_experts;
    config.max_topk = plan->num_topk;
    config.num_blocks = num_blocks;
    config.num_warps = batch->options->num_warps;
    WEFT_TRY(weft_ep_create(batch->rank->comm, &config, &batch->ep));
    weft_ep_handle_config handle_config = WEFT_INIT(weft_ep_handle_config);
    handle_config.max_tokens = plan->num_tokens;
    handle_config.num_topk = plan->num_topk;
    WEFT_TRY(weft_ep_handle_create(batch->ep, &handle_config, &batch->handle));
    return 0;
}

void ep_batch_close(struct ep_batch *batch)
{
    if (batch->handle != NULL)
        weft_ep_handle_destroy(batch->handle);
    if (batch->ep != NULL)
        weft_ep_destroy(batch->ep);
    batch->handle = NULL;
    batch->ep = NULL;
}

static weft_result layout(struct ep_batch *batch, int32_t num_tokens)
{
    weft_ep_layout_args args = WEFT_INIT(weft_ep_layout_args);
    args.num_tokens = num_tokens;
    args.index_type = WEFT_INT64;
    args.topk_idx = batch->topk_idx;
    return weft_ep_layout(batch->handle, &args, batch->rank->stream);
}

static weft_result dispatch(struct ep_batch *batch)
{
    weft_plane planes[MAX_PLANES];
    weft_ep_dispatch_args args = WEFT_INIT(weft_ep_dispatch_args);
    for (int32_t plane = 0; plane < batch->tokens.num_planes; plane++)
        planes[plane] = (weft_plane){.size = sizeof(weft_plane),
                                     .src = batch->tokens.planes[plane],
                                     .dst = batch->received.planes[plane],
                                     .row_bytes = (uint64_t)batch->tokens.row_bytes[plane]};
    args.num_planes = batch->tokens.num_planes;
    args.planes = planes;
    args.capacity = batch->capacity;
    return weft_ep_dispatch(batch->handle, &args, batch->rank->stream);
}

static weft_result combine(struct ep_batch *batch)
{
    weft_ep_combine_args args = WEFT_INIT(weft_ep_combine_args);
    args.dtype = WEFT_BF16;
    args.hidden = batch->answers.row_bytes[0] / (int64_t)sizeof(uint16_t);
    args.capacity = batch->capacity;
    args.x = batch->answers.planes[0];
    args.out = batch->sums.out;
    return weft_ep_combine(batch->handle, &args, batch->rank->stream);
}

int ep_batch_run(struct ep_batch *batch, int parts)
{
    weft_ep_counts counts = WEFT_INIT(weft_ep_counts);
    if (parts & PART_LAYOUT)
        WEFT_TRY(layout(batch, batch->plan->num_tokens));
    if (parts & PART_NOTIFY)
        WEFT_TRY(weft_ep_notify(batch->handle, batch->rank->stream));
    if (parts & PART_WAIT_COUNTS)
        WEFT_TRY(weft_ep_wait_counts(batch->handle, &counts));
    if (parts & PART_DISPATCH)
        WEFT_TRY(dispatch(batch));
    if (parts & PART_COMBINE)
        WEFT_TRY(combine(batch));
    return 0;
}

int ep_call_enqueue(void *call)
{
    const struct ep_call *one = call;
    return ep_batch_run(one->batch, one->parts);
}

int ep_batch_forget(struct ep_batch *batch)
{
    WEFT_TRY(layout(batch, 0));
    WEFT_TRY(weft_ep_notify(batch->handle, batch->rank->stream));
    return 0;
}
