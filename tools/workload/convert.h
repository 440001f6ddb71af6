/* SPDX-License-Identifier: MIT */
/*
 * Scalar conversions between fp32 and narrower formats: round to nearest, ties to even, subnormals
 * kept, overflow to infinity (of FP8, which has none, to 448), every NaN to the positive quiet NaN
 * with all mantissa bits set (as weft_ep_combine does). Integer code, the reference for every other
 * conversion; inline so that loops over rows vectorise.
 */
#pragma once

#include <stdint.h>
#include <string.h>

static inline uint32_t fp32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float fp32_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline int fp32_bits_are_nan(uint32_t bits)
{
    return (bits & 0x7fffffffu) > 0x7f800000u;
}

/* The value itself, or the one NaN. */
static inline float fp32_canonical(float value)
{
    uint32_t bits = fp32_bits(value);
    return fp32_from_bits(fp32_bits_are_nan(bits) ? 0x7fffffffu : bits);
}

/* `bits` without its low `shift` (1..31) bits, rounded to nearest, ties to even. Mantissa and
 * exponent are one number here: a carry out of the mantissa is the next exponent. */
static inline uint32_t shift_round_even(uint32_t bits, unsigned shift)
{
    uint32_t odd = bits >> shift & 1;
    return (bits + (1u << (shift - 1)) - 1 + odd) >> shift;
}

static inline uint16_t bf16_from_fp32(float value)
{
    uint32_t bits = fp32_bits(value);
    return (uint16_t)(fp32_bits_are_nan(bits) ? 0x7fffu : shift_round_even(bits, 16));
}

static inline float fp32_from_bf16(uint16_t bits)
{
    return fp32_canonical(fp32_from_bits((uint32_t)bits << 16));
}

static inline uint16_t fp16_from_fp32(float value)
{
    const uint32_t infinity = 0x7c00, bias_difference = (127 - 15) << 23;
    uint32_t bits = fp32_bits(value);
    uint32_t sign = bits >> 16 & 0x8000;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (fp32_bits_are_nan(bits))
        return 0x7fff;
    if (magnitude >= 0x47800000u) /* 2^16 */
        return (uint16_t)(sign | infinity);
    if (magnitude >= 0x38800000u) /* 2^-14, the smallest normal fp16 */
        return (uint16_t)(sign | shift_round_even(magnitude - bias_difference, 13));
    if (magnitude < 0x33000000u) /* 2^-25, half of the smallest subnormal */
        return (uint16_t)sign;
    /* The mantissa with its hidden bit, in units of 2^-24: shifted by 14 (2^-15) to 24 (2^-25). */
    uint32_t mantissa = (magnitude & 0x7fffff) | 0x800000;
    return (uint16_t)(sign | shift_round_even(mantissa, 126 - (magnitude >> 23)));
}

static inline float fp32_from_fp16(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16;
    uint32_t exponent = bits >> 10 & 0x1f;
    uint32_t mantissa = bits & 0x3ff;
    if (exponent == 0x1f)
        return fp32_canonical(fp32_from_bits(sign | 0x7f800000u | mantissa << 13));
    if (exponent > 0)
        return fp32_from_bits(sign | (exponent + 127 - 15) << 23 | mantissa << 13);
    return fp32_from_bits(sign | fp32_bits((float)mantissa * 0x1p-24f));
}

/* FP8 e4m3: 4 bits of exponent with bias 7, 3 of mantissa; all ones is NaN, there are no
 * infinities. */
static inline uint8_t fp8_from_fp32(float value)
{
    const uint32_t largest = 0x7e, bias_difference = (127 - 7) << 23;
    uint32_t bits = fp32_bits(value);
    uint32_t sign = bits >> 24 & 0x80;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (fp32_bits_are_nan(bits))
        return 0x7f;
    if (magnitude >= 0x43e00000u) /* 448 */
        return (uint8_t)(sign | largest);
    if (magnitude >= 0x3c800000u) /* 2^-6, the smallest normal FP8 */
        return (uint8_t)(sign | shift_round_even(magnitude - bias_difference, 20));
    if (magnitude < 0x3a800000u) /* 2^-10, half of the smallest subnormal */
        return (uint8_t)sign;
    /* The mantissa with its hidden bit, in units of 2^-9: shifted by 21 (2^-7) to 24 (2^-10). */
    uint32_t mantissa = (magnitude & 0x7fffff) | 0x800000;
    return (uint8_t)(sign | shift_round_even(mantissa, 141 - (magnitude >> 23)));
}

static inline float fp32_from_fp8(uint8_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x80) << 24;
    uint32_t exponent = bits >> 3 & 0xf;
    uint32_t mantissa = bits & 0x7;
    if ((bits & 0x7f) == 0x7f)
        return fp32_canonical(fp32_from_bits(0x7fffffffu));
    if (exponent > 0)
        return fp32_from_bits(sign | (exponent + 127 - 7) << 23 | mantissa << 20);
    return fp32_from_bits(sign | fp32_bits((float)mantissa * 0x1p-9f));
}
