/* SPDX-License-Identifier: MIT */
/* Quantised rows on the cpu machine: every variant gives the bits of a slow reference. */
#include <float.h>
#include <math.h>

#include "harness/cmocka.h"
#include "machine/float_bits.h"
#include "quantised_rows.h"
#include "row_variants.h"

static struct wp_quantised_rows all_of(const struct quantised_rows *rows)
{
    return (struct wp_quantised_rows){rows->dsts, rows->dsts, rows->scales_offset, rows->num_dsts};
}

TEST_OF_ROWS(every_variant_gives_the_reference_bits, struct quantised_rows)
{
    uint64_t state = 1;
    for (int i = 0; i < NUM_QUANTISATIONS * QUANTISED_TRIALS; i++) {
        draw_quantised_rows(rows, i % NUM_QUANTISATIONS, &state);
        functions->quantise(all_of(rows), rows->src, rows->how, rows->num_elements);
        check_quantised_rows(rows);
    }
}

TEST_OF_ROWS(every_variant_gives_the_reference_bits_on_the_way_back, struct quantised_rows)
{
    uint64_t state = 1;
    for (int i = 0; i < NUM_QUANTISATIONS * QUANTISED_TRIALS; i++) {
        draw_dequantised_rows(rows, i % NUM_QUANTISATIONS, &state);
        const char *codes = rows->dsts[0];
        functions->dequantise((void *)(uintptr_t)rows->dsts[1], codes, codes + rows->scales_offset,
                              reversed(rows->how), rows->num_elements);
        check_quantised_rows(rows);
    }
}

/* Two calls for the parts of a row do what one does for all of it. */
TEST_OF_ROWS(parts_of_a_row, struct quantised_rows)
{
    uint64_t state = 1;
    for (int i = 0; i < NUM_QUANTISATIONS * QUANTISED_TRIALS; i++) {
        draw_quantised_rows(rows, i % NUM_QUANTISATIONS, &state);
        const struct wp_quantisation how = rows->how;
        const struct quantised_form form = form_of(how);
        /* Four scales of UE8M0 may share a word. */
        const int64_t groups = rows->num_elements / how.group_elements / 2 / 4 * 4;
        const int64_t first = groups * how.group_elements;
        const void *dsts[QUANTISED_MAX_DSTS];
        for (int32_t d = 0; d < rows->num_dsts; d++)
            dsts[d] = rows->dsts[d] == NULL ? NULL : (const char *)rows->dsts[d] + first;
        struct wp_quantised_rows to = all_of(rows);
        to.dsts = dsts; /* scales are still found from where the rows begin */
        to.scales_offset += quantised_scale_offset(&form, groups);
        functions->quantise(to, rows->src + (uint64_t)first * wp_dtype_bytes(how.src_dtype), how,
                            rows->num_elements - first);
        functions->quantise(all_of(rows), rows->src, how, first);
        check_quantised_rows(rows);
    }
}

/* ------------------------------------------------------------------ values, by hand */

struct quantised_pair {
    uint8_t codes[2];
    float scale;
};

/* Of a group of two. */
static struct quantised_pair quantise_pair(const struct weft__row_functions *functions,
                                           weft_dtype narrow, enum wp_scale_kind kind, float a,
                                           float b)
{
    const float src[] = {a, b};
    struct quantised_pair pair = {{0, 0}, 0};
    const void *dsts[] = {&pair};
    const struct wp_quantisation how = {WEFT_FP32, narrow, kind, 2, 0};
    const struct wp_quantised_rows to = {dsts, dsts, offsetof(struct quantised_pair, scale), 1};
    functions->quantise(to, src, how, 2);
    return pair;
}

TEST_OF_ROW_VARIANTS(values_by_hand)
{
    static const struct {
        weft_dtype narrow;
        enum wp_scale_kind kind;
        float a, b;
        struct quantised_pair expected;
    } cases[] = {
        /* The greatest becomes 448, half of it 224. */
        {WEFT_FP8_E4M3, WP_SCALE_FP32, 3, -1.5f, {{0x7e, 0xf6}, 3 * (1.0f / 448.0f)}},
        {WEFT_FP8_E4M3, WP_SCALE_FP32, 448, 0, {{0x7e, 0x00}, 1}},
        {WEFT_FP8_E4M3, WP_SCALE_FP32_POWER_OF_TWO, 448, 449, {{0x76, 0x76}, 2}},
        {WEFT_FP8_E4M3, WP_SCALE_FP32_POWER_OF_TWO, 448, -0.0f, {{0x7e, 0x80}, 1}},
        /* No scale is 0. */
        {WEFT_FP8_E4M3, WP_SCALE_FP32, 0, -0.0f, {{0x00, 0x80}, 1e-4f * (1.0f / 448.0f)}},
        {WEFT_FP8_E4M3, WP_SCALE_FP32, 0x1p-149f, 0, {{0x00, 0x00}, 1e-4f * (1.0f / 448.0f)}},
        {WEFT_FP8_E4M3, WP_SCALE_FP32_POWER_OF_TWO, 0, 0, {{0x00, 0x00}, 0x1p-22f}},
        {WEFT_INT8, WP_SCALE_FP32, 0, -0.0f, {{0, 0}, 1e-4f / 127}},
        /* What is not finite does not count. */
        {WEFT_FP8_E4M3, WP_SCALE_FP32, 448, INFINITY, {{0x7e, 0x7e}, 1}},
        {WEFT_FP8_E4M3, WP_SCALE_FP32, 448, -INFINITY, {{0x7e, 0xfe}, 1}},
        {WEFT_FP8_E4M3, WP_SCALE_FP32, -448, NAN, {{0xfe, 0x7f}, 1}},
        {WEFT_FP8_E4M3, WP_SCALE_FP32, -448, -NAN, {{0xfe, 0x7f}, 1}},
        {WEFT_INT8, WP_SCALE_FP32, 127, -INFINITY, {{127, 0x81}, 1}},
        {WEFT_INT8, WP_SCALE_FP32, -127, NAN, {{0x81, 0}, 1}},
        /* The greatest numbers have a scale, too. */
        {WEFT_FP8_E4M3, WP_SCALE_FP32, FLT_MAX, -FLT_MAX, {{0x7e, 0xfe}, 0x1.249248p119f}},
        {WEFT_FP8_E4M3, WP_SCALE_FP32_POWER_OF_TWO, FLT_MAX, 0, {{0x78, 0x00}, 0x1p120f}},
        /* Halves go to the even neighbour. */
        {WEFT_INT8, WP_SCALE_FP32, 127, 2.5f, {{127, 2}, 1}},
        {WEFT_INT8, WP_SCALE_FP32, 127, -3.5f, {{127, 0xfc}, 1}},
        {WEFT_INT8, WP_SCALE_FP32_POWER_OF_TWO, 128, 1, {{64, 0}, 2}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct quantised_pair pair =
            quantise_pair(functions, cases[i].narrow, cases[i].kind, cases[i].a, cases[i].b);
        if (pair.codes[0] != cases[i].expected.codes[0] ||
            pair.codes[1] != cases[i].expected.codes[1] || pair.scale != cases[i].expected.scale)
            fail_msg("case %zu: %x, %x and %a", i, pair.codes[0], pair.codes[1],
                     (double)pair.scale);
    }
}

/* Quarters. */
TEST(int8_conversion_rounds_to_nearest_even)
{
    for (int i = -4 * 130; i <= 4 * 130; i++) {
        const double value = i / 4.0, whole = nearbyint(value);
        const int expected = (int)(fabs(whole) > 127 ? copysign(127, whole) : whole);
        assert_int_equal(weft__int8_of_float((float)value), expected);
    }
}
