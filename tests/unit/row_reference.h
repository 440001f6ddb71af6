/* SPDX-License-Identifier: MIT */
/* What a reduction must give, element by element, from the definitions of the types: slow, and sharing
 * no trick with the library. */
#ifndef TESTS_UNIT_ROW_REFERENCE_H
#define TESTS_UNIT_ROW_REFERENCE_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "machine/machine.h"

struct format {
    int num_bits;
    int num_fraction_bits;
    int min_exponent; /* of the normal numbers */
    double largest;
    enum { HAS_INFINITIES, SATURATES } overflow;
};

static const struct format format_bf16 = {16, 7, -126, 0x1.fep127, HAS_INFINITIES};
static const struct format format_fp16 = {16, 10, -14, 65504, HAS_INFINITIES};
static const struct format format_fp8 = {8, 3, -6, 448, SATURATES};

static inline const struct format *narrow_format(weft_dtype dtype)
{
    switch (dtype) {
    case WEFT_BF16:
        return &format_bf16;
    case WEFT_FP16:
        return &format_fp16;
    case WEFT_FP8_E4M3:
        return &format_fp8;
    default:
        return NULL;
    }
}

static inline float decode(const struct format *format, uint32_t bits)
{
    const uint32_t one = 1u << format->num_fraction_bits;
    const uint32_t sign = bits >> (format->num_bits - 1);
    const uint32_t magnitude = bits - (sign << (format->num_bits - 1));
    const uint32_t all_ones = (1u << (format->num_bits - 1)) - 1;
    const uint32_t infinity = all_ones / one * one;
    double value;
    if (format->overflow == HAS_INFINITIES && magnitude == infinity)
        value = (double)INFINITY;
    else if (magnitude > (format->overflow == HAS_INFINITIES ? infinity : all_ones - 1))
        value = (double)NAN;
    else if (magnitude < one)
        value = ldexp(magnitude, format->min_exponent - format->num_fraction_bits);
    else
        value = ldexp(magnitude % one + one, (int)(magnitude / one) - 1 + format->min_exponent -
                                                 format->num_fraction_bits);
    return (float)(sign != 0 ? -value : value);
}

static inline uint32_t encode(const struct format *format, float value)
{
    const uint32_t one = 1u << format->num_fraction_bits;
    const uint32_t all_ones = (1u << (format->num_bits - 1)) - 1;
    const uint32_t sign = signbit(value) ? 1u << (format->num_bits - 1) : 0;
    if (isnan(value))
        return all_ones;
    const double magnitude = fabs((double)value);
    int exponent = magnitude == 0 || isinf(magnitude) ? format->min_exponent : ilogb(magnitude);
    if (exponent < format->min_exponent)
        exponent = format->min_exponent;
    const double unit = ldexp(1, exponent - format->num_fraction_bits);
    const double rounded = rint(magnitude / unit) * unit; /* nearest even; the rest is exact */
    if (isinf(magnitude) || rounded > format->largest)
        return sign | (format->overflow == SATURATES ? all_ones - 1 : all_ones / one * one);
    if (rounded < ldexp(1, format->min_exponent))
        return sign | (uint32_t)ldexp(rounded, format->num_fraction_bits - format->min_exponent);
    exponent = ilogb(rounded);
    const uint32_t fraction = (uint32_t)ldexp(rounded, format->num_fraction_bits - exponent) - one;
    return sign | ((uint32_t)(exponent - format->min_exponent + 1) * one + fraction);
}

/* An element's bits; FP8 and the like in the lowest ones. */
static inline uint64_t load_bits(weft_dtype dtype, const void *row, int64_t i)
{
    const uint64_t bytes = weft_dtype_bytes(dtype);
    uint64_t bits = 0;
    memcpy(&bits, (const char *)row + (uint64_t)i * bytes, bytes);
    return bits;
}

static inline float float_of(weft_dtype dtype, uint64_t bits)
{
    const struct format *format = narrow_format(dtype);
    const uint32_t word = (uint32_t)bits;
    float value;
    memcpy(&value, &word, sizeof value);
    return format == NULL ? value : decode(format, word);
}

static inline uint64_t bits_of_float(weft_dtype dtype, float value)
{
    const struct format *format = narrow_format(dtype);
    uint32_t word;
    memcpy(&word, &value, sizeof word);
    if (format != NULL)
        return encode(format, value);
    return isnan(value) ? 0x7fffffff : word;
}

static inline int is_greater(double a, double b)
{
    return a > b || (a == b && signbit(b) && !signbit(a));
}

/* Doubles hold floats exactly, and choosing does not round. */
static inline double choose(enum weft_reduction_op op, double a, double b)
{
    if (isnan(a) || isnan(b))
        return (double)NAN;
    return is_greater(a, b) == (op == WEFT_REDUCTION_MAX) ? a : b;
}

static inline float next_float(enum weft_reduction_op op, float a, float b)
{
    if (op == WEFT_REDUCTION_PROD)
        return a * b;
    if (op == WEFT_REDUCTION_MAX || op == WEFT_REDUCTION_MIN)
        return (float)choose(op, (double)a, (double)b);
    return a + b;
}

static inline double next_double(enum weft_reduction_op op, double a, double b)
{
    if (op == WEFT_REDUCTION_PROD)
        return a * b;
    if (op == WEFT_REDUCTION_MAX || op == WEFT_REDUCTION_MIN)
        return choose(op, a, b);
    return a + b;
}

/* values[num_values] of one element of the rows, in order. */
static inline uint64_t reduce_floats(struct weft_reduction reduction, const uint64_t *values,
                                     int num_values)
{
    const int from_zero = reduction.op == WEFT_REDUCTION_SUM_FROM_ZERO || num_values == 0;
    float result = from_zero ? 0 : float_of(reduction.dtype, values[0]);
    for (int i = from_zero ? 0 : 1; i < num_values; i++)
        result = next_float(reduction.op, result, float_of(reduction.dtype, values[i]));
    if (reduction.op == WEFT_REDUCTION_AVG)
        result /= (float)num_values;
    return bits_of_float(reduction.dtype, result);
}

static inline uint64_t reduce_doubles(struct weft_reduction reduction, const uint64_t *values,
                                      int num_values)
{
    const int from_zero = reduction.op == WEFT_REDUCTION_SUM_FROM_ZERO || num_values == 0;
    double result = 0;
    for (int i = 0; i < num_values; i++) {
        double value;
        memcpy(&value, &values[i], sizeof value);
        result = i == 0 && !from_zero ? value : next_double(reduction.op, result, value);
    }
    if (reduction.op == WEFT_REDUCTION_AVG)
        result /= num_values;
    uint64_t bits;
    memcpy(&bits, &result, sizeof bits);
    return isnan(result) ? UINT64_C(0x7fffffffffffffff) : bits;
}

/* What an integer type makes of the lowest bits of a word. */
static inline int64_t wrap(weft_dtype dtype, uint64_t word)
{
    if (dtype == WEFT_UINT8)
        return (int64_t)(word % 256);
    if (dtype == WEFT_INT32)
        return (int64_t)(word % (UINT64_C(1) << 32) ^ 0x80000000u) - 0x80000000;
    int64_t value;
    memcpy(&value, &word, sizeof value);
    return value;
}

static inline uint64_t reduce_integers(struct weft_reduction reduction, const uint64_t *values,
                                       int num_values)
{
    int64_t result = num_values == 0 ? 0 : wrap(reduction.dtype, values[0]);
    for (int i = 1; i < num_values; i++) {
        const int64_t value = wrap(reduction.dtype, values[i]);
        if (reduction.op == WEFT_REDUCTION_PROD)
            result = wrap(reduction.dtype, (uint64_t)result * (uint64_t)value);
        else if (reduction.op == WEFT_REDUCTION_MAX)
            result = result < value ? value : result;
        else if (reduction.op == WEFT_REDUCTION_MIN)
            result = result < value ? result : value;
        else
            result = wrap(reduction.dtype, (uint64_t)result + (uint64_t)value);
    }
    if (reduction.op == WEFT_REDUCTION_AVG)
        result /= num_values;
    const uint64_t bits = (uint64_t)result;
    const uint64_t num_bytes = weft_dtype_bytes(reduction.dtype);
    return num_bytes == 8 ? bits : bits % (UINT64_C(1) << 8 * num_bytes);
}

static inline uint64_t reduce_reference(struct weft_reduction reduction, const uint64_t *values,
                                        int num_values)
{
    switch (reduction.dtype) {
    case WEFT_INT32:
    case WEFT_INT64:
    case WEFT_UINT8:
        return reduce_integers(reduction, values, num_values);
    case WEFT_FP64:
        return reduce_doubles(reduction, values, num_values);
    default:
        return reduce_floats(reduction, values, num_values);
    }
}

static inline weft_dtype mixed_src_dtype(struct weft_mixed_sum sum, int32_t i)
{
    return i < sum.num_first ? sum.first_dtype : sum.rest_dtype;
}

/* Of element i of the rows. */
static inline uint64_t sum_mixed_reference(struct weft_mixed_sum sum, const void *const *srcs,
                                           int32_t num_srcs, int64_t i)
{
    float result = 0;
    for (int32_t s = 0; s < num_srcs; s++) {
        const weft_dtype dtype = mixed_src_dtype(sum, s);
        if (srcs[s] != NULL)
            result += float_of(dtype, load_bits(dtype, srcs[s], i));
    }
    return bits_of_float(sum.dst_dtype, result);
}

#endif
