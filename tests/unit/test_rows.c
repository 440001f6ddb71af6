/* SPDX-License-Identifier: MIT */
/* The reduction of rows on the cpu machine: every variant gives the bits of a slow reference. */

#include "harness/cmocka.h"
#include "machine/float_bits.h"
#include "reduced_rows.h"
#include "row_variants.h"

static void check_reduction(struct rows *rows, weft__row_reduce_fn *reduce,
                            struct wp_reduction reduction, uint64_t *state)
{
    static const int64_t sizes[] = {1,  2,  7,   8,   15,  16,  17,   31,
                                    33, 65, 511, 512, 513, 100, 1024, MAX_ELEMENTS};
    const int64_t num_elements = sizes[next_random(state) % (sizeof sizes / sizeof *sizes)];
    draw_rows(rows, reduction, num_elements, state);
    compute_expected(rows, reduction, num_elements);
    reduce(rows->dsts, rows->num_dsts, rows->srcs, rows->num_srcs, reduction, num_elements);
    for (int32_t i = 0; i < rows->num_dsts; i++) {
        if (rows->dsts[i] == NULL)
            continue;
        check_row(rows, rows->dsts[i], reduction, num_elements);
        check_guards(rows->dsts[i], (uint64_t)num_elements * wp_dtype_bytes(reduction.dtype));
    }
    /* In place. */
    const int32_t own = (int32_t)(next_random(state) % MAX_SRCS);
    if (own >= rows->num_srcs || rows->srcs[own] == NULL)
        return;
    const void *dsts[] = {rows->srcs[own]};
    reduce(dsts, 1, rows->srcs, rows->num_srcs, reduction, num_elements);
    check_row(rows, dsts[0], reduction, num_elements);
}

TEST_OF_ROW_VARIANTS(every_variant_gives_the_reference_bits)
{
    struct rows *rows = new_rows(sizeof *rows);
    uint64_t state = 1;
    for (int i = 0; i < NUM_REDUCTIONS * NUM_TRIALS; i++)
        check_reduction(rows, functions->reduce, numbered_reduction(i % NUM_REDUCTIONS), &state);
    free(rows);
}

enum { MAX_CODES = 256, MAX_PAIRS = MAX_CODES * MAX_CODES };

/* All pairs of the special values, of the types of one byte all pairs of values. */
static void check_pairs(weft__row_reduce_fn *reduce, struct wp_reduction reduction)
{
    static _Alignas(8) char rows[3][8 * MAX_PAIRS], expected[8 * MAX_PAIRS];
    const uint64_t num_bytes = wp_dtype_bytes(reduction.dtype);
    const int num_codes = num_bytes == 1 ? MAX_CODES : NUM_SPECIAL_NUMBERS;
    for (uint32_t i = 0; i < (uint32_t)(num_codes * num_codes); i++) {
        const int codes[] = {(int)i % num_codes, (int)i / num_codes};
        for (int s = 0; s < 2; s++) {
            const uint64_t bits =
                num_bytes == 1 ? (uint64_t)codes[s] : special_number(reduction.dtype, codes[s]);
            memcpy(rows[s] + i * num_bytes, &bits, num_bytes);
        }
    }
    const void *srcs[] = {rows[0], rows[1]};
    const void *dsts[] = {rows[2]};
    reduce(dsts, 1, srcs, 2, reduction, num_codes * num_codes);
    reduce_reference(reduction, srcs, 2, num_codes * num_codes, expected);
    assert_memory_equal(rows[2], expected, (uint64_t)(num_codes * num_codes) * num_bytes);
}

TEST_OF_ROW_VARIANTS(all_pairs_of_special_values)
{
    for (int i = 0; i < NUM_REDUCTIONS; i++)
        check_pairs(functions->reduce, numbered_reduction(i));
}

TEST(fp8_conversion_rounds_to_nearest_even_and_saturates)
{
    for (uint32_t code = 0; code < 0x7f; code++) {
        const float value = weft__float_of_fp8((uint8_t)code);
        const double expected = code < 8 ? code / 512.0 : ldexp(code % 8 + 8, (int)(code / 8) - 10);
        assert_true((double)value == expected);
        assert_int_equal(weft__fp8_of_float(value), code);
        assert_int_equal(weft__fp8_of_float(-value), code | 0x80);
        if (code == 0x7e)
            break;
        /* The middle between two neighbours goes to the even one, a bit more or less does not. */
        const float middle = (value + weft__float_of_fp8((uint8_t)(code + 1))) / 2;
        assert_int_equal(weft__fp8_of_float(middle), code + (code & 1));
        assert_int_equal(weft__fp8_of_float(nextafterf(middle, 0)), code);
        assert_int_equal(weft__fp8_of_float(nextafterf(middle, INFINITY)), code + 1);
    }
    const float large[] = {449, 464, 465, 480, 512, 1e30f, INFINITY};
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        assert_int_equal(weft__fp8_of_float(large[i]), 0x7e);
        assert_int_equal(weft__fp8_of_float(-large[i]), 0xfe);
    }
    assert_int_equal(weft__fp8_of_float(NAN), 0x7f);
    assert_int_equal(weft__fp8_of_float(-NAN), 0x7f);
    assert_true(isnan(weft__float_of_fp8(0x7f)) && isnan(weft__float_of_fp8(0xff)));
}

TEST(fp16_conversion_is_exact_and_rounds_to_nearest_even)
{
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
