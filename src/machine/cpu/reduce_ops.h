/* SPDX-License-Identifier: MIT */
/*
 * The arithmetic of reductions, a tile of elements at a time: what an element type does to become
 * an accumulator and back, and how accumulators combine. Part of rows_variant.h, hence compiled
 * once per instruction set. Plain loops that the compiler vectorises; only fp16 needs the f16c
 * instructions by name.
 *
 * avx512_bf16's VCVTNEPS2BF16 is not used: it flushes subnormals to zero, which would make the
 * result depend on the machine. Integer rounding costs nothing here, the loop is bound by memory.
 */
#pragma once

#include <string.h>

#ifdef __F16C__
#include <immintrin.h>
#endif

#include "machine/float_bits.h"
#include "machine/machine.h"

/* ------------------------------------------------------------------ accumulators combine */

static inline double double_of_bits(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint64_t bits_of_double(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* NaN if there is one. Equal numbers differ in the sign of zero at most, which and (or) makes that
 * of the larger (smaller). No && and ||, whose branches would keep loops from being vectorised. */
static inline float max_of_floats(float a, float b)
{
    const float other = ((a > b) | (a != a)) ? a : b;
    const float equal = weft__float_of_bits(weft__bits_of_float(a) & weft__bits_of_float(b));
    return a == b ? equal : other;
}

static inline float min_of_floats(float a, float b)
{
    const float other = ((a < b) | (a != a)) ? a : b;
    const float equal = weft__float_of_bits(weft__bits_of_float(a) | weft__bits_of_float(b));
    return a == b ? equal : other;
}

static inline double max_of_doubles(double a, double b)
{
    const double other = ((a > b) | (a != a)) ? a : b;
    const double equal = double_of_bits(bits_of_double(a) & bits_of_double(b));
    return a == b ? equal : other;
}

static inline double min_of_doubles(double a, double b)
{
    const double other = ((a < b) | (a != a)) ? a : b;
    const double equal = double_of_bits(bits_of_double(a) | bits_of_double(b));
    return a == b ? equal : other;
}

#define DEFINE_OP(op, type, result)                                                                \
    static inline type op##_##type(type a, type b)                                                 \
    {                                                                                              \
        (void)a;                                                                                   \
        return (type)(result);                                                                     \
    }

/* `whole` is unsigned where a signed result could overflow, which is undefined. */
#define DEFINE_OPS(type, whole, larger, smaller)                                                   \
    DEFINE_OP(first, type, b)                                                                      \
    DEFINE_OP(sum, type, (whole)a + (whole)b)                                                      \
    DEFINE_OP(prod, type, ((whole)a * (whole)b))                                                   \
    DEFINE_OP(max, type, larger)                                                                   \
    DEFINE_OP(min, type, smaller)

DEFINE_OPS(float, float, max_of_floats(a, b), min_of_floats(a, b))
DEFINE_OPS(double, double, max_of_doubles(a, b), min_of_doubles(a, b))
DEFINE_OPS(int32_t, uint32_t, a > b ? a : b, a < b ? a : b)
DEFINE_OPS(int64_t, uint64_t, a > b ? a : b, a < b ? a : b)
DEFINE_OPS(uint8_t, uint8_t, a > b ? a : b, a < b ? a : b)

/* ------------------------------------------------------------------ elements to accumulators,
 * back */

/* Elements are loaded and stored as bits; what is stored has but one NaN. */
#define DEFINE_CONVERSIONS(name, stored, accumulator, widened, narrowed)                           \
    static inline accumulator widen_##name(stored value)                                           \
    {                                                                                              \
        return (widened);                                                                          \
    }                                                                                              \
    static inline stored narrow_##name(accumulator value)                                          \
    {                                                                                              \
        return (narrowed);                                                                         \
    }

DEFINE_CONVERSIONS(int32, int32_t, int32_t, value, value)
DEFINE_CONVERSIONS(int64, int64_t, int64_t, value, value)
DEFINE_CONVERSIONS(bf16, uint16_t, float, weft__float_of_bits((uint32_t)value << 16),
                   weft__bf16_of_float(value))
DEFINE_CONVERSIONS(fp16, uint16_t, float, weft__float_of_fp16(value), weft__fp16_of_float(value))
DEFINE_CONVERSIONS(fp32, uint32_t, float, weft__float_of_bits(value),
                   weft__canonical_float_bits(value))
DEFINE_CONVERSIONS(fp64, uint64_t, double, double_of_bits(value),
                   value != value ? UINT64_C(0x7fffffffffffffff) : bits_of_double(value))
DEFINE_CONVERSIONS(uint8, uint8_t, uint8_t, value, value)
DEFINE_CONVERSIONS(fp8, uint8_t, float, weft__float_of_fp8(value), weft__fp8_of_float(value))

/* How many elements, from the first on, are done by the instructions that no compiler uses by
 * itself. */
#ifdef __F16C__
DEFINE_OP(first, __m256, b)
DEFINE_OP(sum, __m256, a + b)
DEFINE_OP(prod, __m256, (a * b))

static inline __m256 max___m256(__m256 a, __m256 b)
{
    const __m256 larger = _mm256_max_ps(a, b); /* b if one of them is NaN */
    const __m256 equal = _mm256_and_ps(a, b);
    const __m256 number = _mm256_blendv_ps(larger, equal, _mm256_cmp_ps(a, b, _CMP_EQ_OQ));
    return _mm256_blendv_ps(number, a, _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
}

static inline __m256 min___m256(__m256 a, __m256 b)
{
    const __m256 smaller = _mm256_min_ps(a, b);
    const __m256 equal = _mm256_or_ps(a, b);
    const __m256 number = _mm256_blendv_ps(smaller, equal, _mm256_cmp_ps(a, b, _CMP_EQ_OQ));
    return _mm256_blendv_ps(number, a, _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
}

#define DEFINE_BLOCKS_FP16(op)                                                                     \
    static int64_t blocks_##op##_fp16(float *restrict sum, const uint16_t *restrict src,           \
                                      int64_t n)                                                   \
    {                                                                                              \
        int64_t i = 0;                                                                             \
        for (; i + 8 <= n; i += 8) {                                                               \
            const __m128i halves = _mm_loadu_si128((const __m128i *)(const void *)(src + i));      \
            const __m256 so_far = _mm256_loadu_ps(sum + i);                                        \
            _mm256_storeu_ps(sum + i, op##___m256(so_far, _mm256_cvtph_ps(halves)));               \
        }                                                                                          \
        return i;                                                                                  \
    }

DEFINE_BLOCKS_FP16(first)
DEFINE_BLOCKS_FP16(sum)
DEFINE_BLOCKS_FP16(prod)
DEFINE_BLOCKS_FP16(max)
DEFINE_BLOCKS_FP16(min)

static int64_t blocks_narrow_fp16(uint16_t *restrict dst, const float *restrict values, int64_t n)
{
    const __m256 canonical_nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 value = _mm256_loadu_ps(values + i);
        __m256 is_nan = _mm256_cmp_ps(value, value, _CMP_UNORD_Q);
        value = _mm256_blendv_ps(value, canonical_nan, is_nan);
        _mm_storeu_si128((__m128i *)(void *)(dst + i),
                         _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
    }
    return i;
}
#define BLOCKS_FP16(function, to, from, n) blocks_##function##_fp16(to, from, n)
#else
#define BLOCKS_FP16(function, to, from, n) 0
#endif
#define BLOCKS_NONE(function, to, from, n) 0

/* ------------------------------------------------------------------ loops over a tile */

typedef void accumulate_fn(void *accumulators, const void *src, int64_t n);
typedef void divide_fn(void *accumulators, int32_t num_rows, int64_t n);
typedef void narrow_fn(void *dst, const void *accumulators, int64_t n);

struct element_type {
    size_t element_bytes;
    size_t accumulator_bytes;
    accumulate_fn *accumulate_first;
    accumulate_fn *accumulate[WP_REDUCTION_SUM_FROM_ZERO + 1];
    divide_fn *divide;
    narrow_fn *narrow;
};

#define DEFINE_ACCUMULATE(op, name, stored, accumulator, blocks)                                   \
    static void op##_all_##name(void *accumulators, const void *elements, int64_t n)               \
    {                                                                                              \
        accumulator *restrict sum = accumulators;                                                  \
        const stored *restrict src = elements;                                                     \
        for (int64_t i = blocks(op, sum, src, n); i < n; i++)                                      \
            sum[i] = op##_##accumulator(sum[i], widen_##name(src[i]));                             \
    }

#define DEFINE_TYPE(name, stored, accumulator, divisor, blocks)                                    \
    DEFINE_ACCUMULATE(first, name, stored, accumulator, blocks)                                    \
    DEFINE_ACCUMULATE(sum, name, stored, accumulator, blocks)                                      \
    DEFINE_ACCUMULATE(prod, name, stored, accumulator, blocks)                                     \
    DEFINE_ACCUMULATE(max, name, stored, accumulator, blocks)                                      \
    DEFINE_ACCUMULATE(min, name, stored, accumulator, blocks)                                      \
    static void divide_all_##name(void *accumulators, int32_t num_rows, int64_t n)                 \
    {                                                                                              \
        accumulator *sum = accumulators;                                                           \
        for (int64_t i = 0; i < n; i++)                                                            \
            sum[i] = (accumulator)(sum[i] / (divisor)num_rows);                                    \
    }                                                                                              \
    static void narrow_all_##name(void *elements, const void *accumulators, int64_t n)             \
    {                                                                                              \
        stored *restrict dst = elements;                                                           \
        const accumulator *restrict values = accumulators;                                         \
        for (int64_t i = blocks(narrow, dst, values, n); i < n; i++)                               \
            dst[i] = narrow_##name(values[i]);                                                     \
    }                                                                                              \
    static const struct element_type type_##name = {                                               \
        .element_bytes = sizeof(stored),                                                           \
        .accumulator_bytes = sizeof(accumulator),                                                  \
        .accumulate_first = first_all_##name,                                                      \
        .accumulate = {[WP_REDUCTION_SUM] = sum_all_##name,                                        \
                       [WP_REDUCTION_PROD] = prod_all_##name,                                      \
                       [WP_REDUCTION_MAX] = max_all_##name,                                        \
                       [WP_REDUCTION_MIN] = min_all_##name,                                        \
                       [WP_REDUCTION_AVG] = sum_all_##name,                                        \
                       [WP_REDUCTION_SUM_FROM_ZERO] = sum_all_##name},                             \
        .divide = divide_all_##name,                                                               \
        .narrow = narrow_all_##name,                                                               \
    };

DEFINE_TYPE(int32, int32_t, int32_t, int32_t, BLOCKS_NONE)
DEFINE_TYPE(int64, int64_t, int64_t, int64_t, BLOCKS_NONE)
DEFINE_TYPE(bf16, uint16_t, float, float, BLOCKS_NONE)
DEFINE_TYPE(fp16, uint16_t, float, float, BLOCKS_FP16)
DEFINE_TYPE(fp32, uint32_t, float, float, BLOCKS_NONE)
DEFINE_TYPE(fp64, uint64_t, double, double, BLOCKS_NONE)
DEFINE_TYPE(uint8, uint8_t, uint8_t, int32_t, BLOCKS_NONE)
DEFINE_TYPE(fp8, uint8_t, float, float, BLOCKS_NONE)

static const struct element_type *const element_types[] = {
    [WEFT_INT32] = &type_int32, [WEFT_INT64] = &type_int64,  [WEFT_BF16] = &type_bf16,
    [WEFT_FP16] = &type_fp16,   [WEFT_FP32] = &type_fp32,    [WEFT_FP64] = &type_fp64,
    [WEFT_UINT8] = &type_uint8, [WEFT_FP8_E4M3] = &type_fp8,
};
