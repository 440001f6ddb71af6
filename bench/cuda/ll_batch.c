/* SPDX-License-Identifier: MIT */
#include "ll_batch.h"

#include <stdlib.h>

#include "try.h"

/* ---------------------------------------------------------------- what comes here */

/* Whether a token, numbered over all ranks, is in a run. */
static int is_in_run(const struct ll_batch *batch, int64_t token, int32_t run)
{
    const struct plan *plan = batch->plan;
    const int32_t rank = batch->rank->rank;
    if (batch->layout == WEFT_LL_BY_EXPERT)
        return plan_chooses(plan, (int32_t)(token / plan->num_tokens),
                            (int32_t)(token % plan->num_tokens),
                            plan_first_expert(plan, rank) + run);
    return token / plan->num_tokens == run &&
           plan->rows[token * plan->num_ranks + rank] != PLAN_NO_ROW;
}

/* Fills the runs, and appends the numbers of their tokens; returns how many. */
static int32_t list_runs(struct ll_batch *batch, int64_t rows_per_run, int32_t *numbers)
{
    const int32_t num_tokens = batch->plan->num_ranks * batch->plan->num_tokens;
    int32_t num_rows = 0;
    for (int32_t run = 0; run < batch->num_runs; run++) {
        const int32_t first = num_rows;
        for (int32_t token = 0; token < num_tokens; token++)
            if (is_in_run(batch, token, run))
                numbers[num_rows++] = token;
        batch->runs[run] = (struct ll_run){run * rows_per_run, num_rows - first};
    }
    return num_rows;
}

static int open_runs(struct ll_batch *batch)
{
    const struct plan *plan = batch->plan;
    const int32_t rank = batch->rank->rank, num_tokens = plan->num_ranks * plan->num_tokens;
    const int is_by_expert = batch->layout == WEFT_LL_BY_EXPERT;
    const int64_t rows_per_run = is_by_expert ? num_tokens : plan->num_tokens;
    batch->num_runs = is_by_expert
                          ? plan_first_expert(plan, rank + 1) - plan_first_expert(plan, rank)
                          : plan->num_ranks;
    batch->num_places = batch->num_runs * rows_per_run;
    batch->runs = calloc((size_t)batch->num_runs, sizeof *batch->runs);
    int32_t *numbers = malloc(((size_t)num_tokens * (size_t)plan->num_topk + 1) * sizeof *numbers);
    int result = -1;
    if (batch->runs != NULL && numbers != NULL) {
        const int32_t num_rows = list_runs(batch, rows_per_run, numbers);
        batch->received.num_rows = batch->answered.num_rows = num_rows;
        result = device_upload(&batch->memory, numbers, (size_t)num_rows * sizeof *numbers,
                               (void **)&batch->received.numbers);
        batch->answered.numbers = batch->received.numbers;
    } else {
        perror("malloc");
    }
    free(numbers);
    return result;
}

/* ---------------------------------------------------------------- memory */

/* Ids in 64 bits, as tensor libraries have them. */
static int upload_choices(struct ll_batch *batch)
{
    const struct plan *plan = batch->plan;
    const size_t num_choices = (size_t)plan->num_tokens * (size_t)plan->num_topk;
    const int64_t first_token = (int64_t)batch->rank->rank * plan->num_tokens;
    int64_t *ids = malloc(num_choices * sizeof *ids);
    float *weights = calloc(num_choices, sizeof *weights);
    int result = -1;
    if (ids != NULL && weights != NULL) {
        for (size_t i = 0; i < num_choices; i++)
            ids[i] = plan->topk_idx[(size_t)first_token * (size_t)plan->num_topk + i];
        plan_split_weights(plan, batch->rank->rank, weights);
        result = device_upload(&batch->memory, ids, num_choices * sizeof *ids,
                               (void **)&batch->topk_idx);
        if (result == 0)
            result = device_upload(&batch->memory, weights, num_choices * sizeof *weights,
                                   (void **)&batch->topk_weights);
    } else {
        perror("malloc");
    }
    free(ids);
    free(weights);
    return result;
}

static int alloc_pattern(struct ll_batch *batch, struct pattern *pattern)
{
    pattern->num_planes = 1;
    pattern->row_bytes[0] = batch->row_bytes;
    pattern->num_wrong = batch->num_wrong;
    return device_alloc(&batch->memory, (size_t)pattern->num_rows * (size_t)batch->row_bytes,
                        (void **)&pattern->planes[0]);
}

/* Copies the dense rows of answers to where combine reads them. */
static int place_answers(struct ll_batch *batch)
{
    const size_t row_bytes = (size_t)batch->row_bytes;
    cudaStream_t stream = batch->rank->cuda_stream;
    const char *dense = batch->answered.planes[0];
    CUDA_TRY(pattern_fill(&batch->answered, stream));
    for (int32_t i = 0; i < batch->num_runs; i++) {
        const size_t bytes = (size_t)batch->runs[i].num_rows * row_bytes;
        CUDA_TRY(cudaMemcpyAsync(batch->answers + (size_t)batch->runs[i].first * row_bytes, dense,
                                 bytes, cudaMemcpyDeviceToDevice, stream));
        dense += bytes;
    }
    return 0;
}

static int alloc_memory(struct ll_batch *batch)
{
    const struct plan *plan = batch->plan;
    const size_t row_bytes = (size_t)batch->row_bytes, num_tokens = (size_t)plan->num_tokens;
    struct device_memory *memory = &batch->memory;
    TRY(device_alloc(memory, sizeof(uint32_t), (void **)&batch->num_wrong));
    TRY(row_tables_upload(&batch->tables, memory, plan, batch->rank->rank));
    TRY(open_runs(batch));
    TRY(upload_choices(batch));
    batch->tokens.num_rows = plan->num_tokens;
    batch->tokens.numbers = batch->tables.sent;
    batch->answered.tag = batch->rank->rank + 1;
    TRY(alloc_pattern(batch, &batch->tokens));
    TRY(alloc_pattern(batch, &batch->received));
    TRY(alloc_pattern(batch, &batch->answered));
    TRY(device_alloc(memory, (size_t)batch->num_places * row_bytes, (void **)&batch->answers));
    if (batch->layout == WEFT_LL_BY_EXPERT)
        TRY(device_alloc(memory, (size_t)batch->num_places * (size_t)batch->narrow_bytes,
                         (void **)&batch->rows));
    if (batch->layout == WEFT_LL_BY_EXPERT && batch->scales_bytes > 0)
        TRY(device_alloc(memory, (size_t)batch->num_places * (size_t)batch->scales_bytes,
                         (void **)&batch->scales));
    TRY(device_alloc(memory, (size_t)batch->num_runs * sizeof(int32_t), (void **)&batch->counts));
    batch->sums = (struct token_rows){.rank = batch->rank->rank,
                                      .num_ranks = plan->num_ranks,
                                      .num_tokens = plan->num_tokens,
                                      .num_planes = 1,
                                      .rows = batch->tables.rows,
                                      .planes = {{.row_bytes = batch->row_bytes}}};
    TRY(device_alloc(memory, num_tokens * row_bytes, (void **)&batch->sums.out));
    /* The stream does not wait for the uploads by itself. */
    CUDA_TRY(cudaDeviceSynchronize());
    return place_answers(batch);
}

int ll_batch_open(struct ll_batch *batch)
{
    const struct plan *plan = batch->plan;
    weft_ep_config ep_config = WEFT_INIT(weft_ep_config);
    weft_ll_config config = WEFT_INIT(weft_ll_config);
    batch->row_bytes = batch->options->formats[0].row_bytes[0];
    const int32_t hidden = batch->row_bytes / (int32_t)sizeof(uint16_t);
    const int is_narrow = batch->narrow_dtype != WEFT_DTYPE_NONE;
    batch->narrow_bytes = is_narrow ? hidden : batch->row_bytes;
    batch->scales_bytes = is_narrow ? hidden / LL_GROUP_ELEMENTS * (int32_t)sizeof(float) : 0;
    ep_config.num_experts = plan->num_experts;
    ep_config.max_topk = plan->num_topk;
    config.hidden = hidden;
    config.max_tokens = plan->num_tokens;
    config.num_topk = plan->num_topk;
    config.dtype = WEFT_BF16;
    config.layout = batch->layout;
    config.quantisation.dtype = batch->narrow_dtype; /* its scales are WEFT_SCALE_FP32 */
    config.quantisation.group_elements = is_narrow ? LL_GROUP_ELEMENTS : 0;
    config.num_blocks = batch->num_blocks;
    config.num_warps = batch->options->num_warps;
    WEFT_TRY(weft_ep_create(batch->rank->comm, &ep_config, &batch->ep));
    WEFT_TRY(weft_ll_create(batch->ep, &config, &batch->ll));
    return alloc_memory(batch);
}

void ll_batch_close(struct ll_batch *batch)
{
    if (batch->ll != NULL)
        weft_ll_destroy(batch->ll);
    if (batch->ep != NULL)
        weft_ep_destroy(batch->ep);
    device_free_all(&batch->memory);
    free(batch->runs);
}

/* ---------------------------------------------------------------- operations */

static weft_result dispatch(struct ll_batch *batch, weft_ll_phases phases)
{
    weft_ll_dispatch_args args = WEFT_INIT(weft_ll_dispatch_args);
    args.phases = phases;
    if (phases != WEFT_LL_RECEIVE) {
        args.num_tokens = batch->plan->num_tokens;
        args.x = batch->tokens.planes[0];
        args.index_type = WEFT_INT64;
        args.topk_idx = batch->topk_idx;
        args.topk_weights = batch->topk_weights;
    }
    if (phases != WEFT_LL_SEND) {
        args.rows = batch->rows;
        args.scales = batch->scales;
        if (batch->layout == WEFT_LL_BY_EXPERT)
            args.num_rows_per_expert = batch->counts;
        else
            args.num_rows_per_rank = batch->counts;
    }
    return weft_ll_dispatch(batch->ll, &args, batch->rank->stream);
}

static weft_result combine(struct ll_batch *batch, const struct ll_part *part)
{
    weft_ll_combine_args args = WEFT_INIT(weft_ll_combine_args);
    args.phases = part->phases;
    if (part->phases != WEFT_LL_RECEIVE) {
        args.keep = part->operation == LL_COMBINE_KEEPING;
        args.x = batch->answers;
    }
    if (part->phases != WEFT_LL_SEND)
        args.out = batch->sums.out;
    return weft_ll_combine(batch->ll, &args, batch->rank->stream);
}

static weft_result run_part(struct ll_batch *batch, const struct ll_part *part)
{
    if (part->operation == LL_DISPATCH)
        return dispatch(batch, part->phases);
    if (part->operation == LL_RELEASE)
        return weft_ll_release(batch->ll, batch->rank->stream);
    return combine(batch, part);
}

int ll_call_enqueue(void *call)
{
    const struct ll_call *here = call;
    for (int32_t i = 0; i < here->num_parts; i++)
        WEFT_TRY(run_part(here->batch, &here->parts[i]));
    return 0;
}
