/* SPDX-License-Identifier: MIT */
/* What reductions and sums of rows must give, by the arithmetic of tools/workload, which shares
 * nothing with the library. */
#pragma once

#include <math.h>
#include <string.h>

#include "machine/machine.h"
#include "workload/elements.h"

enum { REFERENCE_MAX_SRCS = 15 };

/* An element's bits; FP8 and the like in the lowest ones. */
static inline uint64_t load_bits(weft_dtype dtype, const void *row, int64_t i)
{
    const uint64_t bytes = dtype_bytes(dtype);
    uint64_t bits = 0;
    memcpy(&bits, (const char *)row + (uint64_t)i * bytes, bytes);
    return bits;
}

/* Reduces the sources that are not NULL, in order. */
static inline void reduce_reference(struct wp_reduction reduction, const void *const *srcs,
                                    int32_t num_srcs, int64_t num_elements, void *expected)
{
    const int from_zero = reduction.op == WP_REDUCTION_SUM_FROM_ZERO;
    const weft_reduce_op op = from_zero ? WEFT_SUM : (weft_reduce_op)reduction.op;
    const void *rows[REFERENCE_MAX_SRCS + 1];
    int32_t num_rows = 0;
    if (from_zero)
        rows[num_rows++] =
            memset(expected, 0, (uint64_t)num_elements * dtype_bytes(reduction.dtype));
    for (int32_t s = 0; s < num_srcs; s++) {
        if (srcs[s] != NULL)
            rows[num_rows++] = srcs[s];
    }
    elements_reduce_rows(reduction.dtype, op, num_rows, rows, (uint64_t)num_elements, expected);
}

static inline weft_dtype mixed_src_dtype(struct wp_mixed_sum sum, int32_t i)
{
    return i < sum.num_first ? sum.first_dtype : sum.rest_dtype;
}

static inline void sum_mixed_reference(struct wp_mixed_sum sum, const void *const *srcs,
                                       int32_t num_srcs, int64_t num_elements, void *expected)
{
    for (int64_t i = 0; i < num_elements; i++) {
        float result = 0;
        for (int32_t s = 0; s < num_srcs; s++) {
            if (srcs[s] != NULL)
                result += element_load(mixed_src_dtype(sum, s), srcs[s], i);
        }
        element_store(sum.dst_dtype, expected, i, result);
    }
}
