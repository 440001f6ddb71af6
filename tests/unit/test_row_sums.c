/* SPDX-License-Identifier: MIT */
/* Sums of rows of different types on the cpu machine: every variant gives the bits of a slow
 * reference. */
#include "harness/cmocka.h"
#include "mixed_rows.h"
#include "row_variants.h"

TEST_OF_ROWS(every_variant_gives_the_reference_bits, struct mixed_rows)
{
    uint64_t state = 1;
    for (int i = 0; i < NUM_MIXED_SUMS * MIXED_TRIALS; i++) {
        draw_mixed_rows(rows, mixed_sum(i % NUM_MIXED_SUMS), &state);
        functions->sum_mixed(rows->dst, rows->srcs, rows->num_srcs, rows->sum, rows->num_elements);
        check_mixed_rows(rows);
    }
}

TEST_OF_ROWS(all_pairs_of_special_values, struct mixed_rows)
{
    for (int i = 0; i < NUM_MIXED_SUMS; i++) {
        pair_special_values(rows, mixed_sum(i));
        functions->sum_mixed(rows->dst, rows->srcs, rows->num_srcs, rows->sum, rows->num_elements);
        check_mixed_rows(rows);
    }
}

/* By itself, which is a sum all the same: -0 becomes +0, and every NaN the one that there is. */
TEST_OF_ROWS(a_row_by_itself_is_a_sum, struct mixed_rows)
{
    uint64_t state = 1;
    for (int i = 0; i < NUM_MIXED_SUMS * MIXED_TRIALS; i++) {
        if (i < NUM_MIXED_SUMS)
            pair_special_values(rows, mixed_sum(i));
        else
            draw_mixed_rows(rows, mixed_sum(i % NUM_MIXED_SUMS), &state);
        keep_one_row(rows, rows->num_srcs / 2);
        if (i >= NUM_MIXED_SUMS)
            (void)sum_into_a_source(rows, &state);
        functions->sum_mixed(rows->dst, rows->srcs, rows->num_srcs, rows->sum, rows->num_elements);
        check_mixed_rows(rows);
    }
}

/* A row into which others are summed. */
TEST_OF_ROWS(a_source_can_be_written_over, struct mixed_rows)
{
    uint64_t state = 1;
    for (int i = 0; i < NUM_MIXED_SUMS * MIXED_TRIALS; i++) {
        draw_mixed_rows(rows, mixed_sum(i % NUM_MIXED_SUMS), &state);
        if (!sum_into_a_source(rows, &state))
            continue;
        functions->sum_mixed(rows->dst, rows->srcs, rows->num_srcs, rows->sum, rows->num_elements);
        check_mixed_rows(rows);
    }
}

/* What combine between nodes is made of: sums of the nodes in fp32, of which the token's owner
 * makes one. */
TEST_OF_ROW_VARIANTS(partial_sums_are_not_rounded)
{
    /* 1 + 2^-8 is halfway between two bf16 numbers: of a sum that is rounded first, nothing of it
     * is left. */
    const uint16_t one = 0x3f80, small = 0x3b80, bias = 0x3f80;
    float partials[2];
    uint16_t out;
    const void *node0[] = {&one, &small}, *node1[] = {NULL, &small};
    const struct wp_mixed_sum of_node = {2, WEFT_BF16, WEFT_FP32, WEFT_FP32, WP_READ_SOON};
    functions->sum_mixed(&partials[0], node0, 2, of_node, 1);
    functions->sum_mixed(&partials[1], node1, 2, of_node, 1);
    assert_true(partials[0] == 0x1.01p0f && partials[1] == 0x1p-8f);
    const void *all[] = {&bias, NULL, &partials[0], &partials[1]};
    const struct wp_mixed_sum of_token = {2, WEFT_BF16, WEFT_FP32, WEFT_BF16, WP_READ_LATER};
    functions->sum_mixed(&out, all, 4, of_token, 1);
    assert_int_equal(out, 0x4000); /* 2 + 2^-7 is halfway, too */
    const void *without_bias[] = {NULL, NULL, &partials[0], &partials[1]};
    functions->sum_mixed(&out, without_bias, 4, of_token, 1);
    assert_int_equal(out, 0x3f81); /* 1 + 2^-7 */
}
