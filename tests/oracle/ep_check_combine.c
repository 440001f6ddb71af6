/* SPDX-License-Identifier: MIT */

#include "harness/memory.h"
#include "oracle/ep_check.h"
#include "workload/elements.h"
#include "workload/rng.h"

/* Which of the rows of a round: each has a key of its own. */
enum { KEY_X = 100, KEY_WEIGHTS = 200, KEY_BIAS = 300 };

/* Numbers of what other ranks read (ep_reach_place). */
enum { INPUT_X = 20, INPUT_WEIGHTS };

/* What the rows of all ranks are made from. */
struct reader {
    const struct ep_world *world;
    const struct ep_combine_shape *shape;
    void *x; /* a row of the shape's, for what is expected */
};

static uint64_t row_key(const struct reader *reader, int32_t which)
{
    return rng_key(rng_key(reader->world->spec.seed, reader->shape->round), (uint64_t)which);
}

/* Row of a token on the rank that answers it. */
static void fill_x(const struct reader *reader, int32_t rank, struct ep_token token, void *x)
{
    ep_data_values(row_key(reader, KEY_X + rank), reader->shape->values,
                   ep_oracle_number(&reader->world->problem, token), reader->shape->dtype, x,
                   reader->shape->hidden);
}

static void fill_weights(const struct reader *reader, int32_t rank, struct ep_token token,
                         float *weights)
{
    ep_data_values(row_key(reader, KEY_WEIGHTS + rank), reader->shape->values,
                   ep_oracle_number(&reader->world->problem, token), WEFT_FP32, weights,
                   reader->world->spec.num_topk);
}

static uint64_t row_bytes_of(const struct ep_combine_shape *shape)
{
    return (uint64_t)shape->hidden * dtype_bytes(shape->dtype);
}

static int32_t num_own_tokens(const struct ep_rank *self)
{
    return ep_oracle_num_tokens(&self->world->problem, self->context->rank);
}

/* Rows that answer nothing keep the guard pattern: if they were read, it would show. */
static int make_x(struct ep_rank *self, struct ep_combine *combine)
{
    const struct reader reader = {self->world, &combine->shape, NULL};
    const int32_t rank = self->context->rank;
    const int32_t num_topk = self->world->spec.num_topk;
    const int32_t num_rows = self->world->received[rank].num_rows;
    const int32_t capacity = ep_capacity_of(self->world, combine->shape.capacity, rank);
    const uint64_t row_bytes = row_bytes_of(&combine->shape);
    const uint64_t round = combine->shape.round;
    if (ep_array_alloc(self, &combine->x, ep_reach_place(self, round, INPUT_X),
                       (uint64_t)capacity * row_bytes, combine->shape.misalign_bytes))
        return 1;
    if (combine->shape.weights == EP_WITH &&
        ep_array_alloc(self, &combine->weights, ep_reach_place(self, round, INPUT_WEIGHTS),
                       4 * (uint64_t)capacity * (uint64_t)num_topk, 0))
        return 1;
    for (int32_t row = 0; row < num_rows && row < capacity; row++) {
        const struct ep_token token = self->world->received[rank].rows[row];
        fill_x(&reader, rank, token, (char *)combine->x.host + (uint64_t)row * row_bytes);
        if (combine->shape.weights == EP_WITH)
            fill_weights(&reader, rank, token, (float *)combine->weights.host + row * num_topk);
    }
    return ep_array_push(self, &combine->x) || ep_array_push(self, &combine->weights);
}

static int make_bias(struct ep_rank *self, struct ep_combine *combine)
{
    const struct reader reader = {self->world, &combine->shape, NULL};
    const uint64_t row_bytes = row_bytes_of(&combine->shape);
    const enum ep_bias missing[2] = {EP_BIAS_SECOND, EP_BIAS_FIRST};
    for (int which = 0; which < 2; which++) {
        if (combine->shape.bias == EP_BIAS_NONE || combine->shape.bias == missing[which])
            continue;
        if (ep_array_alloc(self, &combine->bias[which], EP_OWN,
                           (uint64_t)num_own_tokens(self) * row_bytes,
                           combine->shape.misalign_bytes))
            return 1;
        for (int32_t token = 0; token < num_own_tokens(self); token++)
            ep_data_values(row_key(&reader, KEY_BIAS + which), combine->shape.values,
                           self->world->problem.first_tokens[self->context->rank] + token,
                           combine->shape.dtype,
                           (char *)combine->bias[which].host + (uint64_t)token * row_bytes,
                           combine->shape.hidden);
        if (ep_array_push(self, &combine->bias[which]))
            return 1;
    }
    return 0;
}

static int make_out(struct ep_rank *self, struct ep_combine *combine)
{
    const uint64_t num_tokens = (uint64_t)num_own_tokens(self);
    if (ep_array_alloc(self, &combine->out, EP_OWN, num_tokens * row_bytes_of(&combine->shape),
                       combine->shape.misalign_bytes))
        return 1;
    return combine->shape.weights == EP_WITH &&
           ep_array_alloc(self, &combine->out_weights, EP_OWN,
                          4 * num_tokens * (uint64_t)self->world->spec.num_topk, 0);
}

int ep_combine_issue(struct ep_rank *self, const struct ep_combine_shape *shape,
                     struct ep_combine *combine)
{
    weft_ep_combine_args args = WEFT_INIT(weft_ep_combine_args);
    *combine = (struct ep_combine){.shape = *shape};
    if (make_x(self, combine) || make_bias(self, combine) || make_out(self, combine))
        return 1;
    args.dtype = shape->dtype;
    args.hidden = shape->hidden;
    args.capacity = ep_capacity_of(self->world, shape->capacity, self->context->rank);
    args.x = combine->x.data;
    args.bias[0] = combine->bias[0].data;
    args.bias[1] = combine->bias[1].data;
    args.out = combine->out.data;
    args.topk_weights = combine->weights.data;
    args.out_topk_weights = combine->out_weights.data;
    args.num_blocks = ep_rank_num_blocks(self, shape->round);
    CHECK_OK(weft_ep_combine(self->handle, &args, self->stream));
    return 0;
}

/* ---------------------------------------------------------------- results */

/* Rows beyond the capacity that a rank gives count as 0. */
static int has_room(const struct reader *reader, int32_t rank, struct ep_token token)
{
    const struct ep_world *world = reader->world;
    return world->received[rank].row_of_token[ep_oracle_number(&world->problem, token)] <
           ep_capacity_of(world, reader->shape->capacity, rank);
}

static int read_x(void *of, struct ep_token token, int32_t rank, float *values)
{
    const struct reader *reader = of;
    fill_x(reader, rank, token, reader->x);
    elements_to_fp32(reader->shape->dtype, reader->x, (size_t)reader->shape->hidden, values);
    return has_room(reader, rank, token);
}

static int read_weights(void *of, struct ep_token token, int32_t rank, float *values)
{
    fill_weights(of, rank, token, values);
    return has_room(of, rank, token);
}

static float bias_element(const struct ep_combine *combine, int which, int64_t i)
{
    const void *bias = combine->bias[which].host;
    return bias == NULL ? 0.0F : element_load(combine->shape.dtype, bias, i);
}

static int verify_token(struct ep_rank *self, const struct ep_combine *combine,
                        struct reader *reader, int32_t idx, float *sum)
{
    const struct ep_combine_shape *shape = &combine->shape;
    const struct ep_problem *problem = &self->world->problem;
    const struct ep_token token = {self->context->rank, idx};
    const uint64_t row_bytes = row_bytes_of(shape);
    const int64_t hidden = shape->hidden;
    float weights[3 * WEFT_MAX_TOPK] = {0};
    for (int64_t i = 0; i < hidden; i++)
        sum[i] = 0.0F + (bias_element(combine, 0, idx * hidden + i) +
                         bias_element(combine, 1, idx * hidden + i));
    ep_oracle_combine(
        problem, &(struct ep_answers){hidden, shape->dtype, self->world->spec.wire, read_x, reader},
        token, sum, sum + hidden);
    elements_from_fp32(shape->dtype, sum, (size_t)hidden, reader->x);
    if (ep_compare(self, (char *)combine->out.host + (uint64_t)idx * row_bytes, reader->x,
                   row_bytes, "out", idx))
        return 1;
    if (shape->weights == EP_WITHOUT)
        return 0;
    ep_oracle_combine(
        problem,
        &(struct ep_answers){problem->num_topk, WEFT_FP32, WEFT_FP32, read_weights, reader}, token,
        weights, weights + problem->num_topk);
    return ep_compare(self, (float *)combine->out_weights.host + idx * problem->num_topk, weights,
                      4 * (uint64_t)problem->num_topk, "out_topk_weights", idx);
}

static int verify_tokens(struct ep_rank *self, const struct ep_combine *combine)
{
    struct reader reader = {self->world, &combine->shape,
                            tests_alloc(row_bytes_of(&combine->shape))};
    float *sum = tests_alloc(3 * sizeof *sum * (size_t)combine->shape.hidden);
    int failed = 0;
    for (int32_t token = 0; token < num_own_tokens(self) && !failed; token++)
        failed = verify_token(self, combine, &reader, token, sum);
    tests_free(reader.x);
    tests_free(sum);
    return failed;
}

int ep_combine_verify(struct ep_rank *self, struct ep_combine *combine)
{
    return ep_array_pull(self, &combine->out) || ep_array_pull(self, &combine->out_weights) ||
           verify_tokens(self, combine) || ep_array_check_and_free(self, &combine->x, "x") ||
           ep_array_check_and_free(self, &combine->weights, "topk_weights") ||
           ep_array_check_and_free(self, &combine->bias[0], "bias[0]") ||
           ep_array_check_and_free(self, &combine->bias[1], "bias[1]") ||
           ep_array_check_and_free(self, &combine->out, "out") ||
           ep_array_check_and_free(self, &combine->out_weights, "out_topk_weights");
}
