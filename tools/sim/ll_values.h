/* SPDX-License-Identifier: MIT */
/* The choices and rows of low latency in a scenario, for the oracle (workload/low_latency.h), which
 * tells what must come of them. */
#pragma once

#include "party.h"
#include "workload/low_latency.h"

weft_ll_config ll_config(const struct shape *shape, int32_t rank);
int32_t ll_num_local(const struct shape *shape, int32_t rank);
size_t ll_row_bytes(const struct shape *shape);
/* The tokens of a source in a result: the second of a round has half as many, which blocks share
 * otherwise. */
int32_t ll_num_tokens(const struct shape *shape, int32_t round, int32_t result, int32_t source);
float ll_weight(const struct shape *shape, int32_t round, int32_t source, int32_t index, int32_t k);

/* The subject of a result. */
struct ll_about {
    const struct shape *shape;
    int32_t round, result;
    uint64_t lost; /* bits of ranks that do nothing for others, nor they for them */
};

/* The row of a token of `source`. */
void ll_fill_token(const struct ll_about *about, int32_t source, int32_t index, void *elements);

/* The results that a rank must get. ll_oracle_close follows, whatever the result. */
struct ll_expected {
    struct ll_oracle oracle;
    struct ll_about about;
};
weft_result ll_open_expected(struct ll_expected *expected, const struct party *party, int32_t round,
                             int32_t result, uint64_t lost);
