/* SPDX-License-Identifier: MIT */
/* What low-latency dispatch delivers and combine gives in a scenario, computed from the shape by plain
 * loops, as weft.h defines it. */
#pragma once

#include "shape.h"

/* A token of a result. */
struct ll_token {
    int32_t round, result;
    int32_t source, index;
    uint64_t lost; /* bits of ranks that do nothing for others, nor they for them */
};

/* Whether two ranks do nothing for each other in the token's round. */
int ll_are_cut(const struct shape *shape, struct ll_token token, int32_t a, int32_t b);
int ll_goes_to(const struct shape *shape, struct ll_token token, int32_t rank);

/* Of the token's source in its result: the second of a round has half as many, which blocks share otherwise. */
int32_t ll_num_tokens(const struct shape *shape, struct ll_token token);
int32_t ll_num_local(const struct shape *shape, int32_t rank);
int32_t ll_capacity(const struct shape *shape);
size_t ll_row_bytes(const struct shape *shape);

/* Of choice k: the rank of its expert, -1: nowhere; and the expert's number there. */
int32_t ll_rank_of(const struct shape *shape, struct ll_token token, int32_t k);
int32_t ll_local_expert(const struct shape *shape, struct ll_token token, int32_t k);
float ll_weight(const struct shape *shape, struct ll_token token, int32_t k);
/* How many selections of its expert come before choice k of the token. */
int32_t ll_position(const struct shape *shape, struct ll_token token, int32_t k);
/* How many of the source's tokens before it go to the rank. */
int32_t ll_row(const struct shape *shape, struct ll_token token, int32_t rank);

/* Rows as they are sent: element i, which is quantised or not, its bytes, and the scale of a group, a number. */
size_t ll_sent_bytes(const struct shape *shape);
int32_t ll_num_groups(const struct shape *shape); /* 0: rows are not quantised */
weft_dtype ll_sent_dtype(const struct shape *shape);
float ll_sent_element(const struct shape *shape, struct ll_token token, int32_t i);
float ll_scale(const struct shape *shape, struct ll_token token, int32_t group);

/* Element i of the token; of what the expert of choice k makes of it; of what those of a rank make of it
 * together, as a caller sums them; and of what combine gives. */
float ll_element(const struct shape *shape, struct ll_token token, int32_t i);
float ll_answer(const struct shape *shape, struct ll_token token, int32_t k, int32_t i);
float ll_answer_of_rank(const struct shape *shape, struct ll_token token, int32_t rank, int32_t i);
float ll_combined(const struct shape *shape, struct ll_token token, int32_t i);
