/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "harness/memory.h"
#include "oracle/ep_check.h"
#include "workload/elements.h"
#include "workload/quantised.h"
#include "workload/rng.h"

/* Numbers of the outputs (ep_reach_place): planes, and behind them these. */
enum { OUTPUT_IDS = WEFT_MAX_PLANES, OUTPUT_WEIGHTS, OUTPUT_SRC_TOKEN, OUTPUT_SCALES };

static uint64_t plane_key(const struct ep_rank *self, const struct ep_dispatch_shape *shape,
                          int32_t plane)
{
    return rng_key(rng_key(self->world->spec.seed, shape->round), (uint64_t)plane);
}

static uint64_t index_bytes(const struct ep_rank *self)
{
    return self->world->spec.index_type == WEFT_INT32 ? 4 : 8;
}

static int make_output(struct ep_rank *self, const struct ep_dispatch *dispatch,
                       struct ep_array *output, int32_t which, uint64_t bytes,
                       uint64_t misalign_bytes)
{
    return ep_array_alloc(self, output, ep_reach_place(self, dispatch->shape.round, which), bytes,
                          misalign_bytes);
}

/* ---------------------------------------------------------------- quantised planes */

static int is_quantised(const struct ep_plane_shape *shape)
{
    return shape->quantisation.dtype != WEFT_DTYPE_NONE;
}

static int64_t num_elements(const struct ep_plane_shape *shape)
{
    return (int64_t)(shape->row_bytes / dtype_bytes(shape->dtype));
}

uint64_t ep_plane_received_bytes(const struct ep_plane_shape *shape)
{
    return is_quantised(shape) ? (uint64_t)num_elements(shape) : shape->row_bytes;
}

static int64_t group_elements(const struct ep_plane_shape *shape)
{
    return shape->quantisation.group_elements == 0 ? num_elements(shape)
                                                   : shape->quantisation.group_elements;
}

uint64_t ep_plane_scales_bytes(const struct ep_plane_shape *shape)
{
    if (!is_quantised(shape))
        return 0;
    return (uint64_t)(num_elements(shape) / group_elements(shape)) *
           (shape->quantisation.scale == WEFT_SCALE_UE8M0 ? 1 : sizeof(float));
}

/* A row as its source has it. */
static void make_row(uint64_t key, const struct ep_plane_shape *shape, int64_t global_token,
                     void *row)
{
    if (is_quantised(shape))
        ep_data_values(key, global_token % 2 == 0 ? EP_VALUES_SPECIAL : EP_VALUES_CANCELLING,
                       global_token, shape->dtype, row, num_elements(shape));
    else
        ep_data_bytes(key, global_token, row, shape->row_bytes);
}

/* The same as it is received, with its scales. */
static void receive_row(const struct ep_plane_shape *shape, const char *sent, char *row,
                        char *scales)
{
    if (!is_quantised(shape)) {
        memcpy(row, sent, shape->row_bytes);
        return;
    }
    const struct quantised_form form = {shape->dtype, shape->quantisation.dtype,
                                        shape->quantisation.scale, group_elements(shape),
                                        sizeof(float)};
    quantised_make_row(&form, sent, num_elements(shape), row, scales);
}

/* ---------------------------------------------------------------- inputs and outputs */

static int make_scales(struct ep_rank *self, struct ep_dispatch *dispatch, int32_t plane)
{
    const struct ep_plane_shape *shape = &dispatch->shape.planes[plane];
    weft_plane *given = &dispatch->planes[plane];
    if (make_output(self, dispatch, &dispatch->scales, OUTPUT_SCALES,
                    (uint64_t)dispatch->capacity * ep_plane_scales_bytes(shape),
                    shape->dst_misalign_bytes))
        return 1;
    given->scales = dispatch->scales.data;
    given->dtype = shape->dtype;
    given->quantisation = shape->quantisation;
    return 0;
}

static int make_plane(struct ep_rank *self, struct ep_dispatch *dispatch, int32_t plane)
{
    const struct ep_plane_shape *shape = &dispatch->shape.planes[plane];
    const int32_t rank = self->context->rank;
    const int32_t num_tokens = ep_oracle_num_tokens(&self->world->problem, rank);
    const uint64_t stride_bytes = shape->row_bytes + shape->src_gap_bytes;
    const uint64_t dst_bytes = (uint64_t)dispatch->capacity * ep_plane_received_bytes(shape);
    struct ep_array *src = &dispatch->src[plane];
    if (make_output(self, dispatch, &dispatch->dst[plane], plane, dst_bytes,
                    shape->dst_misalign_bytes) ||
        ep_array_alloc(self, src, EP_INPUT, (uint64_t)num_tokens * stride_bytes,
                       shape->src_misalign_bytes))
        return 1;
    for (int32_t token = 0; token < num_tokens; token++)
        make_row(plane_key(self, &dispatch->shape, plane), shape,
                 self->world->problem.first_tokens[rank] + token,
                 (char *)src->host + (uint64_t)token * stride_bytes);
    dispatch->planes[plane] =
        (weft_plane){.size = sizeof(weft_plane),
                     .src = src->data,
                     .dst = dispatch->dst[plane].data,
                     .row_bytes = shape->row_bytes,
                     .src_stride_bytes = shape->src_gap_bytes == 0 ? 0 : stride_bytes};
    return (is_quantised(shape) && make_scales(self, dispatch, plane)) || ep_array_push(self, src);
}

static int make_row_outputs(struct ep_rank *self, struct ep_dispatch *dispatch)
{
    const uint64_t capacity = (uint64_t)dispatch->capacity;
    const uint64_t num_choices = capacity * (uint64_t)self->world->spec.num_topk;
    const enum ep_topk topk = dispatch->shape.topk;
    return (topk != EP_TOPK_NONE && make_output(self, dispatch, &dispatch->topk_idx, OUTPUT_IDS,
                                                num_choices * index_bytes(self), 0)) ||
           (topk == EP_TOPK_IDS_AND_WEIGHTS && make_output(self, dispatch, &dispatch->topk_weights,
                                                           OUTPUT_WEIGHTS, num_choices * 4, 0)) ||
           (dispatch->shape.src_token == EP_WITH &&
            make_output(self, dispatch, &dispatch->src_token, OUTPUT_SRC_TOKEN, capacity * 4, 0));
}

int ep_dispatch_issue(struct ep_rank *self, const struct ep_dispatch_shape *shape,
                      struct ep_dispatch *dispatch)
{
    const int32_t rank = self->context->rank;
    struct ep_inputs inputs;
    weft_ep_dispatch_args args = WEFT_INIT(weft_ep_dispatch_args);
    *dispatch = (struct ep_dispatch){
        .shape = *shape, .capacity = ep_capacity_of(self->world, shape->capacity, rank)};
    for (int32_t plane = 0; plane < shape->num_planes; plane++)
        if (make_plane(self, dispatch, plane))
            return 1;
    if (make_row_outputs(self, dispatch) || ep_rank_inputs(self, &inputs))
        return 1;
    args.num_planes = shape->num_planes;
    args.planes = shape->num_planes == 0 ? NULL : dispatch->planes;
    args.capacity = dispatch->capacity;
    args.index_type = self->world->spec.index_type;
    if (shape->topk != EP_TOPK_NONE)
        args.topk_idx = inputs.topk_idx;
    if (shape->topk == EP_TOPK_IDS_AND_WEIGHTS)
        args.topk_weights = inputs.topk_weights;
    args.recv_topk_idx = dispatch->topk_idx.data;
    args.recv_topk_weights = dispatch->topk_weights.data;
    args.recv_src_token = dispatch->src_token.data;
    args.num_blocks = ep_rank_num_blocks(self, shape->round);
    CHECK_OK(weft_ep_dispatch(self->handle, &args, self->stream));
    return 0;
}

/* Row `row` of the output, as it should be: of which there are so many bytes. */
static int compare_row(struct ep_rank *self, const struct ep_array *output, const char *expected,
                       uint64_t row_bytes, const char *name, int32_t row)
{
    return ep_compare(self, (const char *)output->host + (uint64_t)row * row_bytes, expected,
                      row_bytes, name, row);
}

static int verify_plane(struct ep_rank *self, struct ep_dispatch *dispatch, int32_t plane)
{
    const struct ep_plane_shape *shape = &dispatch->shape.planes[plane];
    const struct ep_token *rows = self->world->received[self->context->rank].rows;
    char *sent = tests_alloc(shape->row_bytes), *expected = tests_alloc(shape->row_bytes);
    char *scales = is_quantised(shape) ? tests_alloc(ep_plane_scales_bytes(shape)) : NULL;
    int failed = 0;
    for (int32_t row = 0; row < ep_num_delivered(self, dispatch) && !failed; row++) {
        make_row(plane_key(self, &dispatch->shape, plane), shape,
                 ep_oracle_number(&self->world->problem, rows[row]), sent);
        receive_row(shape, sent, expected, scales);
        failed = compare_row(self, &dispatch->dst[plane], expected, ep_plane_received_bytes(shape),
                             "plane", row) ||
                 (scales != NULL && compare_row(self, &dispatch->scales, scales,
                                                ep_plane_scales_bytes(shape), "scales", row));
    }
    tests_free(sent);
    tests_free(expected);
    tests_free(scales);
    return failed || ep_array_check_and_free(self, &dispatch->dst[plane], "plane") ||
           (is_quantised(shape) && ep_array_check_and_free(self, &dispatch->scales, "scales"));
}

/* Rows that did not come have -1 in all their ids. */
static int verify_notes(struct ep_rank *self, struct ep_dispatch *dispatch)
{
    const struct ep_token *rows = self->world->received[self->context->rank].rows;
    const struct ep_checker checker = ep_checker_of(self);
    const struct ep_row_notes notes = {self->world->spec.index_type, dispatch->topk_idx.host,
                                       dispatch->topk_weights.host, dispatch->src_token.host};
    const int32_t num_rows = ep_num_delivered(self, dispatch);
    const uint64_t weight_bytes = 4 * (uint64_t)num_rows * (uint64_t)self->world->spec.num_topk;
    for (int32_t row = 0; row < num_rows; row++)
        ep_oracle_check_notes(&checker, &notes, row, rows[row]);
    if (notes.topk_idx != NULL)
        ep_oracle_check_no_more(&checker, &notes, num_rows, dispatch->capacity);
    return ep_checker_failed() ||
           ep_array_untouched(&dispatch->topk_weights, weight_bytes, "recv_topk_weights") ||
           ep_array_check_and_free(self, &dispatch->topk_idx, "recv_topk_idx") ||
           ep_array_check_and_free(self, &dispatch->topk_weights, "recv_topk_weights") ||
           ep_array_check_and_free(self, &dispatch->src_token, "recv_src_token");
}

static int pull_outputs(struct ep_rank *self, struct ep_dispatch *dispatch)
{
    for (int32_t plane = 0; plane < dispatch->shape.num_planes; plane++)
        if (ep_array_pull(self, &dispatch->dst[plane]))
            return 1;
    return ep_array_pull(self, &dispatch->scales) || ep_array_pull(self, &dispatch->topk_idx) ||
           ep_array_pull(self, &dispatch->topk_weights) ||
           ep_array_pull(self, &dispatch->src_token);
}

int ep_dispatch_verify(struct ep_rank *self, struct ep_dispatch *dispatch)
{
    if (pull_outputs(self, dispatch))
        return 1;
    for (int32_t plane = 0; plane < dispatch->shape.num_planes; plane++)
        if (verify_plane(self, dispatch, plane) || ep_array_free(self, &dispatch->src[plane]))
            return 1;
    return verify_notes(self, dispatch);
}
