/* SPDX-License-Identifier: MIT */
#include "workload/ep_ll.h"

#include <stdlib.h>

#include "workload/failure.h"
#include "workload/low_latency.h"
#include "workload/try.h"

static int is_by_expert(const struct ep_layer *layer)
{
    return layer->options->ll_layout == WEFT_LL_BY_EXPERT;
}

weft_rows_args ep_ll_rows_args(const struct ep_layer_options *options)
{
    weft_rows_args args = WEFT_INIT(weft_rows_args);
    const enum ep_row_format format = options->row_format;
    args.hidden = options->hidden;
    args.quantisation.group_elements = EP_LL_GROUP_ELEMENTS;
    args.dtype = options->kind;
    args.quantisation.dtype = format == EP_ROW_FORMAT_INT8 ? WEFT_INT8 : WEFT_FP8_E4M3;
    args.quantisation.scale = format == EP_ROW_FORMAT_UE8M0 ? WEFT_SCALE_UE8M0 : WEFT_SCALE_FP32;
    return args;
}

weft_ll_config ep_ll_config(const struct ep_layer_options *options)
{
    weft_ll_config config = WEFT_INIT(weft_ll_config);
    config.hidden = options->hidden;
    config.max_tokens = options->num_tokens > 0 ? options->num_tokens : 1;
    config.num_topk = options->num_topk;
    config.dtype = options->kind;
    config.num_results = options->num_results;
    config.layout = options->ll_layout;
    if (options->row_format != EP_ROW_FORMAT_DTYPE)
        config.quantisation = ep_ll_rows_args(options).quantisation;
    config.answer = options->ll_answer;
    config.answer_dtype = ep_wire_dtype(options);
    config.num_blocks = options->num_blocks;
    config.num_warps = options->num_warps;
    config.carrier = options->ll_carrier;
    config.route = options->ll_route;
    config.on_missing = options->ll_on_missing;
    return config;
}

int ep_ll_fills_slots(const struct ep_layer *layer)
{
    const struct ep_layer_options *options = layer->options;
    const weft_dtype wire = ep_wire_dtype(options);
    return options->ll_answer == WEFT_LL_ANSWER_IN_SLOTS && !is_by_expert(layer) &&
           (wire == WEFT_DTYPE_NONE || wire == options->kind);
}

/* Combine sends the rows where they came, if they can hold what experts make of them. */
static int y_is_rows(const struct ep_layer *layer)
{
    return is_by_expert(layer) && layer->options->row_format == EP_ROW_FORMAT_DTYPE;
}

static weft_result alloc_buffers(struct ep_layer *layer, const weft_ll_sizes *sizes)
{
    struct ep_ll *ll = &layer->ll;
    const size_t num_ranks = (size_t)layer->num_ranks, num_local = (size_t)ll->num_local_experts;
    const size_t num_rows = is_by_expert(layer) ? num_local * (size_t)ll->capacity : 0;
    const size_t num_y = is_by_expert(layer) ? num_rows : num_ranks * (size_t)ll->capacity;
    const struct ep_buffer list[] = {
        {(void **)&ll->rows, sizes->rows_bytes},
        {(void **)&ll->scales, sizes->scales_bytes},
        {(void **)&ll->y,
         y_is_rows(layer) || ep_ll_fills_slots(layer) ? 0 : num_y * layer->options->row_bytes},
        {(void **)&ll->rank_counts, num_ranks * sizeof(int32_t)},
        {(void **)&ll->expert_counts, num_local * sizeof(int32_t)},
        {(void **)&ll->src_tokens, num_rows * sizeof(int32_t)},
        {(void **)&ll->ranges, num_local * num_ranks * sizeof(int64_t)},
    };
    TRY(ep_layer_alloc(layer, EP_MEMORY_OTHER, list, sizeof list / sizeof *list));
    if (y_is_rows(layer))
        ll->y = ll->rows;
    return WEFT_OK;
}

/* The counts of ranks are memory of the machine for as many words, until the first dispatch. */
static weft_result mask_ranks(struct ep_layer *layer)
{
    weft_result result = WEFT_OK;
    for (int32_t rank = 0; rank < layer->num_ranks && result == WEFT_OK; rank++) {
        const int32_t is_cut = ep_ll_are_cut(layer->options, layer->rank, rank);
        result =
            weft_memory_copy(layer->comm, layer->ll.rank_counts + rank, &is_cut, sizeof is_cut);
    }
    if (result == WEFT_OK)
        result = weft_ll_mask(layer->ll.ll, layer->ll.rank_counts, layer->stream);
    return result == WEFT_OK ? weft_stream_synchronize(layer->stream) : result;
}

weft_result ep_ll_open(struct ep_layer *layer)
{
    const weft_ll_config config = ep_ll_config(layer->options);
    struct ep_ll *ll = &layer->ll;
    ll->sizes.size = sizeof ll->sizes;
    TRY(weft_ll_query_sizes(layer->ep, &config, &ll->sizes));
    ll->num_local_experts = ll->sizes.num_local_experts;
    ll->capacity = is_by_expert(layer) ? ll->sizes.expert_capacity : config.max_tokens;
    TRY(weft_ll_create(layer->ep, &config, &ll->ll));
    TRY(alloc_buffers(layer, &ll->sizes));
    if (layer->options->masked.count > 0)
        TRY(mask_ranks(layer));
    return WEFT_OK;
}

/* ---------------------------------------------------------------- operations */

static weft_result dispatch(struct ep_layer *layer, weft_ll_phases phases)
{
    weft_ll_dispatch_args args = WEFT_INIT(weft_ll_dispatch_args);
    args.phases = phases;
    if (phases != WEFT_LL_RECEIVE) {
        args.num_tokens = layer->num_tokens;
        args.x = layer->x[0];
        args.index_type = WEFT_INT32;
        args.topk_idx = layer->topk_idx;
        if (ll_dispatch_uses_weights(layer->options->ll_answer))
            args.topk_weights = layer->topk_weights;
    }
    if (phases != WEFT_LL_SEND)
        args.num_rows_per_rank = layer->ll.rank_counts;
    if (phases != WEFT_LL_SEND && is_by_expert(layer)) {
        args.rows = layer->ll.rows;
        args.scales = layer->ll.scales;
        args.num_rows_per_expert = layer->ll.expert_counts;
        args.src_tokens = layer->ll.src_tokens;
        args.row_ranges = layer->ll.ranges;
    }
    return weft_ll_dispatch(layer->ll.ll, &args, layer->stream);
}

static weft_result combine(struct ep_layer *layer, enum ep_ll_end end, weft_ll_phases phases)
{
    weft_ll_combine_args args = WEFT_INIT(weft_ll_combine_args);
    args.phases = phases;
    if (phases != WEFT_LL_RECEIVE) {
        args.keep = end == EP_LL_KEEP;
        args.x = layer->ll.y;
    }
    if (phases != WEFT_LL_SEND)
        args.out = layer->out;
    if (ll_combine_uses_weights(layer->options->ll_answer, phases))
        args.topk_weights = layer->topk_weights;
    return weft_ll_combine(layer->ll.ll, &args, layer->stream);
}

weft_result ep_ll_dispatch(struct ep_layer *layer)
{
    if (layer->options->num_phases == 1)
        return dispatch(layer, WEFT_LL_SEND_AND_RECEIVE);
    const weft_result result = dispatch(layer, WEFT_LL_SEND);
    return result == WEFT_OK ? dispatch(layer, WEFT_LL_RECEIVE) : result;
}

weft_result ep_ll_combine(struct ep_layer *layer, enum ep_ll_end end)
{
    if (layer->options->num_phases == 1)
        return combine(layer, end, WEFT_LL_SEND_AND_RECEIVE);
    const weft_result result = combine(layer, end, WEFT_LL_SEND);
    return result == WEFT_OK ? combine(layer, end, WEFT_LL_RECEIVE) : result;
}

weft_result ep_ll_enqueue(struct ep_layer *layer, int parts)
{
    if (parts & EP_PART_DISPATCH)
        TRY(ep_ll_dispatch(layer));
    if (parts & EP_PART_COMBINE)
        TRY(ep_ll_combine(layer, parts & EP_PART_DISPATCH ? EP_LL_END : EP_LL_KEEP));
    return parts & EP_PART_RELEASE ? weft_ll_release(layer->ll.ll, layer->stream) : WEFT_OK;
}

int ep_ll_leaves_result(int parts)
{
    return parts == EP_PART_DISPATCH || parts == EP_PART_COMBINE;
}

/* Rows of the last dispatch. */
struct row_counts {
    uint64_t of_all, of_others;
};

static weft_result count_rows(struct ep_layer *layer, struct row_counts *rows)
{
    const size_t num_ranks = (size_t)layer->num_ranks;
    int32_t *counts = calloc(num_ranks, sizeof *counts);
    if (!counts)
        return LACKS_MEMORY("the counts of %zu ranks", num_ranks);
    const weft_result result =
        weft_memory_copy(layer->comm, counts, layer->ll.rank_counts, num_ranks * sizeof *counts);
    *rows = (struct row_counts){0, 0};
    for (int32_t rank = 0; rank < layer->num_ranks && result == WEFT_OK; rank++) {
        const uint64_t num_rows = (uint64_t)counts[rank];
        rows->of_all += num_rows;
        rows->of_others += rank == layer->rank ? 0 : num_rows;
    }
    free(counts);
    return result;
}

weft_result ep_ll_count_traffic(struct ep_layer *layer, struct ep_traffic *traffic)
{
    const uint64_t row_bytes = layer->options->row_bytes;
    struct row_counts rows;
    const weft_result result = count_rows(layer, &rows);
    if (result == WEFT_OK)
        *traffic = (struct ep_traffic){rows.of_all * row_bytes, rows.of_others * row_bytes};
    return result;
}

/* 1 if one row of dispatch, or combine, is for all ranks of a node. Answers that are rows go
 * straight. */
static int is_relayed(const struct ep_layer *layer, enum ep_part part)
{
    const struct ep_layer_options *options = layer->options;
    return options->ll_route == WEFT_LL_RELAYED &&
           (part == EP_PART_DISPATCH || options->ll_answer != WEFT_LL_ANSWER_ROWS);
}

/* Those of a token that a rank gets, or answers: one, but for answers that are rows. */
static int32_t count_rows_at(const struct ep_layer *layer, enum ep_part part, struct ep_token token,
                             int32_t rank)
{
    const struct ep_problem *problem = &layer->routing->problem;
    int32_t num_choices = 0;
    if (part == EP_PART_DISPATCH || layer->options->ll_answer != WEFT_LL_ANSWER_ROWS)
        return ep_oracle_goes_to(problem, token, rank);
    for (int32_t k = 0; k < problem->num_topk; k++)
        num_choices += ep_oracle_choice(problem, token, k).rank == rank;
    return num_choices;
}

static int32_t count_rows_of_token(const struct ep_layer *layer, enum ep_part part,
                                   struct ep_token token)
{
    const struct ep_problem *problem = &layer->routing->problem;
    int32_t num_rows = 0;
    for (int32_t node = 0; node < layer->num_nodes; node++) {
        int32_t num_straight = 0;
        for (int32_t rank = 0; rank < layer->num_ranks && node != layer->node; rank++)
            if (problem->nodes[rank] == node)
                num_straight += count_rows_at(layer, part, token, rank);
        num_rows += num_straight > 1 && is_relayed(layer, part) ? 1 : num_straight;
    }
    return num_rows;
}

int64_t ep_ll_count_rows_between_nodes(const struct ep_layer *layer, enum ep_part part)
{
    int64_t num_rows = 0;
    for (int32_t i = 0; i < layer->num_tokens; i++)
        num_rows += count_rows_of_token(layer, part, (struct ep_token){layer->rank, i});
    return num_rows;
}
