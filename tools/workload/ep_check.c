/* SPDX-License-Identifier: MIT */
#include "workload/ep_check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workload/ep_ll.h"
#include "workload/ep_pass.h"
#include "workload/failure.h"
#include "workload/of_ranks.h"
#include "workload/quantised.h"
#include "workload/rng.h"
#include "workload/try.h"

/* The operation whose results are compared. */
struct telling {
    struct ep_verifier *verifier;
    enum ep_op op;
};

static void tell(void *of, int is_right, const char *text)
{
    const struct telling *telling = of;
    ep_tally_row(telling->verifier, telling->op, is_right, "%s", text);
}

static struct ep_checker checker_of(struct telling *telling)
{
    const struct ep_layer *layer = telling->verifier->layer;
    return (struct ep_checker){&layer->routing->problem, layer->rank, tell, telling};
}

static void verify_layout(struct ep_verifier *verifier)
{
    struct telling telling = {verifier, EP_LAYOUT};
    const struct ep_checker checker = checker_of(&telling);
    const struct ep_results *results = &verifier->results;
    ep_oracle_check_layout(
        &checker, &(struct ep_laid_out){results->tokens_per_rank, results->tokens_per_node,
                                        results->tokens_per_expert, results->is_token_in_rank});
}

static void verify_notify(struct ep_verifier *verifier)
{
    struct telling telling = {verifier, EP_NOTIFY};
    const struct ep_checker checker = checker_of(&telling);
    ep_oracle_check_counts(&checker, &verifier->results.counts);
}

enum { SAMPLE_ROWS = 64 };

int64_t ep_sample_size(const struct ep_verifier *verifier, int64_t num_rows)
{
    int is_full = verifier->layer->options->check == EP_CHECK_FULL || num_rows < SAMPLE_ROWS;
    return is_full ? num_rows : SAMPLE_ROWS;
}

/* Member `index` of the sample of 0..num_rows-1: one of each of sample_size equal parts. */
int64_t ep_sample_row(const struct ep_verifier *verifier, int64_t num_rows, int64_t index)
{
    int64_t size = ep_sample_size(verifier, num_rows);
    int64_t begin = num_rows * index / size, end = num_rows * (index + 1) / size;
    uint64_t random = rng_key(verifier->layer->options->seed, (uint64_t)index);
    return begin + (int64_t)(random % (uint64_t)(end - begin));
}

/* Puts the numbers that stay of the row when it is quantised into its place. */
static void quantise_row(struct ep_verifier *verifier, unsigned char *row)
{
    const struct ep_layer_options *options = verifier->layer->options;
    const weft_rows_args args = ep_ll_rows_args(options);
    const struct quantised_form form = {options->kind, args.quantisation.dtype,
                                        args.quantisation.scale, args.quantisation.group_elements,
                                        sizeof(float)};
    char *codes = (char *)verifier->scratch, *scales = codes + options->hidden;
    quantised_make_row(&form, row, options->hidden, codes, scales);
    for (int64_t h = 0; h < options->hidden; h++)
        element_store(options->kind, row, h, quantised_number(&form, codes, scales, h));
}

/* The row of a token as experts get it. */
static void fill_row(struct ep_verifier *verifier, struct ep_token token, int32_t plane,
                     unsigned char *row)
{
    const struct ep_layer *layer = verifier->layer;
    const struct payload payload = ep_layer_payload(layer);
    payload_fill_row(&payload, ep_oracle_number(&layer->routing->problem, token), plane, row,
                     layer->options->plane_bytes[plane]);
    if (layer->options->row_format != EP_ROW_FORMAT_DTYPE)
        quantise_row(verifier, row);
}

/* Tells if it is not. */
static int is_payload(struct ep_verifier *verifier, int32_t row)
{
    const struct ep_layer_options *options = verifier->layer->options;
    const struct ep_token token = verifier->received.rows[row];
    int is_right = 1;
    for (int32_t plane = 0; plane < options->num_planes && is_right; plane++) {
        const size_t row_bytes = options->plane_bytes[plane];
        fill_row(verifier, token, plane, verifier->row);
        is_right = memcmp(verifier->results.recv_x[plane] + (size_t)row * row_bytes, verifier->row,
                          row_bytes) == 0;
    }
    if (is_right)
        return 1;
    ep_tally_row(verifier, EP_DISPATCH, 0, "payload of row %d (token %d of rank %d)", row,
                 token.idx, token.source);
    return 0;
}

static void verify_dispatch(struct ep_verifier *verifier)
{
    const struct ep_results *results = &verifier->results;
    const struct ep_row_notes all = {WEFT_INT32, results->recv_topk_idx, results->recv_topk_weights,
                                     results->recv_src_token};
    const struct ep_row_notes notes = verifier->layer->options->carried == EP_CARRY_ROWS
                                          ? (struct ep_row_notes){.index_type = WEFT_INT32}
                                          : all;
    struct telling telling = {verifier, EP_DISPATCH};
    const struct ep_checker checker = checker_of(&telling);
    const int32_t num_rows = verifier->received.num_rows;
    const int64_t num_sampled = ep_sample_size(verifier, num_rows);
    for (int64_t i = 0; i < num_sampled; i++) {
        const int32_t row = (int32_t)ep_sample_row(verifier, num_rows, i);
        if (is_payload(verifier, row))
            ep_oracle_check_notes(&checker, &notes, row, verifier->received.rows[row]);
    }
    ep_oracle_check_no_more(&checker, &notes, num_rows, verifier->layer->capacity);
}

/* A rank answers the token's row, scaled by all its experts at once, in the payload's format. */
static int read_answer(void *of, struct ep_token token, int32_t rank, float *values)
{
    struct ep_verifier *verifier = of;
    const struct ep_layer_options *options = verifier->layer->options;
    const float scale = ep_answer_scale(&verifier->layer->routing->problem, token, rank);
    ep_scale_row(options->kind, (size_t)options->hidden, scale, verifier->x, values, verifier->row);
    return 1;
}

/* The rows of the token on all ranks that had it, summed as combine documents. */
static void combine_token(struct ep_verifier *verifier, struct ep_token token)
{
    const struct ep_layer_options *options = verifier->layer->options;
    const size_t hidden = (size_t)options->hidden;
    const struct ep_answers answers = {options->hidden, options->kind, ep_wire_dtype(options),
                                       read_answer, verifier};
    fill_row(verifier, token, 0, verifier->row);
    elements_to_fp32(options->kind, verifier->row, hidden, verifier->x);
    memset(verifier->sum, 0, hidden * sizeof(float));
    ep_oracle_combine(&verifier->layer->routing->problem, &answers, token, verifier->sum,
                      verifier->scratch);
    elements_from_fp32(options->kind, verifier->sum, hidden, verifier->row);
}

static void verify_combine(struct ep_verifier *verifier)
{
    const struct ep_layer *layer = verifier->layer;
    size_t row_bytes = layer->options->row_bytes;
    int64_t num_sampled = ep_sample_size(verifier, layer->num_tokens);
    for (int64_t i = 0; i < num_sampled; i++) {
        int32_t own_token = (int32_t)ep_sample_row(verifier, layer->num_tokens, i);
        const unsigned char *out = verifier->results.out + (size_t)own_token * row_bytes;
        combine_token(verifier, (struct ep_token){layer->rank, own_token});
        ep_tally_row(verifier, EP_COMBINE, memcmp(out, verifier->row, row_bytes) == 0,
                     "row of token %d", own_token);
    }
}

/* ---------------------------------------------------------------- the whole check */

static weft_result verifier_open(struct ep_verifier *verifier, struct ep_layer *layer,
                                 struct ep_tally tallies[EP_NUM_OPS])
{
    const struct ep_problem *problem = &layer->routing->problem;
    size_t hidden = (size_t)layer->options->hidden;
    *verifier = (struct ep_verifier){
        .layer = layer,
        .tallies = tallies,
        .received_memory = calloc(1, ep_received_bytes(problem)),
        .row = calloc(1, layer->options->row_bytes),
        .x = calloc(hidden, sizeof(float)),
        .sum = calloc(hidden, sizeof(float)),
        .scratch = calloc(2 * hidden, sizeof(float)),
    };
    if (!verifier->received_memory || !verifier->row || !verifier->x || !verifier->sum ||
        !verifier->scratch)
        return LACKS_MEMORY("the check of what arrives");
    ep_oracle_receive(problem, layer->rank, verifier->received_memory, &verifier->received);
    return ep_results_open(&verifier->results, layer, &verifier->received);
}

static void verifier_close(struct ep_verifier *verifier)
{
    ep_results_close(&verifier->results, verifier->layer);
    free(verifier->received_memory);
    free(verifier->row);
    free(verifier->x);
    free(verifier->sum);
    free(verifier->scratch);
}

void ep_tally_row(struct ep_verifier *verifier, enum ep_op op, int is_equal, const char *format,
                  ...)
{
    struct ep_tally *of_op = &verifier->tallies[op];
    of_op->checked_rows++;
    if (is_equal || of_op->errors++ > 0)
        return;
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "%s: rank %d: check of %s: first difference: %s\n",
            verifier->layer->options->program, verifier->layer->rank, ep_op_names[op], text);
}

static weft_result verify(struct ep_verifier *verifier)
{
    const struct ep_layer_options *options = verifier->layer->options;
    if (options->mode == EP_MODE_LOW_LATENCY)
        return ep_ll_verify(verifier);
    verify_layout(verifier);
    verify_notify(verifier);
    verify_dispatch(verifier);
    if (ep_op_parts(EP_COMBINE, options))
        verify_combine(verifier);
    return WEFT_OK;
}

struct ep_tally ep_tally_of(const struct ep_tally tallies[EP_NUM_OPS], enum ep_op op)
{
    struct ep_tally sum = {0, 0};
    for (int part = 0; part < EP_NUM_OPS; part++)
        if (ep_op_contains(op, part)) {
            sum.checked_rows += tallies[part].checked_rows;
            sum.errors += tallies[part].errors;
        }
    return sum;
}

/* Over ranks. */
static weft_result add_tallies(const struct ep_layer *layer, struct ep_tally own[EP_NUM_OPS],
                               struct ep_tally tallies[EP_NUM_OPS])
{
    TRY(sum_of_ranks(layer->comm, (int64_t *)own, 2 * (size_t)EP_NUM_OPS));
    for (int op = 0; op < EP_NUM_OPS; op++) {
        tallies[op].checked_rows += own[op].checked_rows;
        tallies[op].errors += own[op].errors;
    }
    return WEFT_OK;
}

weft_result ep_check(struct ep_layer *layer, struct ep_tally tallies[EP_NUM_OPS])
{
    struct ep_verifier verifier;
    struct ep_tally own[EP_NUM_OPS] = {{0, 0}};
    weft_result result = verifier_open(&verifier, layer, own);
    if (result == WEFT_OK && layer->options->mode == EP_MODE_NORMAL)
        result = ep_pass(layer, &verifier.results);
    if (result == WEFT_OK)
        result = verify(&verifier);
    if (result == WEFT_OK)
        result = add_tallies(layer, own, tallies);
    verifier_close(&verifier);
    return result;
}
