/* SPDX-License-Identifier: MIT */
#include "ll_setup.h"

#include <stdlib.h>
#include <string.h>

#include "workload/of_ranks.h"

static weft_result create(struct ll_bench *ll)
{
    const struct bench_options *options = &ll->bench->options;
    weft_ll_config config = WEFT_INIT(weft_ll_config);
    weft_ll_sizes sizes = WEFT_INIT(weft_ll_sizes);
    config.hidden = options->hidden;
    config.max_tokens = options->num_tokens;
    config.num_topk = options->num_topk;
    config.dtype = WEFT_BF16;
    /* A step combines its result before the next one, so one is enough, and takes less memory; but
     * between nodes the next step would wait until the network has told that there is room. */
    config.num_results = ll->bench->num_nodes > 1 ? 2 : 1;
    config.layout = ll->layout;
    config.answer = WEFT_LL_ANSWER_IN_SLOTS;
    TRY(weft_ll_query_sizes(ll->bench->ep, &config, &sizes));
    ll->num_local_experts = sizes.num_local_experts;
    ll->capacity = ll->layout == WEFT_LL_BY_EXPERT ? sizes.expert_capacity : options->num_tokens;
    return weft_ll_create(ll->bench->ep, &config, &ll->ll);
}

static char *alloc_rows(const struct ll_bench *ll, int64_t num_rows)
{
    void *rows;
    const size_t bytes = (size_t)num_rows * ll->bench->plan.row_bytes;
    return posix_memalign(&rows, 64, bytes + 1) == 0 ? rows : NULL;
}

weft_result ll_bench_init(struct ll_bench *ll, struct bench *bench, weft_ll_layout layout)
{
    const struct plan *plan = &bench->plan;
    const size_t num_choices = (size_t)plan->num_tokens * (size_t)plan->num_topk;
    *ll = (struct ll_bench){.bench = bench, .layout = layout};
    TRY(create(ll));
    ll->out = alloc_rows(ll, plan->num_tokens);
    ll->topk_weights = calloc(num_choices + 1, sizeof *ll->topk_weights);
    if (layout == WEFT_LL_BY_EXPERT)
        ll->rows = alloc_rows(ll, (int64_t)ll->num_local_experts * ll->capacity);
    if (ll->out == NULL || ll->topk_weights == NULL ||
        (layout == WEFT_LL_BY_EXPERT && ll->rows == NULL))
        return WEFT_ERROR_OUT_OF_MEMORY;
    plan_split_weights(plan, bench->rank, ll->topk_weights);
    return WEFT_OK;
}

void ll_bench_destroy(struct ll_bench *ll)
{
    if (ll->ll != NULL)
        weft_ll_destroy(ll->ll);
    free(ll->topk_weights);
    free(ll->rows);
    free(ll->out);
}

static weft_result dispatch(struct ll_bench *ll)
{
    weft_ll_dispatch_args args = WEFT_INIT(weft_ll_dispatch_args);
    args.num_tokens = ll->bench->plan.num_tokens;
    args.x = ll->bench->x;
    args.index_type = WEFT_INT32;
    args.topk_idx = ll->bench->topk_idx;
    args.topk_weights = ll->topk_weights;
    args.rows = ll->rows;
    return weft_ll_dispatch(ll->ll, &args, ll->bench->stream);
}

/* The experts return their input, which is all the same to the machine, where it is: as normal
 * combine reads what dispatch has written. */
weft_result ll_bench_step(struct ll_bench *ll)
{
    weft_ll_combine_args args = WEFT_INIT(weft_ll_combine_args);
    args.x = ll->rows; /* by rank NULL: in the slots */
    args.out = ll->out;
    TRY(dispatch(ll));
    return weft_ll_combine(ll->ll, &args, ll->bench->stream);
}

/* ---------------------------------------------------------------- check */

/* Of a source's rows in its slots. */
static int64_t check_slots(const struct ll_bench *ll)
{
    const struct plan *plan = &ll->bench->plan;
    weft_ll_slots slots = WEFT_INIT(weft_ll_slots);
    if (weft_ll_query_slots(ll->ll, &slots) != WEFT_OK)
        return -1;
    int64_t num_wrong = 0;
    for (int32_t source = 0; source < plan->num_ranks; source++) {
        const char *slot =
            (const char *)slots.x[*slots.half] + (uint64_t)source * slots.source_stride_bytes;
        for (int32_t token = 0; token < plan->num_tokens; token++) {
            if (plan_row(plan, source, token, ll->bench->rank) == PLAN_NO_ROW)
                continue;
            num_wrong += !plan_row_is(plan, source, token, slot);
            slot += slots.row_stride_bytes;
        }
    }
    return num_wrong;
}

static int64_t check_packed(const struct ll_bench *ll)
{
    const struct plan *plan = &ll->bench->plan;
    const int32_t first = plan_first_expert(plan, ll->bench->rank);
    int64_t num_wrong = 0;
    for (int32_t expert = 0; expert < ll->num_local_experts; expert++) {
        const char *row = ll->rows + (size_t)expert * (size_t)ll->capacity * plan->row_bytes;
        for (int32_t i = 0; i < plan->num_ranks * plan->num_tokens; i++) {
            const int32_t source = i / plan->num_tokens, token = i % plan->num_tokens;
            if (!plan_chooses(plan, source, token, first + expert))
                continue;
            num_wrong += !plan_row_is(plan, source, token, row);
            row += plan->row_bytes;
        }
    }
    return num_wrong;
}

weft_result ll_bench_check(struct ll_bench *ll, int64_t *num_errors)
{
    const struct bench *bench = ll->bench;
    memset(ll->out, 0xff, (size_t)bench->plan.num_tokens * bench->plan.row_bytes);
    TRY(ll_bench_step(ll));
    TRY(weft_stream_synchronize(bench->stream));
    *num_errors = (ll->layout == WEFT_LL_BY_EXPERT ? check_packed(ll) : check_slots(ll)) +
                  plan_check_combined(&bench->plan, bench->rank, 1, ll->out);
    return sum_of_ranks(bench->comm, num_errors, 1);
}
