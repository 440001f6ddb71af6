/* SPDX-License-Identifier: MIT */
/* Conversions between fp32 and the narrower formats: nearest even, subnormals kept, every NaN
 * becomes the canonical one, so that all machines agree to the bit. */
#pragma once

#include <stdint.h>
#include <string.h>

static inline float weft__float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t weft__bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline int weft__bits_are_nan(uint32_t bits)
{
    return (bits & 0x7fffffffu) > 0x7f800000u;
}

static inline uint32_t weft__canonical_float_bits(float value)
{
    const uint32_t bits = weft__bits_of_float(value);
    return weft__bits_are_nan(bits) ? 0x7fffffffu : bits;
}

static inline uint16_t weft__bf16_of_float(float value)
{
    const uint32_t bits = weft__bits_of_float(value);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return (uint16_t)(weft__bits_are_nan(bits) ? 0x7fffu : rounded);
}

static inline float weft__float_of_fp16(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    const uint32_t magnitude = half & 0x7fffu;
    if (magnitude >= 0x7c00u) /* infinity, NaN */
        return weft__float_of_bits(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
    if (magnitude >= 0x0400u) /* normal: rebias the exponent from 15 to 127 */
        return weft__float_of_bits(sign | ((magnitude << 13) + ((127u - 15u) << 23)));
    const float value = (float)magnitude * 0x1p-24f; /* zero, subnormal: exact */
    return weft__float_of_bits(sign | weft__bits_of_float(value));
}

static inline uint16_t weft__fp16_of_float(float value)
{
    const uint32_t bits = weft__bits_of_float(value);
    const uint32_t sign = bits >> 16 & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return 0x7fffu;
    if (magnitude >= 0x477ff000u) /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude >= 0x38800000u) { /* normal in fp16 */
        const uint32_t rebased = magnitude - ((127u - 15u) << 23);
        return (uint16_t)(sign | (rebased + 0xfffu + ((rebased >> 13) & 1u)) >> 13);
    }
    /* Adding 0.5 puts the subnormal's last place (2^-24) at fp32's last place of 0.5; the addition
     * itself rounds to nearest even. */
    const float shifted = weft__float_of_bits(magnitude) + 0.5f;
    return (uint16_t)(sign | (weft__bits_of_float(shifted) - 0x3f000000u));
}

/* FP8 e4m3 has no infinities: 0x7f and 0xff are NaN, 0x7e is the largest number, 448. */
static inline float weft__float_of_fp8(uint8_t code)
{
    const uint32_t sign = (uint32_t)(code & 0x80u) << 24;
    const uint32_t magnitude = code & 0x7fu;
    const uint32_t normal = (magnitude << 20) + ((127u - 7u) << 23);
    const uint32_t subnormal = weft__bits_of_float((float)(int32_t)magnitude * 0x1p-9f); /* exact */
    const uint32_t number = magnitude >= 0x08u ? normal : subnormal;
    return weft__float_of_bits(magnitude == 0x7fu ? 0x7fffffffu : sign | number);
}

static inline uint8_t weft__fp8_of_float(float value)
{
    const uint32_t bits = weft__bits_of_float(value);
    const uint32_t sign = bits >> 24 & 0x80u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    const uint32_t rebased = magnitude - ((127u - 7u) << 23);
    const uint32_t normal = (rebased + 0x7ffffu + ((rebased >> 20) & 1u)) >> 20;
    /* As for fp16: the last place of fp32's 2^14 is that of the subnormals, 2^-9. */
    const float shifted = weft__float_of_bits(magnitude) + 0x1p14f;
    const uint32_t subnormal = weft__bits_of_float(shifted) - 0x46800000u;
    const uint32_t number = magnitude < 0x3c800000u ? subnormal : normal > 0x7eu ? 0x7eu : normal;
    return (uint8_t)(magnitude > 0x7f800000u ? 0x7fu : sign | number);
}

/* To nearest even, at most 127 in magnitude; NaN becomes 0. */
static inline int8_t weft__int8_of_float(float value)
{
    const float number = value == value ? value : 0.0f;
    const float below = number > 127.0f ? 127.0f : number;
    const float between = below < -127.0f ? -127.0f : below;
    /* The last place of such numbers is 1, so the addition rounds; the low bits are those of the
     * integer. */
    return (int8_t)(uint8_t)weft__bits_of_float(between + 0x1.8p23f);
}
