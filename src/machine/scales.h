/* SPDX-License-Identifier: MIT */
/* The scales of quantised rows (struct wp_quantisation): one arithmetic for all machines. Part of
 * machine.h. */
#pragma once

#include <stdint.h>
#include <string.h>

/* The scale of a group. */
struct weft__scale {
    uint32_t bits;    /* fp32 */
    float multiplier; /* what its elements are multiplied with */
};

WP_FN uint32_t wp_bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

WP_FN float wp_float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* An element's weight in its group's maximum: its magnitude's bits, whose order is that of the
 * numbers; infinities and NaNs nothing. */
WP_FN uint32_t weft__finite_magnitude(uint32_t bits)
{
    const uint32_t magnitude = bits & 0x7fffffffu;
    return magnitude < 0x7f800000u ? magnitude : 0;
}

WP_FN struct weft__scale weft__scale_of_group(uint32_t greatest_magnitude, weft_dtype narrow,
                                              enum wp_scale_kind kind)
{
    const float greatest = wp_float_of(greatest_magnitude);
    const float amax = greatest > 1e-4f ? greatest : 1e-4f;
    const float most = narrow == WEFT_INT8 ? 127.0f : 448.0f;
    struct weft__scale scale;
    scale.bits = wp_bits_of(narrow == WEFT_INT8 ? amax / 127.0f : amax * (1.0f / 448.0f));
    scale.multiplier = most / amax;
    if (kind != WP_SCALE_FP32) {
        /* Exponents of such scales are far from both ends. */
        scale.bits = (scale.bits + 0x7fffffu) & 0x7f800000u;
        scale.multiplier = wp_float_of((254u << 23) - scale.bits);
    }
    return scale;
}

/* For programs, too. */
WP_FN uint64_t wp_scale_bytes(enum wp_scale_kind kind)
{
    return kind == WP_SCALE_UE8M0 ? 1 : sizeof(float);
}

/* For programs, too: where the scale of group `idx` is, from that of the row's first one on. */
WP_FN int64_t wp_scale_offset(struct wp_quantisation q, int64_t idx)
{
    const int64_t stride =
        q.scale_stride_bytes == 0 ? (int64_t)sizeof(float) : q.scale_stride_bytes;
    return q.scale == WP_SCALE_UE8M0 ? idx / 4 * stride + idx % 4 : idx * stride;
}
