/* SPDX-License-Identifier: MIT */
/* Rows that are to be summed with weights, and what must come out. */
#pragma once

#include "mixed_rows.h"

enum { WEIGHTED_DTYPES = 3, NUM_WEIGHTED_SUMS = WEIGHTED_DTYPES * WEIGHTED_DTYPES };

/* The rows are those of a sum whose first and other sources have one type. */
struct weighted_rows {
    struct mixed_rows rows;
    float drawn[MIXED_MAX_SRCS];
    const float *weights; /* the drawn ones, or NULL */
};

static inline struct wp_weighted_sum weighted_sum_of(const struct weighted_rows *weighted)
{
    return (struct wp_weighted_sum){weighted->rows.sum.first_dtype, weighted->rows.sum.dst_dtype,
                                    weighted->rows.sum.reuse};
}

/* Sum number `idx`, below NUM_WEIGHTED_SUMS. */
static inline struct wp_mixed_sum numbered_weighted_sum(int idx)
{
    static const weft_dtype dtypes[WEIGHTED_DTYPES] = {WEFT_BF16, WEFT_FP16, WEFT_FP32};
    const weft_dtype src_dtype = dtypes[idx % WEIGHTED_DTYPES];
    return (struct wp_mixed_sum){.first_dtype = src_dtype,
                                 .rest_dtype = src_dtype,
                                 .dst_dtype = dtypes[idx / WEIGHTED_DTYPES]};
}

/* Products of floats are exact in double, and their sums round as if they were. */
static inline void expect_weighted_sum(struct weighted_rows *weighted)
{
    struct mixed_rows *rows = &weighted->rows;
    for (int64_t i = 0; i < rows->num_elements; i++) {
        float result = 0;
        for (int32_t s = 0; s < rows->num_srcs; s++) {
            if (rows->srcs[s] == NULL)
                continue;
            const double weight = weighted->weights == NULL ? 1 : weighted->weights[s];
            const float product =
                (float)(weight * (double)element_load(rows->sum.first_dtype, rows->srcs[s], i));
            result = (float)((double)result + (double)product);
        }
        element_store(rows->sum.dst_dtype, rows->expected, i, result);
    }
}

static inline void draw_weighted_rows(struct weighted_rows *weighted, int idx, uint64_t *state)
{
    draw_mixed_rows(&weighted->rows, numbered_weighted_sum(idx), state);
    fill_row(WEFT_FP32, weighted->drawn, MIXED_MAX_SRCS, state);
    weighted->weights = next_random(state) % 8 == 0 ? NULL : weighted->drawn;
    expect_weighted_sum(weighted);
}

/* Every special value of the type by one of fp32, which differs from source to source. */
static inline void weigh_special_values(struct weighted_rows *weighted, int idx, int weight_idx)
{
    pair_special_values(&weighted->rows, numbered_weighted_sum(idx));
    for (int s = 0; s < 2; s++) {
        const uint32_t bits =
            (uint32_t)special_number(WEFT_FP32, (weight_idx + s) % NUM_SPECIAL_NUMBERS);
        memcpy(&weighted->drawn[s], &bits, sizeof bits);
    }
    weighted->weights = weighted->drawn;
    expect_weighted_sum(weighted);
}
