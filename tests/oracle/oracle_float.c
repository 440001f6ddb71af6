/* SPDX-License-Identifier: MIT */
#include "oracle/oracle_float.h"

#include <math.h>
#include <string.h>

struct format {
    int fraction_bits;
    int min_exponent; /* of the normal numbers */
    int max_exponent;
};

static const struct format format_bf16 = {7, -126, 127};
static const struct format format_fp16 = {10, -14, 15};

uint64_t oracle_element_bytes(weft_dtype dtype)
{
    return dtype == WEFT_FP32 ? 4 : 2;
}

static float decode(const struct format *format, uint16_t bits)
{
    const int fraction = bits & ((1 << format->fraction_bits) - 1);
    const int biased = (bits & 0x7fff) >> format->fraction_bits;
    const int all_ones = 0x7fff >> format->fraction_bits;
    double magnitude;
    if (biased == all_ones)
        magnitude = fraction != 0 ? (double)NAN : (double)INFINITY;
    else if (biased == 0)
        magnitude = ldexp(fraction, format->min_exponent - format->fraction_bits);
    else
        magnitude = ldexp(fraction + (1 << format->fraction_bits),
                          biased - 1 + format->min_exponent - format->fraction_bits);
    return (float)(bits & 0x8000 ? -magnitude : magnitude);
}

static int64_t round_to_even(double value) /* value >= 0, far below 2^63 */
{
    const int64_t whole = (int64_t)value;
    const double rest = value - (double)whole;
    if (rest > 0.5 || (rest == 0.5 && whole % 2 == 1))
        return whole + 1;
    return whole;
}

static uint16_t encode(const struct format *format, float value)
{
    const int one = 1 << format->fraction_bits; /* the leading bit of a normal number */
    if (isnan(value))
        return 0x7fff;
    const uint16_t sign = signbit(value) ? 0x8000 : 0;
    const uint16_t infinity = (uint16_t)(0x7fff / one * one);
    if (isinf(value))
        return sign | infinity;
    int exponent;
    const double magnitude = fabs((double)value);
    (void)frexp(magnitude, &exponent);
    exponent = exponent - 1 < format->min_exponent ? format->min_exponent : exponent - 1;
    int64_t units = round_to_even(ldexp(magnitude, format->fraction_bits - exponent));
    if (units == 2 * one) {
        units = one;
        exponent++;
    }
    if (exponent > format->max_exponent)
        return sign | infinity;
    const int64_t biased = units < one ? 0 : exponent - format->min_exponent + 1;
    return (uint16_t)(sign | (biased * one + units % one));
}

float oracle_load(weft_dtype dtype, const void *row, int64_t i)
{
    const char *element = (const char *)row + (uint64_t)i * oracle_element_bytes(dtype);
    float value;
    uint16_t bits;
    if (dtype == WEFT_FP32) {
        memcpy(&value, element, sizeof value);
        return value;
    }
    memcpy(&bits, element, sizeof bits);
    return decode(dtype == WEFT_BF16 ? &format_bf16 : &format_fp16, bits);
}

void oracle_store(weft_dtype dtype, void *row, int64_t i, float value)
{
    char *element = (char *)row + (uint64_t)i * oracle_element_bytes(dtype);
    const uint32_t canonical_nan = 0x7fffffff;
    if (dtype == WEFT_FP32) {
        memcpy(element, isnan(value) ? (const void *)&canonical_nan : (const void *)&value, 4);
        return;
    }
    const uint16_t bits = encode(dtype == WEFT_BF16 ? &format_bf16 : &format_fp16, value);
    memcpy(element, &bits, sizeof bits);
}
