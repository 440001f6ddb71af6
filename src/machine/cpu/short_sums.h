/* SPDX-License-Identifier: MIT */
/*
 * Sums from zero of few rows of one type, without a tile's accumulators: the same additions in the
 * same order, in a fifth less time for 2 to 4 rows of 14 KiB that come from memory. Part of
 * rows_variant.h, hence compiled once per instruction set.
 */
#pragma once

#include "machine/cpu/reduce_ops.h"

enum { MOST_FEW = 8 };

/* Sums as many rows as the function is for. */
typedef void short_sum_fn(void *restrict dst, const char *const *srcs, int64_t n);

/* +0 and one row: that row, but -0 becomes +0, and NaNs become the one that there is. A third of
 * the instructions that accumulators take. */
#define DEFINE_SUM_OF_ONE(name, stored, infinity)                                                  \
    static void sum_of_one_##name(void *restrict dst, const char *const *srcs, int64_t n)          \
    {                                                                                              \
        const stored all_but_sign = (stored)((stored) ~(stored)0 >> 1);                            \
        const stored *restrict elements = (const void *)srcs[0];                                   \
        stored *restrict sums = dst;                                                               \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const stored magnitude = elements[i] & all_but_sign;                                   \
            const stored number = magnitude == 0 ? 0 : elements[i];                                \
            sums[i] = magnitude > (infinity) ? all_but_sign : number;                              \
        }                                                                                          \
    }

DEFINE_SUM_OF_ONE(bf16, uint16_t, 0x7f80)
DEFINE_SUM_OF_ONE(fp16, uint16_t, 0x7c00)
DEFINE_SUM_OF_ONE(fp32, uint32_t, 0x7f800000)
DEFINE_SUM_OF_ONE(fp8, uint8_t, 0x7e) /* which has none: the largest number */

/* Two to eight rows, summed in registers. */
#define ROW(stored, k, i)             (((const stored *)(const void *)srcs[k])[i])
#define ADD(name, stored, sum, k, i)  ((sum) + widen_##name(ROW(stored, k, i)))
#define SUM_OF_TWO(name, stored, i)   ADD(name, stored, ADD(name, stored, 0.0f, 0, i), 1, i)
#define SUM_OF_THREE(name, stored, i) ADD(name, stored, SUM_OF_TWO(name, stored, i), 2, i)
#define SUM_OF_FOUR(name, stored, i)  ADD(name, stored, SUM_OF_THREE(name, stored, i), 3, i)
#define SUM_OF_FIVE(name, stored, i)  ADD(name, stored, SUM_OF_FOUR(name, stored, i), 4, i)
#define SUM_OF_SIX(name, stored, i)   ADD(name, stored, SUM_OF_FIVE(name, stored, i), 5, i)
#define SUM_OF_SEVEN(name, stored, i) ADD(name, stored, SUM_OF_SIX(name, stored, i), 6, i)
#define SUM_OF_EIGHT(name, stored, i) ADD(name, stored, SUM_OF_SEVEN(name, stored, i), 7, i)

#define DEFINE_SUM(number, name, stored, SUM)                                                      \
    static void sum_of_##number##_##name(void *restrict dst, const char *const *srcs, int64_t n)   \
    {                                                                                              \
        stored *restrict sums = dst;                                                               \
        for (int64_t i = 0; i < n; i++)                                                            \
            sums[i] = narrow_##name(SUM(name, stored, i));                                         \
    }

#define DEFINE_SUMS_OF_FEW(name, stored)                                                           \
    DEFINE_SUM(two, name, stored, SUM_OF_TWO)                                                      \
    DEFINE_SUM(three, name, stored, SUM_OF_THREE)                                                  \
    DEFINE_SUM(four, name, stored, SUM_OF_FOUR)                                                    \
    DEFINE_SUM(five, name, stored, SUM_OF_FIVE)                                                    \
    DEFINE_SUM(six, name, stored, SUM_OF_SIX)                                                      \
    DEFINE_SUM(seven, name, stored, SUM_OF_SEVEN)                                                  \
    DEFINE_SUM(eight, name, stored, SUM_OF_EIGHT)

DEFINE_SUMS_OF_FEW(bf16, uint16_t)
DEFINE_SUMS_OF_FEW(fp32, uint32_t)

/* By the number of rows. fp16 and FP8 have no instructions that compilers use by themselves. */
static short_sum_fn
    *const short_sums[sizeof element_types / sizeof element_types[0]][MOST_FEW + 1] = {
        [WEFT_BF16] = {NULL, sum_of_one_bf16, sum_of_two_bf16, sum_of_three_bf16, sum_of_four_bf16,
                       sum_of_five_bf16, sum_of_six_bf16, sum_of_seven_bf16, sum_of_eight_bf16},
        [WEFT_FP32] = {NULL, sum_of_one_fp32, sum_of_two_fp32, sum_of_three_fp32, sum_of_four_fp32,
                       sum_of_five_fp32, sum_of_six_fp32, sum_of_seven_fp32, sum_of_eight_fp32},
        [WEFT_FP16] = {NULL, sum_of_one_fp16},
        [WEFT_FP8_E4M3] = {NULL, sum_of_one_fp8},
};

/* Rows that can be summed the short way: few, and of one type. */
struct few_rows {
    int32_t num_rows; /* 0: they cannot */
    short_sum_fn *sum;
    const char *rows[MOST_FEW];
};

/* Their elements from offset_bytes on. To fetch the next ones meanwhile makes it no faster. */
static inline void sum_few(void *dst, const struct few_rows *few, size_t offset_bytes,
                           int64_t num_elements)
{
    const char *at[MOST_FEW];
    for (int32_t i = 0; i < few->num_rows; i++)
        at[i] = few->rows[i] + offset_bytes;
    few->sum(dst, at, num_elements);
}

static struct few_rows find_few_rows(const void *const *srcs, int32_t num_srcs,
                                     struct wp_mixed_sum sum)
{
    const struct few_rows none = {.num_rows = 0};
    struct few_rows few = none;
    for (int32_t i = 0; i < num_srcs; i++) {
        if (srcs[i] == NULL)
            continue;
        if ((i < sum.num_first ? sum.first_dtype : sum.rest_dtype) != sum.dst_dtype ||
            (uintptr_t)srcs[i] % element_types[sum.dst_dtype]->element_bytes != 0 ||
            few.num_rows == MOST_FEW)
            return none;
        few.rows[few.num_rows++] = srcs[i];
    }
    few.sum = short_sums[sum.dst_dtype][few.num_rows];
    return few.sum != NULL ? few : none;
}

static int is_one_of(const struct few_rows *few, const void *dst)
{
    int any = 0;
    for (int32_t i = 0; i < few->num_rows; i++)
        any |= few->rows[i] == dst;
    return any;
}
