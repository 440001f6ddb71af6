/* SPDX-License-Identifier: MIT */
/* Sums of rows with weights on the cpu machine: every variant gives the bits of a slow
 * reference. */

#include "harness/cmocka.h"
#include "row_variants.h"
#include "weighted_rows.h"

static void sum_and_check(const struct weft__row_functions *functions,
                          struct weighted_rows *weighted)
{
    struct mixed_rows *rows = &weighted->rows;
    functions->weighted_sum(rows->dst, rows->srcs, weighted->weights, rows->num_srcs,
                            weighted_sum_of(weighted), rows->num_elements);
    check_mixed_rows(rows);
}

TEST_OF_ROWS(every_variant_gives_the_reference_bits, struct weighted_rows)
{
    uint64_t state = 1;
    for (int i = 0; i < NUM_WEIGHTED_SUMS * 4 * MIXED_TRIALS; i++) {
        draw_weighted_rows(rows, i % NUM_WEIGHTED_SUMS, &state);
        sum_and_check(functions, rows);
    }
}

TEST_OF_ROWS(special_values_by_special_weights, struct weighted_rows)
{
    for (int i = 0; i < NUM_WEIGHTED_SUMS * NUM_SPECIAL_NUMBERS; i++) {
        weigh_special_values(rows, i % NUM_WEIGHTED_SUMS, i / NUM_WEIGHTED_SUMS);
        sum_and_check(functions, rows);
    }
}

/* (1 + 2^-12)^2 has a last bit that fp32 has not; a fused operation would keep it. */
TEST_OF_ROW_VARIANTS(products_are_rounded_before_they_are_added)
{
    enum { NUM = 100 };
    const struct wp_weighted_sum sum = {WEFT_FP32, WEFT_FP32, WP_READ_LATER};
    const float weights[] = {0x1.001p0f, -1};
    float factors[NUM], squares[NUM], out[NUM];
    const void *srcs[] = {factors, squares};
    for (int i = 0; i < NUM; i++) {
        factors[i] = 0x1.001p0f;
        squares[i] = 0x1.002p0f;
    }
    functions->weighted_sum(out, srcs, weights, 2, sum, NUM);
    for (int i = 0; i < NUM; i++)
        assert_true(out[i] == 0);
}

TEST_OF_ROW_VARIANTS(no_rows_and_negative_zeros_give_zero)
{
    const struct wp_weighted_sum sum = {WEFT_BF16, WEFT_BF16, WP_READ_SOON};
    const uint16_t one = 0x3f80, minus_zero = 0x8000;
    const float weights[] = {-0.0f, 1};
    const void *srcs[] = {&one, &minus_zero}, *none[] = {NULL, NULL};
    uint16_t out = 1;
    functions->weighted_sum(&out, srcs, weights, 2, sum, 1);
    assert_int_equal(out, 0);
    out = 1;
    functions->weighted_sum(&out, none, weights, 2, sum, 1);
    assert_int_equal(out, 0);
}
