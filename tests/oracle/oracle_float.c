/* SPDX-License-Identifier: MIT */
#include "oracle/oracle_float.h"

#include <math.h>
#include <string.h>

enum overflow { TO_INFINITY, TO_LARGEST };

struct format {
    int bits;
    int fraction_bits;
    int min_exponent; /* of the normal numbers */
    enum overflow overflow;
    uint16_t largest; /* finite number; what lies above is infinity and NaNs */
    uint16_t nan;
};

static const struct format format_bf16 = {16, 7, -126, TO_INFINITY, 0x7f7f, 0x7fff};
static const struct format format_fp16 = {16, 10, -14, TO_INFINITY, 0x7bff, 0x7fff};
static const struct format format_fp8 = {8, 3, -6, TO_LARGEST, 0x7e, 0x7f};

static const struct format *format_of(weft_dtype dtype)
{
    return dtype == WEFT_BF16 ? &format_bf16 : dtype == WEFT_FP16 ? &format_fp16 : &format_fp8;
}

uint64_t oracle_element_bytes(weft_dtype dtype)
{
    static const uint64_t bytes[] = {
        [WEFT_INT32] = 4, [WEFT_INT64] = 8, [WEFT_BF16] = 2,  [WEFT_FP16] = 2,
        [WEFT_FP32] = 4,  [WEFT_FP64] = 8,  [WEFT_UINT8] = 1, [WEFT_FP8_E4M3] = 1};
    return bytes[dtype];
}

static float decode(const struct format *format, uint16_t bits)
{
    const int sign = 1 << (format->bits - 1);
    const int magnitude_bits = bits & (sign - 1);
    const int fraction = bits & ((1 << format->fraction_bits) - 1);
    const int biased = magnitude_bits >> format->fraction_bits;
    double magnitude;
    if (magnitude_bits > format->largest)
        magnitude =
            format->overflow == TO_INFINITY && fraction == 0 ? (double)INFINITY : (double)NAN;
    else if (biased == 0)
        magnitude = ldexp(fraction, format->min_exponent - format->fraction_bits);
    else
        magnitude = ldexp(fraction + (1 << format->fraction_bits),
                          biased - 1 + format->min_exponent - format->fraction_bits);
    return (float)(bits & sign ? -magnitude : magnitude);
}

static int64_t round_to_even(double value) /* value >= 0, far below 2^63 */
{
    const int64_t whole = (int64_t)value;
    const double rest = value - (double)whole;
    if (rest > 0.5 || (rest == 0.5 && whole % 2 == 1))
        return whole + 1;
    return whole;
}

/* Of a finite magnitude; may be more than the largest. */
static int64_t encode_magnitude(const struct format *format, double magnitude)
{
    const int one = 1 << format->fraction_bits; /* the leading bit of a normal number */
    int exponent;
    if (magnitude == 0)
        return 0;
    (void)frexp(magnitude, &exponent);
    exponent = exponent - 1 < format->min_exponent ? format->min_exponent : exponent - 1;
    const int64_t units = round_to_even(ldexp(magnitude, format->fraction_bits - exponent));
    /* The leading bit of a normal number, also of one that was rounded up to the next power of two, adds
     * to the exponent. */
    return (int64_t)(exponent - format->min_exponent) * one + units;
}

static uint16_t encode(const struct format *format, float value)
{
    const uint16_t sign = (uint16_t)(signbit(value) ? 1 << (format->bits - 1) : 0);
    if (isnan(value))
        return format->nan;
    const int64_t magnitude =
        isinf(value) ? format->largest + 1 : encode_magnitude(format, fabs((double)value));
    if (magnitude <= format->largest)
        return (uint16_t)(sign | magnitude);
    return (uint16_t)(sign | (format->largest + (format->overflow == TO_INFINITY)));
}

float oracle_load(weft_dtype dtype, const void *row, int64_t i)
{
    const uint64_t bytes = oracle_element_bytes(dtype);
    const char *element = (const char *)row + (uint64_t)i * bytes;
    float value;
    uint16_t bits;
    if (dtype == WEFT_FP32) {
        memcpy(&value, element, sizeof value);
        return value;
    }
    if (bytes == 1)
        bits = (unsigned char)*element;
    else
        memcpy(&bits, element, sizeof bits);
    return decode(format_of(dtype), bits);
}

void oracle_store(weft_dtype dtype, void *row, int64_t i, float value)
{
    const uint64_t bytes = oracle_element_bytes(dtype);
    char *element = (char *)row + (uint64_t)i * bytes;
    const uint32_t canonical_nan = 0x7fffffff;
    if (dtype == WEFT_FP32) {
        memcpy(element, isnan(value) ? (const void *)&canonical_nan : (const void *)&value, 4);
        return;
    }
    const uint16_t bits = encode(format_of(dtype), value);
    if (bytes == 1)
        *(unsigned char *)element = (unsigned char)bits;
    else
        memcpy(element, &bits, sizeof bits);
}
