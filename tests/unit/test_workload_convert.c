/* SPDX-License-Identifier: MIT */
/* The scalar conversions, against the definition of the formats. */
#include <math.h>

#include "harness/cmocka.h"
#include "workload/convert.h"

/* A 16-bit format by its definition: value of the bits, as a double. */
struct format {
    int num_mantissa_bits;
    int exponent_bias;
    uint16_t infinity;
    uint16_t (*round)(float value);
    float (*widen)(uint16_t bits);
};

static const struct format bf16 = {7, 127, 0x7f80, bf16_from_fp32, fp32_from_bf16};
static const struct format fp16 = {10, 15, 0x7c00, fp16_from_fp32, fp32_from_fp16};

static double magnitude_of(const struct format *format, uint16_t bits)
{
    int exponent = bits >> format->num_mantissa_bits;
    int mantissa = bits & ((1 << format->num_mantissa_bits) - 1);
    int hidden = exponent > 0 ? 1 << format->num_mantissa_bits : 0;
    int power = (exponent > 0 ? exponent : 1) - format->exponent_bias - format->num_mantissa_bits;
    return ldexp(mantissa + hidden, power);
}

static void check_widen(const struct format *format)
{
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        uint16_t magnitude = bits & 0x7fff;
        float value = format->widen((uint16_t)bits);
        if (magnitude > format->infinity) {
            assert_int_equal(fp32_bits(value), 0x7fffffff);
            continue;
        }
        double expected =
            magnitude == format->infinity ? INFINITY : magnitude_of(format, magnitude);
        assert_true(fabs((double)value) == expected);
        assert_int_equal(signbit(value) != 0, bits >> 15);
        assert_int_equal(format->round(value), bits);
    }
}

static void check_round(const struct format *format, float value, uint16_t expected)
{
    assert_int_equal(format->round(value), expected);
    assert_int_equal(format->round(-value), expected | 0x8000);
}

/* Rounding is monotone, so it is known everywhere once it is right at, just below and just above
 * the middle between each two neighbours. The value "after the largest" stands for infinity. */
static void check_round_at_middles(const struct format *format)
{
    for (uint16_t low = 0; low < format->infinity; low++) {
        uint16_t high = (uint16_t)(low + 1), even = low % 2 == 0 ? low : high;
        double middle = (magnitude_of(format, low) + magnitude_of(format, high)) / 2;
        float exact = (float)middle;
        assert_true((double)exact == middle);
        check_round(format, exact, even);
        check_round(format, nextafterf(exact, 0), low);
        check_round(format, nextafterf(exact, INFINITY), high);
    }
}

static void check_round_special(const struct format *format)
{
    check_round(format, 0, 0);
    check_round(format, 0x1p-149f, 0);
    check_round(format, INFINITY, format->infinity);
    check_round(format, 0x1.fffffep127f, format->infinity);
    const uint32_t nans[] = {0x7f800001, 0x7fc00000, 0x7fffffff, 0xff800001, 0xffffffff};
    for (size_t i = 0; i < sizeof nans / sizeof *nans; i++)
        assert_int_equal(format->round(fp32_from_bits(nans[i])), 0x7fff);
}

TEST(bf16_conversion_follows_its_definition)
{
    check_widen(&bf16);
    check_round_at_middles(&bf16);
    check_round_special(&bf16);
}

TEST(fp16_conversion_follows_its_definition)
{
    check_widen(&fp16);
    check_round_at_middles(&fp16);
    check_round_special(&fp16);
}

/* FP8 by its definition; the value behind the largest, 480, would be where NaN is. */
static double fp8_magnitude(int bits)
{
    const int exponent = bits >> 3, mantissa = bits & 7;
    return exponent > 0 ? ldexp(8 + mantissa, exponent - 10) : ldexp(mantissa, -9);
}

TEST(fp8_conversion_follows_its_definition)
{
    const int nan = 0x7f;
    for (int bits = 0; bits < nan; bits++) {
        const float value = fp32_from_fp8((uint8_t)bits);
        assert_true((double)value == fp8_magnitude(bits));
        assert_true(fp32_from_fp8((uint8_t)(bits | 0x80)) == -value);
        assert_int_equal(signbit(fp32_from_fp8((uint8_t)(bits | 0x80))) != 0, 1);
        assert_int_equal(fp8_from_fp32(value), bits);
        assert_int_equal(fp8_from_fp32(-value), bits | 0x80);
        const float middle = (float)((fp8_magnitude(bits) + fp8_magnitude(bits + 1)) / 2);
        const int above = bits + 1 < nan ? bits + 1 : bits; /* 448 is where it ends */
        assert_int_equal(fp8_from_fp32(middle), bits % 2 == 0 ? bits : above);
        assert_int_equal(fp8_from_fp32(nextafterf(middle, 0)), bits);
        assert_int_equal(fp8_from_fp32(nextafterf(middle, INFINITY)), above);
    }
    assert_int_equal(fp32_bits(fp32_from_fp8(0x7f)), 0x7fffffff);
    assert_int_equal(fp32_bits(fp32_from_fp8(0xff)), 0x7fffffff);
    assert_int_equal(fp8_from_fp32(-NAN), nan);
    assert_int_equal(fp8_from_fp32(INFINITY), 0x7e);
    assert_int_equal(fp8_from_fp32(-0x1.fffffep127f), 0xfe);
    assert_int_equal(fp8_from_fp32(0x1p-149f), 0);
}

/* Over all of fp32, in steps that share no factor with it: larger values never round lower. */
TEST(rounding_is_monotone)
{
    uint16_t last_bf16 = 0, last_fp16 = 0, last_fp8 = 0;
    for (uint32_t bits = 0; bits <= 0x7f800000u; bits += 251) {
        float value = fp32_from_bits(bits);
        assert_true(bf16_from_fp32(value) >= last_bf16);
        assert_true(fp16_from_fp32(value) >= last_fp16);
        assert_true(fp8_from_fp32(value) >= last_fp8);
        last_bf16 = bf16_from_fp32(value);
        last_fp16 = fp16_from_fp32(value);
        last_fp8 = fp8_from_fp32(value);
    }
}
