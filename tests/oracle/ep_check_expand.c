/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "harness/memory.h"
#include "oracle/ep_check.h"
#include "workload/elements.h"
#include "workload/rng.h"

enum { MAX_HIDDEN = 1100, KEY_EXPAND = 400 };

static struct rng rng_of(const struct ep_rank *self, const struct ep_dispatch *dispatch)
{
    return (struct rng){rng_key(rng_key(self->world->spec.seed, dispatch->shape.round),
                                KEY_EXPAND + (uint64_t)self->context->rank)};
}

static uint64_t num_choices(const struct ep_rank *self, const struct ep_dispatch *dispatch)
{
    return (uint64_t)dispatch->capacity * (uint64_t)self->world->spec.num_topk;
}

static int64_t hidden_of(const struct ep_rank *self, const struct ep_dispatch *dispatch)
{
    struct rng rng = rng_of(self, dispatch);
    return rng_below(&rng, 8) == 0 ? MAX_HIDDEN : 1 + rng_below(&rng, 40);
}

/* ---------------------------------------------------------------- expand */

static int make_plane(struct ep_rank *self, struct ep_expand *expand, const struct ep_array *src,
                      uint64_t row_bytes, weft_plane *plane)
{
    struct ep_array *dst = &expand->dst[expand->num_planes++];
    if (ep_array_alloc(self, dst, EP_OWN, (uint64_t)expand->capacity * row_bytes, 0))
        return 1;
    *plane = (weft_plane){
        .size = sizeof *plane, .src = src->data, .dst = dst->data, .row_bytes = row_bytes};
    return 0;
}

/* Scales are a plane behind the others. */
static int make_planes(struct ep_rank *self, const struct ep_dispatch *dispatch,
                       struct ep_expand *expand, weft_plane *planes)
{
    uint64_t scales_bytes = 0;
    for (int32_t i = 0; i < dispatch->shape.num_planes; i++) {
        const struct ep_plane_shape *shape = &dispatch->shape.planes[i];
        scales_bytes += ep_plane_scales_bytes(shape);
        if (make_plane(self, expand, &dispatch->dst[i], ep_plane_received_bytes(shape), &planes[i]))
            return 1;
    }
    return scales_bytes > 0 &&
           make_plane(self, expand, &dispatch->scales, scales_bytes, &planes[expand->num_planes]);
}

static int make_notes(struct ep_rank *self, const struct ep_dispatch *dispatch,
                      struct ep_expand *expand)
{
    const uint64_t capacity = (uint64_t)expand->capacity;
    return ep_array_alloc(self, &expand->choice_rows, EP_OWN, 4 * num_choices(self, dispatch), 0) ||
           ep_array_alloc(self, &expand->src_rows, EP_OWN, 4 * capacity, 0) ||
           (dispatch->shape.topk == EP_TOPK_IDS_AND_WEIGHTS &&
            ep_array_alloc(self, &expand->row_weights, EP_OWN, 4 * capacity, 0));
}

/* At once, or the rows alone first and the rest as for one more dispatch. */
static int issue_expand(struct ep_rank *self, weft_ep_expand_args args, int is_again)
{
    weft_ep_expand_args first = args;
    if (is_again) {
        first.num_planes = 0;
        first.recv_topk_weights = NULL;
        first.row_weights = NULL;
        first.src_rows = NULL;
        CHECK_OK(weft_ep_expand(self->handle, &first, self->stream));
        args.recv_topk_idx = NULL;
    }
    CHECK_OK(weft_ep_expand(self->handle, &args, self->stream));
    return 0;
}

static int expand_rows(struct ep_rank *self, const struct ep_dispatch *dispatch,
                       struct ep_expand *expand, int is_again)
{
    weft_plane planes[WEFT_MAX_PLANES];
    weft_ep_expand_args args = WEFT_INIT(weft_ep_expand_args);
    if (make_planes(self, dispatch, expand, planes) || make_notes(self, dispatch, expand))
        return 1;
    args.planes = planes;
    args.num_planes = expand->num_planes;
    args.capacity = dispatch->capacity;
    args.expanded_capacity = expand->capacity;
    args.index_type = self->world->spec.index_type;
    args.recv_topk_idx = dispatch->topk_idx.data;
    args.choice_rows = expand->choice_rows.data;
    args.recv_topk_weights = dispatch->topk_weights.data;
    args.row_weights = expand->row_weights.data;
    args.src_rows = expand->src_rows.data;
    args.gaps = expand->gaps;
    args.num_blocks = ep_rank_num_blocks(self, dispatch->shape.round);
    return issue_expand(self, args, is_again);
}

/* ---------------------------------------------------------------- reduce */

static uint64_t out_bytes(const struct ep_rank *self, const struct ep_dispatch *dispatch,
                          const struct ep_expand *expand)
{
    return (uint64_t)hidden_of(self, dispatch) * dtype_bytes(expand->out_dtype);
}

/* Of what the experts have made of each row, any values. */
static int make_sums(struct ep_rank *self, const struct ep_dispatch *dispatch,
                     struct ep_expand *expand)
{
    const uint64_t key = rng_of(self, dispatch).state;
    const int64_t hidden = hidden_of(self, dispatch);
    const uint64_t row_bytes = (uint64_t)hidden * dtype_bytes(expand->dtype);
    const uint64_t capacity = (uint64_t)dispatch->capacity;
    if (ep_array_alloc(self, &expand->rows, EP_INPUT, (uint64_t)expand->capacity * row_bytes, 0) ||
        ep_array_alloc(self, &expand->out, EP_OWN, capacity * out_bytes(self, dispatch, expand),
                       0) ||
        (expand->row_weights.bytes > 0 &&
         ep_array_alloc(self, &expand->topk_weights, EP_OWN, 4 * num_choices(self, dispatch), 0)))
        return 1;
    for (int32_t row = 0; row < expand->capacity; row++)
        ep_data_values(key, key % 2 == 0 ? EP_VALUES_SPECIAL : EP_VALUES_CANCELLING, row,
                       expand->dtype, (char *)expand->rows.host + (uint64_t)row * row_bytes,
                       hidden);
    return ep_array_push(self, &expand->rows);
}

static int reduce_rows(struct ep_rank *self, const struct ep_dispatch *dispatch,
                       struct ep_expand *expand)
{
    weft_ep_reduce_args args = WEFT_INIT(weft_ep_reduce_args);
    if (make_sums(self, dispatch, expand))
        return 1;
    args.rows = expand->rows.data;
    args.choice_rows = expand->choice_rows.data;
    args.out = expand->out.data;
    if (expand->topk_weights.bytes > 0) {
        args.row_weights = expand->row_weights.data;
        args.topk_weights = expand->topk_weights.data;
    }
    args.hidden = hidden_of(self, dispatch);
    args.dtype = expand->dtype;
    args.out_dtype = expand->out_dtype == expand->dtype ? WEFT_DTYPE_NONE : expand->out_dtype;
    args.capacity = dispatch->capacity;
    args.expanded_capacity = expand->capacity;
    args.num_blocks = ep_rank_num_blocks(self, dispatch->shape.round);
    CHECK_OK(weft_ep_reduce(self->handle, &args, self->stream));
    return 0;
}

int ep_expand_issue(struct ep_rank *self, const struct ep_dispatch *dispatch,
                    struct ep_expand *expand)
{
    const int32_t rank = self->context->rank;
    const struct ep_problem *problem = &self->world->problem;
    struct rng rng = rng_of(self, dispatch);
    *expand = (struct ep_expand){.num_expected = ep_oracle_num_expanded_rows(problem, rank)};
    if (dispatch->shape.topk == EP_TOPK_NONE)
        return 0;
    expand->expected = tests_alloc(sizeof *expand->expected * (size_t)(expand->num_expected + 1));
    ep_oracle_expand(problem, rank, &self->world->received[rank], ep_num_delivered(self, dispatch),
                     expand->expected);
    expand->capacity = ep_capacity_for(dispatch->shape.expanded_capacity, expand->num_expected);
    expand->gaps = (weft_ep_gaps)rng_below(&rng, 2);
    expand->dtype = (weft_dtype)(WEFT_BF16 + rng_below(&rng, 3));
    expand->out_dtype = rng_below(&rng, 2) == 0 ? expand->dtype : WEFT_FP32;
    return expand_rows(self, dispatch, expand, rng_below(&rng, 2) == 0) ||
           reduce_rows(self, dispatch, expand);
}

/* ---------------------------------------------------------------- results */

static int verify_row(struct ep_rank *self, const struct ep_array *src, const struct ep_array *dst,
                      uint64_t row_bytes, const struct ep_expand *expand, int32_t row)
{
    const int32_t src_row = row < expand->num_expected ? expand->expected[row].row : -1;
    char *other = tests_alloc(row_bytes);
    const int is_zeroed = expand->gaps == WEFT_GAPS_ZEROED && row < expand->num_expected;
    memset(other, is_zeroed ? 0 : EP_GUARD, row_bytes);
    const int failed =
        ep_compare(self, (const char *)dst->host + (uint64_t)row * row_bytes,
                   src_row < 0 ? other : (const char *)src->host + (uint64_t)src_row * row_bytes,
                   row_bytes, src_row < 0 ? "gap" : "expanded plane", row);
    tests_free(other);
    return failed;
}

static int verify_planes(struct ep_rank *self, const struct ep_dispatch *dispatch,
                         const struct ep_expand *expand)
{
    for (int32_t i = 0; i < expand->num_planes; i++) {
        const int is_scales = i == dispatch->shape.num_planes;
        const struct ep_array *src = is_scales ? &dispatch->scales : &dispatch->dst[i];
        for (int32_t row = 0; row < expand->capacity; row++)
            if (verify_row(self, src, &expand->dst[i],
                           expand->dst[i].bytes / (uint64_t)expand->capacity, expand, row))
                return 1;
    }
    return 0;
}

static int verify_notes(struct ep_rank *self, const struct ep_dispatch *dispatch,
                        const struct ep_expand *expand)
{
    const int32_t num_topk = self->world->spec.num_topk;
    const int32_t *src_rows = expand->src_rows.host;
    const float *weights = expand->row_weights.host, *sent = dispatch->topk_weights.host;
    for (int32_t row = 0; row < expand->capacity; row++) {
        const int is_there = row < expand->num_expected;
        const struct ep_expanded_row expected =
            is_there ? expand->expected[row] : (struct ep_expanded_row){-1, -1};
        CHECK(src_rows[row] == expected.row, "src_rows[%d] is %d, not %d", row, src_rows[row],
              expected.row);
        if (weights == NULL || !is_there)
            continue;
        const float weight = expected.row < 0 ? 0.0F : sent[expected.row * num_topk + expected.k];
        if (ep_compare(self, &weights[row], &weight, sizeof weight, "row_weights", row))
            return 1;
    }
    if (expand->num_expected > expand->capacity)
        return 0;
    return ep_array_untouched(&expand->row_weights, 4 * (uint64_t)expand->num_expected,
                              "row_weights");
}

/* [rows][num_topk] -1 for choices without a row. */
static int32_t *rows_of_choices(const struct ep_rank *self, const struct ep_dispatch *dispatch,
                                const struct ep_expand *expand)
{
    int32_t *rows = tests_alloc(sizeof *rows * num_choices(self, dispatch));
    memset(rows, -1, sizeof *rows * num_choices(self, dispatch));
    for (int32_t row = 0; row < expand->num_expected && row < expand->capacity; row++) {
        const struct ep_expanded_row *expected = &expand->expected[row];
        if (expected->row >= 0)
            rows[expected->row * self->world->spec.num_topk + expected->k] = row;
    }
    return rows;
}

/* In the order of the choices, from +0. */
static int verify_sum(struct ep_rank *self, const struct ep_dispatch *dispatch,
                      const struct ep_expand *expand, const int32_t *choices, int32_t row)
{
    const int64_t hidden = hidden_of(self, dispatch);
    const uint64_t row_bytes = out_bytes(self, dispatch, expand);
    float sum[MAX_HIDDEN] = {0}, weights[WEFT_MAX_TOPK] = {0};
    char expected[MAX_HIDDEN * sizeof(float)];
    for (int32_t k = 0; k < self->world->spec.num_topk; k++) {
        for (int64_t i = 0; i < hidden && choices[k] >= 0; i++)
            sum[i] += element_load(expand->dtype, expand->rows.host, choices[k] * hidden + i);
        if (choices[k] >= 0 && expand->topk_weights.bytes > 0)
            weights[k] = ((const float *)expand->row_weights.host)[choices[k]];
    }
    elements_from_fp32(expand->out_dtype, sum, (size_t)hidden, expected);
    if (ep_compare(self, (const char *)expand->out.host + (uint64_t)row * row_bytes, expected,
                   row_bytes, "sum", row))
        return 1;
    const uint64_t weights_bytes = 4 * (uint64_t)self->world->spec.num_topk;
    return expand->topk_weights.bytes > 0 &&
           ep_compare(self, (const char *)expand->topk_weights.host + (uint64_t)row * weights_bytes,
                      weights, weights_bytes, "topk_weights", row);
}

static int verify_sums(struct ep_rank *self, const struct ep_dispatch *dispatch,
                       const struct ep_expand *expand)
{
    const int32_t num_topk = self->world->spec.num_topk,
                  num_rows = ep_num_delivered(self, dispatch);
    int32_t *choices = rows_of_choices(self, dispatch, expand);
    int failed = ep_compare(self, expand->choice_rows.host, choices,
                            4 * (uint64_t)num_rows * (uint64_t)num_topk, "choice_rows", 0);
    for (int32_t row = 0; row < num_rows && !failed; row++)
        failed = verify_sum(self, dispatch, expand, choices + row * num_topk, row);
    tests_free(choices);
    return failed ||
           ep_array_untouched(&expand->out, (uint64_t)num_rows * out_bytes(self, dispatch, expand),
                              "out of reduce");
}

static int free_arrays(struct ep_rank *self, struct ep_expand *expand)
{
    for (int32_t i = 0; i < expand->num_planes; i++)
        if (ep_array_check_and_free(self, &expand->dst[i], "expanded plane"))
            return 1;
    return ep_array_check_and_free(self, &expand->choice_rows, "choice_rows") ||
           ep_array_check_and_free(self, &expand->row_weights, "row_weights") ||
           ep_array_check_and_free(self, &expand->src_rows, "src_rows") ||
           ep_array_free(self, &expand->rows) ||
           ep_array_check_and_free(self, &expand->out, "out of reduce") ||
           ep_array_check_and_free(self, &expand->topk_weights, "topk_weights of reduce");
}

static int pull_outputs(struct ep_rank *self, struct ep_dispatch *dispatch,
                        struct ep_expand *expand)
{
    struct ep_array *arrays[] = {&expand->choice_rows,   &expand->row_weights,  &expand->src_rows,
                                 &expand->out,           &expand->topk_weights, &dispatch->scales,
                                 &dispatch->topk_weights};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        if (ep_array_pull(self, arrays[i]))
            return 1;
    for (int32_t i = 0; i < expand->num_planes; i++)
        if (ep_array_pull(self, &expand->dst[i]) ||
            (i < dispatch->shape.num_planes && ep_array_pull(self, &dispatch->dst[i])))
            return 1;
    return 0;
}

int ep_expand_verify(struct ep_rank *self, struct ep_dispatch *dispatch, struct ep_expand *expand)
{
    if (expand->expected == NULL)
        return 0;
    const int failed = pull_outputs(self, dispatch, expand) ||
                       verify_planes(self, dispatch, expand) ||
                       verify_notes(self, dispatch, expand) || verify_sums(self, dispatch, expand);
    tests_free(expand->expected);
    return failed || free_arrays(self, expand);
}
