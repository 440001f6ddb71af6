/* SPDX-License-Identifier: MIT */
/* Rows of WEFT_LOG_10BIT on the cpu machine: every variant gives the bits of the oracle. */
#include <float.h>

#include "harness/cmocka.h"
#include "logarithmic_rows.h"
#include "machine/machine.h"
#include "row_variants.h"

TEST_OF_ROWS(every_variant_encodes_as_the_oracle, struct logarithmic_rows)
{
    uint64_t state = 1;
    for (int i = 0; i < NUM_LOG_DTYPES * LOG_TRIALS; i++) {
        draw_encoded_rows(rows, i, &state);
        functions->log_encode(rows->dst, rows->rows, rows->weights, rows->num_rows, rows->dtype,
                              rows->num_elements);
        check_log_rows(rows);
    }
}

TEST_OF_ROWS(every_variant_sums_as_the_oracle, struct logarithmic_rows)
{
    uint64_t state = 1;
    for (int i = 0; i < NUM_LOG_DTYPES * LOG_TRIALS; i++) {
        draw_log_sum(rows, i, i % 3, &state);
        const struct wp_mixed_sum sum = {rows->num_first, rows->first_dtype, WEFT_LOG_10BIT,
                                         rows->dtype, WP_READ_LATER};
        functions->log_sum(rows->dst, rows->rows, rows->weights, rows->num_rows, sum,
                           rows->num_elements);
        check_log_rows(rows);
    }
}

/* Blocks of a row by themselves are the row. */
TEST(parts_of_a_row)
{
    struct logarithmic_rows *rows = new_rows(sizeof *rows);
    uint64_t random = 1;
    for (int i = 0; i < NUM_LOG_DTYPES * LOG_TRIALS; i++) {
        draw_encoded_rows(rows, i, &random);
        for (int64_t first = 0; first < rows->num_elements; first += WP_LOG_BLOCK_ELEMENTS) {
            const int64_t rest = rows->num_elements - first;
            const void *parts[LOG_MAX_ROWS];
            for (int32_t s = 0; s < rows->num_rows; s++)
                parts[s] = rows->rows[s] == NULL
                               ? NULL
                               : (const char *)rows->rows[s] +
                                     (uint64_t)first * wp_dtype_bytes(rows->dtype);
            weft__cpu_rows()->log_encode(
                rows->dst + wp_log_row_bytes(first), parts, rows->weights, rows->num_rows,
                rows->dtype, rest < WP_LOG_BLOCK_ELEMENTS ? rest : WP_LOG_BLOCK_ELEMENTS);
        }
        check_log_rows(rows);
    }
    free(rows);
}

/* ------------------------------------------------------------------ values, by hand */

static void there_and_back(const float *values, float *back)
{
    char row[LOGARITHMIC_GROUP_BYTES];
    const void *place = row, *from = values;
    weft__cpu_rows()->log_encode(row, &from, NULL, 1, WEFT_FP32, LOGARITHMIC_GROUP);
    const struct wp_mixed_sum sum = {0, WEFT_FP32, WEFT_LOG_10BIT, WEFT_FP32, WP_READ_LATER};
    weft__cpu_rows()->log_sum(back, &place, NULL, 1, sum, LOGARITHMIC_GROUP);
}

TEST(values_by_hand)
{
    float values[LOGARITHMIC_GROUP] = {1, -2, 0, -0.0f, NAN, INFINITY, -INFINITY, 1.5f, 0.5f};
    float back[LOGARITHMIC_GROUP];
    there_and_back(values, back);
    assert_true(back[0] > 0.998f && back[0] < 1.002f);
    assert_true(back[1] < -1.998f && back[1] >= -2);
    assert_true(back[2] == 0 && !signbit(back[3]) && back[3] == 0);
    assert_true(isnan(back[4]) && isnan(back[5]) && isnan(back[6]));
    assert_true(back[8] == 0.5f); /* the least is exact */
    /* What is 2^32 times less than the greatest is none or the least. */
    const float spread[LOGARITHMIC_GROUP] = {0x1p30f, 0x1p-2f, 0x1p-3f, 0x0.8p-3f, 0x1p-40f};
    there_and_back(spread, back);
    assert_true(back[0] > 0x0.fffp30f && back[0] <= 0x1p30f && back[1] == 0x1p-2f);
    assert_true(back[2] == 0x1p-2f && back[3] == 0 && back[4] == 0);
    /* One magnitude alone is exact in bf16, and the greatest one stays finite. */
    const float alone[LOGARITHMIC_GROUP] = {-3, 3, 0};
    there_and_back(alone, back);
    assert_true(back[0] == -3 && back[1] == 3 && back[2] == 0);
    const float great[LOGARITHMIC_GROUP] = {FLT_MAX, -FLT_MAX, 1e30f};
    there_and_back(great, back);
    assert_true(back[0] > 3.3e38f && isfinite(back[0]) && back[1] == -back[0]);
}

/* A step is a part of 510 of the powers of two from the least to the greatest. */
TEST(errors_are_small)
{
    float values[LOGARITHMIC_GROUP], back[LOGARITHMIC_GROUP];
    uint64_t random = 1;
    for (int i = 0; i < LOGARITHMIC_GROUP; i++)
        values[i] = ldexpf(1 + (float)(next_random(&random) % 1000) / 1000, -(i % 10));
    there_and_back(values, back);
    for (int i = 0; i < LOGARITHMIC_GROUP; i++)
        assert_true(fabsf(back[i] - values[i]) <= values[i] * (11.0f / 510 / 2));
}
