/* SPDX-License-Identifier: MIT */
#include "workload/hard_numbers.h"

#include "workload/elements.h"

/* The bits of a floating-point format. */
struct format {
    int fraction_bits, exponent_bits;
    int spread; /* of the exponents of numbers that cancel: further apart than the bits of a sum */
};

static struct format format_of(weft_dtype dtype)
{
    static const struct format formats[NUM_DTYPES + 1] = {
        [WEFT_FP8_E4M3] = {3, 4, 1}, [WEFT_FP16] = {10, 5, 2},  [WEFT_BF16] = {7, 8, 4},
        [WEFT_FP32] = {23, 8, 4},    [WEFT_FP64] = {52, 11, 8},
    };
    return formats[dtype];
}

static uint64_t sign_of(weft_dtype dtype)
{
    return UINT64_C(1) << (8 * dtype_bytes(dtype) - 1);
}

static uint64_t any_bits(weft_dtype dtype, uint64_t random)
{
    return random & (sign_of(dtype) | (sign_of(dtype) - 1));
}

static uint64_t low_bits(int num_bits)
{
    return (UINT64_C(1) << num_bits) - 1;
}

/* FP8 has numbers with the top exponent, and one NaN, but no infinity. */
static uint64_t infinity_of(weft_dtype dtype)
{
    const struct format format = format_of(dtype);
    const uint64_t top_exponent = low_bits(format.exponent_bits) << format.fraction_bits;
    return dtype == WEFT_FP8_E4M3 ? top_exponent | 6 : top_exponent;
}

/* The random bits that are not asked for are not looked at. */
static uint64_t float_of(weft_dtype dtype, int exponent, uint64_t fraction_mask, uint64_t random)
{
    const struct format format = format_of(dtype);
    const uint64_t bias = low_bits(format.exponent_bits - 1);
    return (random & (sign_of(dtype) | fraction_mask)) | (bias + (uint64_t)exponent)
                                                             << format.fraction_bits;
}

uint64_t number_near_one(weft_dtype dtype, int spread, uint64_t random)
{
    const struct format format = format_of(dtype);
    const int exponent = (int)(random >> 52 & 0x7ff) % (2 * spread + 1) - spread;
    if (dtype_is_integer(dtype))
        return any_bits(dtype, random);
    return float_of(dtype, exponent, low_bits(format.fraction_bits), random);
}

uint64_t cancelling_number(weft_dtype dtype, uint64_t random)
{
    static const int exponents[] = {0, 0, 1, -1, -6, 7, 7, 2};
    const struct format format = format_of(dtype);
    if (dtype_is_integer(dtype))
        return any_bits(dtype, random);
    return float_of(dtype, exponents[random >> 8 & 7] * format.spread, 1, random);
}

uint64_t special_number(weft_dtype dtype, int i)
{
    const struct format format = format_of(dtype);
    const uint64_t sign = sign_of(dtype), infinity = infinity_of(dtype), ones = sign | (sign - 1);
    const uint64_t integers[NUM_SPECIAL_NUMBERS] = {
        0, sign, 1, sign + 1, sign - 1, ones, 2, 3, ones - 1, ones - 2, sign - 2, sign + 2};
    if (dtype_is_integer(dtype))
        return integers[i];
    const uint64_t quiet = UINT64_C(1) << (format.fraction_bits - 1);
    const uint64_t floats[NUM_SPECIAL_NUMBERS] = {0,
                                                  sign,
                                                  1,
                                                  sign | low_bits(format.fraction_bits),
                                                  infinity,
                                                  sign | infinity,
                                                  infinity | 1,
                                                  sign | infinity | 1,
                                                  infinity | quiet,
                                                  ones,
                                                  infinity - 1,
                                                  sign | (infinity - 1)};
    return floats[i];
}

uint64_t number_of_class(weft_dtype dtype, enum number_class class, uint64_t random)
{
    const uint64_t sign = random & sign_of(dtype), infinity = infinity_of(dtype);
    const uint64_t fractions = low_bits(format_of(dtype).fraction_bits);
    const uint64_t fraction = random & fractions;
    const int is_odd = (int)(random >> 60 & 1);
    switch (class) {
    case CLASS_ZEROS:
        return sign;
    case CLASS_TINY:
        return sign | (is_odd ? fractions + (random & 1) : fraction);
    case CLASS_HUGE:
        return sign | (infinity - 1 - (uint64_t)is_odd);
    case CLASS_INFINITIES:
        return is_odd ? sign | infinity : number_near_one(dtype, 2, random);
    case CLASS_NANS:
        return sign | infinity | (fraction == 0 || dtype == WEFT_FP8_E4M3 ? 1 : fraction);
    default:
        return any_bits(dtype, random);
    }
}
