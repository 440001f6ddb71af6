/* SPDX-License-Identifier: MIT */
/* Rows times their weights, added to fp32 accumulators. Part of rows_variant.h, hence compiled once
 * per instruction set. Products are rounded: the compiler fuses nothing (-ffp-contract=off). */
#pragma once

#include "machine/cpu/reduce_ops.h"

typedef void add_weighted_fn(void *accumulators, const void *src, float weight, int64_t n);

#ifdef __F16C__
static int64_t add_weighted_blocks_fp16(float *restrict sum, const uint16_t *restrict src,
                                        float weight, int64_t n)
{
    const __m256 weights = _mm256_set1_ps(weight);
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m128i halves = _mm_loadu_si128((const __m128i *)(const void *)(src + i));
        const __m256 product = _mm256_mul_ps(weights, _mm256_cvtph_ps(halves));
        _mm256_storeu_ps(sum + i, _mm256_add_ps(_mm256_loadu_ps(sum + i), product));
    }
    return i;
}
#else
#define add_weighted_blocks_fp16(sum, src, weight, n) 0
#endif
#define NO_WEIGHTED_BLOCKS(sum, src, weight, n) 0

#define DEFINE_ADD_WEIGHTED(name, stored, blocks)                                                  \
    static void add_weighted_##name(void *accumulators, const void *elements, float weight,        \
                                    int64_t n)                                                     \
    {                                                                                              \
        float *restrict sum = accumulators;                                                        \
        const stored *restrict src = elements;                                                     \
        for (int64_t i = blocks(sum, src, weight, n); i < n; i++)                                  \
            sum[i] = sum[i] + (weight * widen_##name(src[i]));                                     \
    }

DEFINE_ADD_WEIGHTED(bf16, uint16_t, NO_WEIGHTED_BLOCKS)
DEFINE_ADD_WEIGHTED(fp16, uint16_t, add_weighted_blocks_fp16)
DEFINE_ADD_WEIGHTED(fp32, uint32_t, NO_WEIGHTED_BLOCKS)

static add_weighted_fn *const add_weighted[] = {
    [WEFT_BF16] = add_weighted_bf16,
    [WEFT_FP16] = add_weighted_fp16,
    [WEFT_FP32] = add_weighted_fp32,
};
