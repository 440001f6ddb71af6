/* SPDX-License-Identifier: MIT */
/* A reduction's state for a chunk of 16 bytes, on the cuda machine: the arithmetic that
 * row and packet reductions share. Part of primitives.h. */
#pragma once

#include "machine/cuda/elements.h"

/* ------------------------------------------------------------------ values */

/* The elements that no other is less, or greater, than. */
template <typename E> WP_FN float weft__cuda_lowest(E)
{
    return -INFINITY;
}
WP_FN double weft__cuda_lowest(double)
{
    return -(double)INFINITY;
}
WP_FN uint32_t weft__cuda_lowest(int32_t)
{
    return 0x80000000u;
}
WP_FN uint64_t weft__cuda_lowest(int64_t)
{
    return 0x8000000000000000u;
}
WP_FN uint32_t weft__cuda_lowest(uint8_t)
{
    return 0;
}

template <typename E> WP_FN float weft__cuda_highest(E)
{
    return INFINITY;
}
WP_FN double weft__cuda_highest(double)
{
    return (double)INFINITY;
}
WP_FN uint32_t weft__cuda_highest(int32_t)
{
    return 0x7fffffffu;
}
WP_FN uint64_t weft__cuda_highest(int64_t)
{
    return 0x7fffffffffffffffu;
}
WP_FN uint32_t weft__cuda_highest(uint8_t)
{
    return 0xffu;
}

/* Which leaves the first row as it is: a sum begins with -0, since +0 would spoil -0. */
template <typename E>
WP_FN auto weft__cuda_neutral(enum wp_reduction_op op, E) -> decltype(weft__cuda_lowest(E()))
{
    typedef typename weft__cuda_values<E>::type V;
    switch (op) {
    case WP_REDUCTION_PROD:
        return (V)1;
    case WP_REDUCTION_MAX:
        return weft__cuda_lowest(E());
    case WP_REDUCTION_MIN:
        return weft__cuda_highest(E());
    case WP_REDUCTION_SUM_FROM_ZERO:
        return (V)0;
    default:
        return -(V)0;
    }
}

WP_FN float weft__cuda_add(float a, float b)
{
    return __fadd_rn(a, b);
}
WP_FN double weft__cuda_add(double a, double b)
{
    return __dadd_rn(a, b);
}
template <typename V> WP_FN V weft__cuda_add(V a, V b)
{
    return a + b;
}

WP_FN float weft__cuda_multiply(float a, float b)
{
    return __fmul_rn(a, b);
}
WP_FN double weft__cuda_multiply(double a, double b)
{
    return __dmul_rn(a, b);
}
template <typename V> WP_FN V weft__cuda_multiply(V a, V b)
{
    return a * b;
}

/* The one of two values that compare equal. Only zeros can differ: then +0. */
WP_FN float weft__cuda_either(float a, float b)
{
    return __uint_as_float(__float_as_uint(a) & __float_as_uint(b));
}
WP_FN double weft__cuda_either(double a, double b)
{
    return __longlong_as_double(__double_as_longlong(a) & __double_as_longlong(b));
}

template <typename V> WP_FN V weft__cuda_max_float(V a, V b)
{
    if (isnan(a) || isnan(b))
        return a + b;
    return a > b ? a : b > a ? b : weft__cuda_either(a, b);
}

template <typename V, typename E> WP_FN V weft__cuda_max(V a, V b, E)
{
    return (E)a > (E)b ? a : b;
}
template <typename E> WP_FN float weft__cuda_max(float a, float b, E)
{
    return weft__cuda_max_float(a, b);
}
WP_FN double weft__cuda_max(double a, double b, double)
{
    return weft__cuda_max_float(a, b);
}

template <typename V, typename E> WP_FN V weft__cuda_min(V a, V b, E)
{
    return (E)a < (E)b ? a : b;
}
template <typename E> WP_FN float weft__cuda_min(float a, float b, E)
{
    return -weft__cuda_max_float(-a, -b);
}
WP_FN double weft__cuda_min(double a, double b, double)
{
    return -weft__cuda_max_float(-a, -b);
}

template <typename E> WP_FN float weft__cuda_divide(float sum, int32_t num_rows, E)
{
    return __fdiv_rn(sum, (float)num_rows);
}
WP_FN double weft__cuda_divide(double sum, int32_t num_rows, double)
{
    return __ddiv_rn(sum, (double)num_rows);
}
/* In the element's type, to which the sum wraps around; there are positively many rows, so that the
 * quotient fits. */
template <typename V, typename E> WP_FN V weft__cuda_divide(V sum, int32_t num_rows, E)
{
    return (V)((E)sum / num_rows);
}

/* The same bits as weft__cuda_divide, without its branches, so that the registers are free for
 * rows. A power of two has an exact inverse. For other numbers up to 8 the product in double rounds
 * as the quotient does: the quotient is never a tie of float, except subnormal ones of 6, for which
 * the product is exact (all floats have been compared). */
template <int NUM_ROWS> WP_FN float weft__cuda_average(float sum)
{
    static_assert(NUM_ROWS <= 8, "those that have been compared");
    if ((NUM_ROWS & (NUM_ROWS - 1)) == 0)
        return __fmul_rn(sum, 1.0f / NUM_ROWS);
    return __double2float_rn(__dmul_rn((double)sum, 1.0 / NUM_ROWS));
}

/* ------------------------------------------------------------------ chunks */

/* As many values as a chunk can have, whatever their type. Every index into it is known to the
 * compiler, so that it is registers. */
struct weft__cuda_partial {
    uint32_t words[16];
};

WP_FN void weft__cuda_get(const struct weft__cuda_partial *partial, int i, uint32_t *value)
{
    *value = partial->words[i];
}
WP_FN void weft__cuda_get(const struct weft__cuda_partial *partial, int i, float *value)
{
    *value = __uint_as_float(partial->words[i]);
}
WP_FN void weft__cuda_get(const struct weft__cuda_partial *partial, int i, uint64_t *value)
{
    *value = (uint64_t)partial->words[2 * i + 1] << 32 | partial->words[2 * i];
}
WP_FN void weft__cuda_get(const struct weft__cuda_partial *partial, int i, double *value)
{
    *value = __hiloint2double((int)partial->words[2 * i + 1], (int)partial->words[2 * i]);
}

WP_FN void weft__cuda_put(struct weft__cuda_partial *partial, int i, uint32_t value)
{
    partial->words[i] = value;
}
WP_FN void weft__cuda_put(struct weft__cuda_partial *partial, int i, float value)
{
    partial->words[i] = __float_as_uint(value);
}
WP_FN void weft__cuda_put(struct weft__cuda_partial *partial, int i, uint64_t value)
{
    partial->words[2 * i] = (uint32_t)value;
    partial->words[2 * i + 1] = (uint32_t)(value >> 32);
}
WP_FN void weft__cuda_put(struct weft__cuda_partial *partial, int i, double value)
{
    weft__cuda_put(partial, i, (uint64_t)__double_as_longlong(value));
}

WP_FN void weft__cuda_partial_begin(struct weft__cuda_partial *partial,
                                    struct wp_reduction reduction)
{
    weft__cuda_with_element(reduction.dtype, [&](auto element) {
#pragma unroll
        for (int i = 0; i < (int)(16 / sizeof element); i++)
            weft__cuda_put(partial, i, weft__cuda_neutral(reduction.op, element));
    });
}

template <typename V, typename E> WP_FN V weft__cuda_apply(enum wp_reduction_op op, V a, V b, E)
{
    switch (op) {
    case WP_REDUCTION_PROD:
        return weft__cuda_multiply(a, b);
    case WP_REDUCTION_MAX:
        return weft__cuda_max(a, b, E());
    case WP_REDUCTION_MIN:
        return weft__cuda_min(a, b, E());
    default:
        return weft__cuda_add(a, b);
    }
}

/* One operation for the whole chunk, so that it is chosen once. */
template <enum wp_reduction_op OP, typename E>
WP_FN void weft__cuda_partial_apply(struct weft__cuda_partial *partial, int4 chunk, E)
{
    enum { PER_CHUNK = 16 / sizeof(E) };
    typename weft__cuda_values<E>::type values[PER_CHUNK], sum;
    weft__cuda_decode(values, chunk, E());
#pragma unroll
    for (int i = 0; i < PER_CHUNK; i++) {
        weft__cuda_get(partial, i, &sum);
        weft__cuda_put(partial, i, weft__cuda_apply(OP, sum, values[i], E()));
    }
}

WP_FN void weft__cuda_partial_add(struct weft__cuda_partial *partial, struct wp_reduction reduction,
                                  int4 chunk)
{
    weft__cuda_with_element(reduction.dtype, [&](auto element) {
        switch (reduction.op) {
        case WP_REDUCTION_PROD:
            return weft__cuda_partial_apply<WP_REDUCTION_PROD>(partial, chunk, element);
        case WP_REDUCTION_MAX:
            return weft__cuda_partial_apply<WP_REDUCTION_MAX>(partial, chunk, element);
        case WP_REDUCTION_MIN:
            return weft__cuda_partial_apply<WP_REDUCTION_MIN>(partial, chunk, element);
        default:
            return weft__cuda_partial_apply<WP_REDUCTION_SUM>(partial, chunk, element);
        }
    });
}

template <int NUM_CHUNKS, typename E>
WP_FN void weft__cuda_partial_sum_all(struct weft__cuda_partial *partial,
                                      const int4 (&chunks)[NUM_CHUNKS], uint32_t present, E)
{
#pragma unroll
    for (int s = 0; s < NUM_CHUNKS; s++) {
        if (present >> s & 1u)
            weft__cuda_partial_apply<WP_REDUCTION_SUM>(partial, chunks[s], E());
    }
}

WP_FN int weft__cuda_adds(enum wp_reduction_op op)
{
    return op != WP_REDUCTION_PROD && op != WP_REDUCTION_MAX && op != WP_REDUCTION_MIN;
}

/* Those chunks whose bit is set in `present`, in order. What most reductions are has code without
 * branches; the others share one body, past which the chunks move. */
template <int NUM_CHUNKS>
WP_FN void weft__cuda_partial_add_all(struct weft__cuda_partial *partial,
                                      struct wp_reduction reduction,
                                      const int4 (&chunks)[NUM_CHUNKS], uint32_t present)
{
    if (weft__cuda_adds(reduction.op)) {
        if (reduction.dtype == WEFT_BF16)
            return weft__cuda_partial_sum_all(partial, chunks, present, weft__cuda_bf16());
        if (reduction.dtype == WEFT_FP16)
            return weft__cuda_partial_sum_all(partial, chunks, present, __half());
        if (reduction.dtype == WEFT_FP32)
            return weft__cuda_partial_sum_all(partial, chunks, present, float());
    }
    int4 next[NUM_CHUNKS];
#pragma unroll
    for (int s = 0; s < NUM_CHUNKS; s++)
        next[s] = chunks[s];
#pragma unroll 1
    for (; present != 0; present >>= 1) {
        if (present & 1u)
            weft__cuda_partial_add(partial, reduction, next[0]);
#pragma unroll
        for (int s = 0; s + 1 < NUM_CHUNKS; s++)
            next[s] = next[s + 1];
    }
}

WP_FN int4 weft__cuda_partial_end(const struct weft__cuda_partial *partial,
                                  struct wp_reduction reduction, int32_t num_rows)
{
    int4 chunk;
    weft__cuda_with_element(reduction.dtype, [&](auto element) {
        enum { PER_CHUNK = 16 / sizeof element };
        typename weft__cuda_values<decltype(element)>::type values[PER_CHUNK];
#pragma unroll
        for (int i = 0; i < PER_CHUNK; i++) {
            weft__cuda_get(partial, i, &values[i]);
            if (reduction.op == WP_REDUCTION_AVG)
                values[i] = weft__cuda_divide(values[i], num_rows, element);
        }
        chunk = weft__cuda_encode(values, element);
    });
    return chunk;
}
