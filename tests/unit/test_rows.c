/* SPDX-License-Identifier: MIT */
/* The row sum of the cpu machine: every variant gives the bits of a scalar reference. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "machine/cpu/rows.h"
#include "machine/float_bits.h"

enum { MAX_ELEMENTS = 2500, MAX_SRCS = 9, GUARD_BYTES = 16 };

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* Any bits, and often the special ones: zeros of both signs, subnormals, infinities, NaNs. */
static uint32_t random_bits(uint64_t *state)
{
    static const uint32_t special[] = {0x00000000, 0x80000000, 0x00010001, 0x7f800000,
                                       0xff800000, 0x7fc00001, 0x7f80ff80, 0x7c00fc00,
                                       0x04000001, 0x7bff7bff, 0xffffffff, 0x3f803c00};
    const uint32_t bits = (uint32_t)(next_random(state) << 16 ^ next_random(state));
    const uint64_t choice = next_random(state) % 8;
    if (choice == 0)
        return special[next_random(state) % (sizeof special / sizeof *special)];
    if (choice < 6) /* near 1, so that sums round instead of overflowing */
        return (bits & 0x807f807fu) | 0x3f003f00u;
    return bits;
}

static float element(const char *row, weft_dtype dtype, int64_t i)
{
    uint16_t half;
    float value;
    if (dtype == WEFT_FP32) {
        memcpy(&value, row + 4 * i, 4);
        return value;
    }
    memcpy(&half, row + 2 * i, 2);
    return dtype == WEFT_BF16 ? weft__float_of_bits((uint32_t)half << 16)
                              : weft__float_of_fp16(half);
}

static void check_element(const char *dst, weft_dtype dtype, int64_t i, float sum)
{
    if (dtype == WEFT_FP32) {
        uint32_t bits;
        memcpy(&bits, dst + 4 * i, 4);
        assert_int_equal(bits, weft__canonical_float_bits(sum));
        return;
    }
    uint16_t half;
    memcpy(&half, dst + 2 * i, 2);
    assert_int_equal(half,
                     dtype == WEFT_BF16 ? weft__bf16_of_float(sum) : weft__fp16_of_float(sum));
}

struct rows {
    char src[MAX_SRCS][4 * MAX_ELEMENTS + 4];
    char dst[4 * MAX_ELEMENTS + 4 + GUARD_BYTES];
};

static void check_sum(struct rows *rows, weft__row_sum_fn *function, weft_dtype dtype,
                      int64_t num_elements, size_t misalignment, uint64_t *state)
{
    const void *srcs[MAX_SRCS];
    const int32_t num_srcs = (int32_t)(next_random(state) % (MAX_SRCS + 1));
    const size_t row_bytes = (size_t)num_elements * (dtype == WEFT_FP32 ? 4 : 2);
    for (int32_t i = 0; i < num_srcs; i++)
        srcs[i] = next_random(state) % 4 == 0 ? NULL : rows->src[i] + misalignment;
    memset(rows->dst, 0x5a, sizeof rows->dst);
    char *dst = rows->dst + misalignment;
    function(dst, srcs, num_srcs, dtype, num_elements);
    for (int64_t i = 0; i < num_elements; i++) {
        float sum = 0.0f;
        for (int32_t s = 0; s < num_srcs; s++) {
            if (srcs[s] != NULL)
                sum += element(srcs[s], dtype, i);
        }
        check_element(dst, dtype, i, sum);
    }
    for (size_t i = 0; i < GUARD_BYTES; i++)
        assert_int_equal(dst[row_bytes + i], 0x5a);
}

static void every_variant_gives_the_reference_bits(void **unused)
{
    (void)unused;
    static const int64_t sizes[] = {1, 2, 7, 8, 15, 16, 17, 33, 1000, 1024, 1025, 2048, 2500};
    struct rows *rows = malloc(sizeof *rows);
    assert_non_null(rows);
    uint64_t state = 1;
    int num_variants = 0;
    for (int variant = 0; variant < WEFT__NUM_ROW_VARIANTS; variant++) {
        weft__row_sum_fn *function = weft__cpu_row_sum_variant((enum weft__row_variant)variant);
        if (function == NULL) {
            print_message("variant %d cannot run on this processor\n", variant);
            continue;
        }
        num_variants++;
        for (int i = 0; i < 300; i++) {
            for (int s = 0; s < MAX_SRCS; s++) {
                for (size_t word = 0; word < sizeof rows->src[s] / 4; word++) {
                    const uint32_t bits = random_bits(&state);
                    memcpy(rows->src[s] + 4 * word, &bits, 4);
                }
            }
            check_sum(rows, function, (weft_dtype)(WEFT_BF16 + i % 3), sizes[(size_t)i / 3 % 13],
                      next_random(&state) % 4, &state);
        }
    }
    assert_true(num_variants >= 1);
    free(rows);
}

static void fp16_conversion_is_exact_and_rounds_to_nearest_even(void **unused)
{
    (void)unused;
    for (uint32_t half = 0; half < 0x7c00; half++) {
        const double value = weft__float_of_fp16((uint16_t)half);
        const double expected =
            half < 0x400 ? ldexp(half, -24) : ldexp((half & 0x3ff) + 1024, (int)(half >> 10) - 25);
        assert_true(value == expected);
        assert_int_equal(weft__fp16_of_float((float)value), half);
        assert_int_equal(weft__fp16_of_float((float)-value), half | 0x8000);
        /* The middle between two neighbours goes to the even one, a bit more or less does not. */
        const double next =
            half + 1 == 0x7c00 ? 65536.0 : weft__float_of_fp16((uint16_t)(half + 1));
        const float middle = (float)((value + next) / 2);
        assert_int_equal(weft__fp16_of_float(middle), half + (half & 1));
        assert_int_equal(weft__fp16_of_float(nextafterf(middle, 0)), half);
        assert_int_equal(weft__fp16_of_float(nextafterf(middle, INFINITY)), half + 1);
    }
    assert_int_equal(weft__fp16_of_float(INFINITY), 0x7c00);
    assert_int_equal(weft__fp16_of_float(-INFINITY), 0xfc00);
    assert_int_equal(weft__fp16_of_float(NAN), 0x7fff);
    assert_int_equal(weft__fp16_of_float(-NAN), 0x7fff);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_variant_gives_the_reference_bits),
        cmocka_unit_test(fp16_conversion_is_exact_and_rounds_to_nearest_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
