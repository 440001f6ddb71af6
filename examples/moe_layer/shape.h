/* SPDX-License-Identifier: MIT */
/* The sizes of the layer and of its batch. Ranks have different numbers of tokens; tokens are also
 * numbered globally, rank after rank. */
#pragma once

#include <stdint.h>

struct shape {
    int32_t num_ranks;
    int32_t num_tokens; /* per rank, at most */
    int32_t hidden;
    int32_t ffn; /* width of an expert's inner layer */
    int32_t num_experts;
    int32_t num_topk;
    uint64_t seed;
    float skew; /* of the router: how unevenly the experts are loaded */
};

static inline int32_t shape_num_tokens(const struct shape *shape, int32_t rank)
{
    const int32_t fewer = rank % 3;
    return shape->num_tokens > fewer ? shape->num_tokens - fewer : 0;
}

/* Of rank num_ranks: the number of all tokens. */
static inline int64_t shape_first_token(const struct shape *shape, int32_t rank)
{
    int64_t first = 0;
    for (int32_t r = 0; r < rank; r++)
        first += shape_num_tokens(shape, r);
    return first;
}
