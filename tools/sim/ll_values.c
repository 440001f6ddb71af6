/* SPDX-License-Identifier: MIT */
#include "ll_values.h"

#include <math.h>

#include "narrow.h"
#include "workload/elements.h"

enum { RANK_FACTOR = 3, EXPERT_FACTOR = 5 }; /* what an answer tells of whence it comes */

static float rounded(weft_dtype dtype, float value)
{
    float stored = 0;
    element_store(dtype, &stored, 0, value);
    return element_load(dtype, &stored, 0);
}

static weft_dtype answer_dtype(const struct shape *shape)
{
    const weft_dtype dtype = shape->ll_terms.answer_dtype;
    return dtype == WEFT_DTYPE_NONE ? shape->combine_dtype : dtype;
}

/* ---------------------------------------------------------------- where rows are */

int32_t ll_num_local(const struct shape *shape, int32_t rank)
{
    return shape_first_expert(shape, rank + 1) - shape_first_expert(shape, rank);
}

int32_t ll_capacity(const struct shape *shape)
{
    const int32_t capacity = shape->ll_terms.expert_capacity;
    return capacity > 0 ? capacity : shape->num_ranks * shape->max_tokens;
}

size_t ll_row_bytes(const struct shape *shape)
{
    return (size_t)shape->ll_terms.hidden * dtype_bytes(shape->combine_dtype);
}

static int32_t expert_of(const struct shape *shape, struct ll_token token, int32_t k)
{
    return shape->experts[token.round][token.source][token.index][k];
}

int32_t ll_rank_of(const struct shape *shape, struct ll_token token, int32_t k)
{
    const int32_t expert = expert_of(shape, token, k);
    int32_t rank = 0;
    if (expert == SHAPE_NO_CHOICE)
        return -1;
    while (expert >= shape_first_expert(shape, rank + 1))
        rank++;
    return ll_are_cut(shape, token, token.source, rank) ? -1 : rank;
}

int ll_are_cut(const struct shape *shape, struct ll_token token, int32_t a, int32_t b)
{
    return (shape->ll_cuts[token.round][a] >> b & 1) != 0 ||
           (a != b && ((token.lost >> a | token.lost >> b) & 1) != 0);
}

int ll_goes_to(const struct shape *shape, struct ll_token token, int32_t rank)
{
    int goes_there = 0;
    for (int32_t k = 0; k < shape->num_topk; k++)
        goes_there |= ll_rank_of(shape, token, k) == rank;
    return goes_there;
}

int32_t ll_local_expert(const struct shape *shape, struct ll_token token, int32_t k)
{
    return expert_of(shape, token, k) - shape_first_expert(shape, ll_rank_of(shape, token, k));
}

float ll_weight(const struct shape *shape, struct ll_token token, int32_t k)
{
    return shape->ll_terms.has_weights ? shape_weight(token.round, token.source, token.index, k)
                                       : 1;
}

int32_t ll_num_tokens(const struct shape *shape, struct ll_token token)
{
    const int32_t num_tokens = shape->num_tokens[token.round][token.source];
    return token.result == 0 ? num_tokens : (num_tokens + 1) / 2;
}

int32_t ll_position(const struct shape *shape, struct ll_token token, int32_t k)
{
    const int32_t expert = expert_of(shape, token, k), rank = ll_rank_of(shape, token, k);
    int32_t num_before = 0;
    struct ll_token other = token;
    for (other.source = 0; other.source <= token.source; other.source++) {
        const int is_own = other.source == token.source;
        const int32_t end = is_own ? token.index + 1 : ll_num_tokens(shape, other);
        for (other.index = 0; other.index < end; other.index++) {
            const int is_last = is_own && other.index == token.index;
            for (int32_t j = 0; j < (is_last ? k : shape->num_topk); j++)
                num_before +=
                    ll_rank_of(shape, other, j) == rank && expert_of(shape, other, j) == expert;
        }
    }
    return num_before;
}

int32_t ll_row(const struct shape *shape, struct ll_token token, int32_t rank)
{
    int32_t num_before = 0;
    for (int32_t index = 0; index < token.index; index++)
        num_before += shape_goes_to(shape, token.round, token.source, index, rank);
    return num_before;
}

/* ---------------------------------------------------------------- elements */

float ll_element(const struct shape *shape, struct ll_token token, int32_t i)
{
    return rounded(shape->combine_dtype,
                   shape_element(token.round, token.result, token.source, token.index, i));
}

float ll_answer(const struct shape *shape, struct ll_token token, int32_t k, int32_t i)
{
    const int32_t rank = ll_rank_of(shape, token, k), expert = ll_local_expert(shape, token, k);
    return rounded(shape->combine_dtype,
                   ll_element(shape, token, i) +
                       (float)(1 + RANK_FACTOR * rank + EXPERT_FACTOR * expert));
}

/* ---------------------------------------------------------------- quantised rows */

weft_dtype ll_sent_dtype(const struct shape *shape)
{
    const weft_dtype narrow = shape->ll_terms.narrow_dtype;
    return narrow == WEFT_DTYPE_NONE ? shape->combine_dtype : narrow;
}

size_t ll_sent_bytes(const struct shape *shape)
{
    const int is_narrow = shape->ll_terms.narrow_dtype != WEFT_DTYPE_NONE;
    return (size_t)shape->ll_terms.hidden * (is_narrow ? 1 : dtype_bytes(shape->combine_dtype));
}

int32_t ll_num_groups(const struct shape *shape)
{
    const struct ll_terms *terms = &shape->ll_terms;
    return terms->narrow_dtype == WEFT_DTYPE_NONE ? 0 : terms->hidden / terms->group_elements;
}

/* Elements are 1 or more, so that the least amax does not matter. */
static float largest(const struct shape *shape, struct ll_token token, int32_t group)
{
    const int32_t first = group * shape->ll_terms.group_elements;
    float amax = 0;
    for (int32_t i = first; i < first + shape->ll_terms.group_elements; i++)
        amax = fmaxf(amax, ll_element(shape, token, i));
    return amax;
}

float ll_scale(const struct shape *shape, struct ll_token token, int32_t group)
{
    const struct ll_terms *terms = &shape->ll_terms;
    return narrow_scale(terms->narrow_dtype, terms->scale, largest(shape, token, group));
}

float ll_sent_element(const struct shape *shape, struct ll_token token, int32_t i)
{
    const struct ll_terms *terms = &shape->ll_terms;
    const float value = ll_element(shape, token, i);
    if (terms->narrow_dtype == WEFT_DTYPE_NONE)
        return value;
    return narrow_element(terms->narrow_dtype, terms->scale,
                          largest(shape, token, i / terms->group_elements), value);
}

/* ---------------------------------------------------------------- answers */

static int has_room(const struct shape *shape, struct ll_token token, int32_t k)
{
    return shape->ll_terms.layout == WEFT_LL_BY_RANK ||
           ll_position(shape, token, k) < ll_capacity(shape);
}

/* In fp32, in ascending order of the choices. */
static float sum_of_rank(const struct shape *shape, struct ll_token token, int32_t rank, int32_t i)
{
    float sum = 0;
    for (int32_t k = 0; k < shape->num_topk; k++) {
        if (ll_rank_of(shape, token, k) != rank || !has_room(shape, token, k))
            continue;
        const float product = ll_answer(shape, token, k, i) * ll_weight(shape, token, k);
        sum += product;
    }
    return sum;
}

float ll_answer_of_rank(const struct shape *shape, struct ll_token token, int32_t rank, int32_t i)
{
    return rounded(shape->combine_dtype, sum_of_rank(shape, token, rank, i));
}

static float sum_of_sums(const struct shape *shape, struct ll_token token, int32_t i)
{
    float sum = 0;
    for (int32_t rank = 0; rank < shape->num_ranks; rank++) {
        if (!ll_goes_to(shape, token, rank))
            continue;
        const float answer = shape->ll_terms.layout == WEFT_LL_BY_RANK
                                 ? ll_answer_of_rank(shape, token, rank, i)
                                 : sum_of_rank(shape, token, rank, i);
        sum += rounded(answer_dtype(shape), answer);
    }
    return sum;
}

static float sum_of_rows(const struct shape *shape, struct ll_token token, int32_t i)
{
    float sum = 0;
    for (int32_t k = 0; k < shape->num_topk; k++) {
        if (ll_rank_of(shape, token, k) < 0 || !has_room(shape, token, k))
            continue;
        const float answer = rounded(answer_dtype(shape), ll_answer(shape, token, k, i));
        const float product = answer * ll_weight(shape, token, k);
        sum += product;
    }
    return sum;
}

float ll_combined(const struct shape *shape, struct ll_token token, int32_t i)
{
    const float sum = shape->ll_terms.answer == WEFT_LL_ANSWER_ROWS ? sum_of_rows(shape, token, i)
                                                                    : sum_of_sums(shape, token, i);
    return rounded(shape->combine_dtype, sum);
}
