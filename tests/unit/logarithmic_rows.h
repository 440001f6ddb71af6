/* SPDX-License-Identifier: MIT */
/* Rows of WEFT_LOG_10BIT: those that are to be made of others, and those that are to be summed; and
 * what must come out. */
#pragma once

#include <math.h>

#include "row_values.h"
#include "workload/elements.h"
#include "workload/logarithmic.h"

enum {
    LOG_MAX_ELEMENTS = 1664,
    LOG_MAX_ROWS = 10,
    LOG_ROW_BYTES = 4 * LOG_MAX_ELEMENTS + 2 * ROW_GUARD_BYTES + 64,
    NUM_LOG_DTYPES = 3,
    LOG_TRIALS = 200
};
_Static_assert(LOG_ROW_BYTES % 64 == 0, "rows are aligned");

struct logarithmic_rows {
    /* The sources, then the dst, which is the last. */
    _Alignas(64) char memory[LOG_MAX_ROWS + 1][LOG_ROW_BYTES];
    char expected[LOG_MAX_ROWS + 1][LOG_ROW_BYTES];
    const void *rows[LOG_MAX_ROWS]; /* the sources; some are NULL */
    char *dst;
    float drawn[LOG_MAX_ROWS];
    const float *weights; /* the drawn ones, or NULL */
    int32_t num_rows;
    int32_t num_first; /* of sums: so many sources are wide rows, and there are no weights */
    int64_t num_elements;
    weft_dtype dtype, first_dtype; /* of wide rows, and of the first ones of a sum */
};

/* Numbers of a few powers of two, or of all, or any bits; one group may be of zeros. */
static inline void fill_log_source(struct logarithmic_rows *rows, char *row, uint64_t *state)
{
    const uint64_t num_bytes = dtype_bytes(rows->dtype);
    fill_row(rows->dtype, row, rows->num_elements, state);
    for (int64_t i = 0; i < rows->num_elements; i += LOGARITHMIC_GROUP) {
        const uint64_t content = next_random(state) % 4;
        for (int64_t k = i; k < i + LOGARITHMIC_GROUP && content < 3; k++) {
            const uint64_t random = next_random(state);
            float value = (float)(random % 4096) / 1024.0f - 2.0f;
            if (content == 1)
                value = ldexpf(value, (int)(random / 4096 % 60) - 40);
            element_store(rows->dtype, row + (uint64_t)k * num_bytes, 0, content == 2 ? 0 : value);
        }
    }
}

/* Half of the time all is aligned, for which a machine may have another way. */
static inline int begin_log_rows(struct logarithmic_rows *rows, int idx, uint64_t *state)
{
    static const weft_dtype dtypes[NUM_LOG_DTYPES] = {WEFT_BF16, WEFT_FP16, WEFT_FP32};
    memset(rows->memory, ROW_GUARD, sizeof rows->memory);
    memset(rows->expected, ROW_GUARD, sizeof rows->expected);
    rows->dtype = dtypes[idx % NUM_LOG_DTYPES];
    rows->num_elements = LOGARITHMIC_GROUP *
                         (int64_t)(next_random(state) % (LOG_MAX_ELEMENTS / LOGARITHMIC_GROUP + 1));
    rows->num_rows = (int32_t)(next_random(state) % LOG_MAX_ROWS);
    rows->num_first = 0;
    return next_random(state) % 2 == 0;
}

static inline double log_summand(const struct logarithmic_rows *rows, int32_t s, int64_t i)
{
    if (s < rows->num_first)
        return (double)element_load(rows->first_dtype, rows->rows[s], i);
    return (double)logarithmic_number(rows->rows[s], rows->num_elements, i);
}

static inline char *expected_dst(struct logarithmic_rows *rows)
{
    return rows->expected[LOG_MAX_ROWS] + (rows->dst - rows->memory[LOG_MAX_ROWS]);
}

/* To a row of dtype. */
static inline void expect_log_sum(const struct logarithmic_rows *rows, char *expected)
{
    for (int64_t i = 0; i < rows->num_elements; i++) {
        float sum = 0;
        for (int32_t s = 0; s < rows->num_rows; s++) {
            if (rows->rows[s] == NULL)
                continue;
            const double weight = rows->weights == NULL ? 1 : (double)rows->weights[s];
            const float product = (float)(weight * log_summand(rows, s, i));
            sum = (float)((double)sum + (double)product);
        }
        element_store(rows->dtype, expected, i, sum);
    }
}

/* With `dtype` that of the row, which is put back. */
static inline void make_log_source(struct logarithmic_rows *rows, char *row, int32_t s,
                                   uint64_t *state)
{
    static char wide[4 * LOG_MAX_ELEMENTS];
    const weft_dtype dtype = rows->dtype;
    if (s < rows->num_first) {
        rows->dtype = rows->first_dtype;
        fill_log_source(rows, row, state);
    } else {
        fill_log_source(rows, wide, state);
        logarithmic_make_row(rows->dtype, wide, rows->num_elements, (uint8_t *)row);
    }
    rows->dtype = dtype;
}

static inline void draw_log_sum(struct logarithmic_rows *rows, int idx, int32_t max_first,
                                uint64_t *state)
{
    const int is_plain = begin_log_rows(rows, idx, state);
    rows->first_dtype = (weft_dtype)(WEFT_BF16 + next_random(state) % NUM_LOG_DTYPES);
    rows->num_first = rows->num_rows < max_first ? rows->num_rows : max_first;
    for (int32_t s = 0; s < rows->num_rows; s++) {
        char *row = draw_place(rows->memory[s], is_plain, state);
        make_log_source(rows, row, s, state);
        rows->rows[s] = !is_plain && next_random(state) % 4 == 0 ? NULL : row;
        memcpy(rows->expected[s], rows->memory[s], LOG_ROW_BYTES);
    }
    fill_row(WEFT_FP32, rows->drawn, LOG_MAX_ROWS, state);
    rows->weights = rows->num_first > 0 || next_random(state) % 4 == 0 ? NULL : rows->drawn;
    rows->dst = draw_place(rows->memory[LOG_MAX_ROWS], is_plain, state);
    expect_log_sum(rows, expected_dst(rows));
}

/* Rows that are summed and encoded: often one, without weights. */
static inline void draw_encoded_rows(struct logarithmic_rows *rows, int idx, uint64_t *state)
{
    static char sum[4 * LOG_MAX_ELEMENTS];
    const int is_plain = begin_log_rows(rows, idx, state);
    const int is_one = next_random(state) % 2 == 0;
    if (is_one)
        rows->num_rows = 1;
    rows->num_first = rows->num_rows; /* all are wide */
    rows->first_dtype = rows->dtype;
    for (int32_t s = 0; s < rows->num_rows; s++) {
        char *row = draw_place(rows->memory[s], is_plain, state);
        fill_log_source(rows, row, state);
        rows->rows[s] = !is_plain && next_random(state) % 4 == 0 ? NULL : row;
        memcpy(rows->expected[s], rows->memory[s], LOG_ROW_BYTES);
    }
    fill_row(WEFT_FP32, rows->drawn, LOG_MAX_ROWS, state);
    rows->weights = is_one || next_random(state) % 4 == 0 ? NULL : rows->drawn;
    rows->dst = draw_place(rows->memory[LOG_MAX_ROWS], is_plain, state);
    expect_log_sum(rows, sum);
    logarithmic_make_row(rows->dtype, sum, rows->num_elements, (uint8_t *)expected_dst(rows));
}

/* All rows to the last byte, and what lies around them. */
static inline void check_log_rows(const struct logarithmic_rows *rows)
{
    for (int32_t r = 0; r <= LOG_MAX_ROWS; r++) {
        if (memcmp(rows->memory[r], rows->expected[r], LOG_ROW_BYTES) == 0)
            continue;
        for (int64_t i = 0; i < LOG_ROW_BYTES; i++) {
            if (rows->memory[r][i] != rows->expected[r][i])
                fail_msg("dtype %d, %lld elements, row %d of %d, byte %lld: %x, not %x",
                         rows->dtype, (long long)rows->num_elements, r, rows->num_rows,
                         (long long)i, (uint8_t)rows->memory[r][i], (uint8_t)rows->expected[r][i]);
        }
    }
}
