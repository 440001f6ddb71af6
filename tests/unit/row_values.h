/* SPDX-License-Identifier: MIT */
/* Rows for tests of reductions: values of a type that round, and often the special ones. */
#pragma once

#include <stdint.h>
#include <string.h>

#include "machine/machine.h"

static inline uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* Sign and fraction are drawn, the exponent is fixed: so that sums round instead of overflowing. */
static inline uint64_t near_one(weft_dtype dtype, uint64_t bits)
{
    switch (dtype) {
    case WEFT_BF16:
        return (bits & 0x807f) | 0x3f00;
    case WEFT_FP16:
        return (bits & 0x83ff) | 0x3800;
    case WEFT_FP32:
        return (bits & 0x807fffff) | 0x3f000000;
    case WEFT_FP64:
        return (bits & UINT64_C(0x800fffffffffffff)) | UINT64_C(0x3fe0000000000000);
    case WEFT_FP8_E4M3:
        return (bits & 0x87) | 0x30;
    default:
        return bits % 16;
    }
}

enum { NUM_SPECIAL_VALUES = 12 };

/* Zeros of both signs, subnormals, largest numbers, infinities, NaNs of every kind; of integers the
 * least and the greatest. */
static inline uint64_t special_value(weft_dtype dtype, int i)
{
    static const uint16_t bf16[NUM_SPECIAL_VALUES] = {
        0, 0x8000, 1, 0x807f, 0x7f80, 0xff80, 0x7f81, 0xff81, 0x7fc0, 0xffff, 0x7f7f, 0xff7f};
    static const uint16_t fp16[NUM_SPECIAL_VALUES] = {
        0, 0x8000, 1, 0x83ff, 0x7c00, 0xfc00, 0x7c01, 0xfc01, 0x7e00, 0xffff, 0x7bff, 0xfbff};
    static const uint32_t words[NUM_SPECIAL_VALUES] = {
        0,          0x80000000, 1,          0x807fffff, 0x7f800000, 0xff800000,
        0x7f800001, 0xff800001, 0x7fc00000, 0xffffffff, 0x7f7fffff, 0x7fffffff};
    static const uint64_t doubles[NUM_SPECIAL_VALUES] = {0,
                                                         UINT64_C(0x8000000000000000),
                                                         1,
                                                         UINT64_C(0x800fffffffffffff),
                                                         UINT64_C(0x7ff0000000000000),
                                                         UINT64_C(0xfff0000000000000),
                                                         UINT64_C(0x7ff0000000000001),
                                                         UINT64_C(0xfff0000000000001),
                                                         UINT64_C(0x7ff8000000000000),
                                                         UINT64_C(0xffffffffffffffff),
                                                         UINT64_C(0x7fefffffffffffff),
                                                         UINT64_C(0x7fffffffffffffff)};
    static const uint8_t bytes[NUM_SPECIAL_VALUES] = {0,    0x80, 1,    0x87, 0x7e, 0xfe,
                                                      0x7f, 0xff, 0x08, 0x88, 0x02, 0x81};
    const uint64_t num_bytes = wp_dtype_bytes(dtype);
    if (num_bytes == 1)
        return bytes[i];
    if (num_bytes == 2)
        return dtype == WEFT_BF16 ? bf16[i] : fp16[i];
    return num_bytes == 4 ? words[i] : doubles[i];
}

static inline void fill_row(weft_dtype dtype, void *row, int64_t num_elements, uint64_t *state)
{
    const uint64_t num_bytes = wp_dtype_bytes(dtype);
    for (int64_t i = 0; i < num_elements; i++) {
        const uint64_t choice = next_random(state) % 8;
        uint64_t bits = next_random(state) << 33 ^ next_random(state) << 16 ^ next_random(state);
        if (choice == 0)
            bits = special_value(dtype, (int)(next_random(state) % NUM_SPECIAL_VALUES));
        else if (choice < 6)
            bits = near_one(dtype, bits);
        memcpy((char *)row + (uint64_t)i * num_bytes, &bits, num_bytes);
    }
}
