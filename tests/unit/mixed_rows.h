/* SPDX-License-Identifier: MIT */
/* Rows of different types that are to be summed, and what must come out. */
#pragma once

#include "row_reference.h"
#include "row_values.h"

enum {
    MIXED_DTYPES = 4,
    NUM_MIXED_SUMS = MIXED_DTYPES * MIXED_DTYPES * MIXED_DTYPES,
    MIXED_TRIALS = 40,
    MIXED_MAX_ELEMENTS = 1100,
    MIXED_MAX_SRCS = 10,
    MIXED_ROW_BYTES = 4480
};
_Static_assert(MIXED_ROW_BYTES >= 4 * MIXED_MAX_ELEMENTS + ROW_MISALIGNMENT + 2 * ROW_GUARD_BYTES,
               "the widest row, its guards, and where it may begin");

struct mixed_rows {
    _Alignas(64) char memory[MIXED_MAX_SRCS + 1][MIXED_ROW_BYTES]; /* the last one is dst's */
    uint64_t expected[MIXED_MAX_ELEMENTS];
    const void *srcs[MIXED_MAX_SRCS];
    char *dst;
    int32_t num_srcs;
    struct wp_mixed_sum sum; /* num_first is drawn */
    int64_t num_elements;
};

/* The types of sum number `idx`, below NUM_MIXED_SUMS. */
static inline struct wp_mixed_sum mixed_sum(int idx)
{
    static const weft_dtype dtypes[MIXED_DTYPES] = {WEFT_BF16, WEFT_FP16, WEFT_FP32, WEFT_FP8_E4M3};
    return (struct wp_mixed_sum){
        .first_dtype = dtypes[idx % MIXED_DTYPES],
        .rest_dtype = dtypes[idx / MIXED_DTYPES % MIXED_DTYPES],
        .dst_dtype = dtypes[idx / MIXED_DTYPES / MIXED_DTYPES],
    };
}

static inline void expect_mixed_sum(struct mixed_rows *rows)
{
    sum_mixed_reference(rows->sum, rows->srcs, rows->num_srcs, rows->num_elements, rows->expected);
}

/* Half of the time all rows are there and aligned, for which a machine may have another way. */
static inline void draw_mixed_rows(struct mixed_rows *rows, struct wp_mixed_sum sum,
                                   uint64_t *state)
{
    static const int64_t sizes[] = {
        1, 2, 3, 4, 5, 31, 127, 128, 129, 511, 512, 513, 640, 769, 832, 1024, MIXED_MAX_ELEMENTS};
    const int is_plain = next_random(state) % 2 == 0;
    memset(rows->memory, ROW_GUARD, sizeof rows->memory);
    rows->num_elements = sizes[next_random(state) % (sizeof sizes / sizeof *sizes)];
    rows->num_srcs = (int32_t)(next_random(state) % (MIXED_MAX_SRCS + 1));
    rows->sum = sum;
    rows->sum.reuse = next_random(state) % 2 == 0 ? WP_READ_SOON : WP_READ_LATER;
    rows->sum.num_first = (int32_t)(next_random(state) % (uint64_t)(rows->num_srcs + 1));
    for (int32_t i = 0; i < rows->num_srcs; i++) {
        char *src = draw_place(rows->memory[i], is_plain || next_random(state) % 2 == 0, state);
        fill_row(mixed_src_dtype(rows->sum, i), src, rows->num_elements, state);
        rows->srcs[i] = !is_plain && next_random(state) % 4 == 0 ? NULL : src;
    }
    rows->dst =
        draw_place(rows->memory[MIXED_MAX_SRCS], is_plain || next_random(state) % 2 == 0, state);
    expect_mixed_sum(rows);
}

/* Every special value of the first type with every one of the other. */
static inline void pair_special_values(struct mixed_rows *rows, struct wp_mixed_sum sum)
{
    memset(rows->memory, ROW_GUARD, sizeof rows->memory);
    rows->sum = sum;
    rows->sum.num_first = 1;
    rows->num_srcs = 2;
    rows->num_elements = NUM_SPECIAL_NUMBERS * NUM_SPECIAL_NUMBERS;
    for (int32_t s = 0; s < 2; s++) {
        const weft_dtype dtype = mixed_src_dtype(rows->sum, s);
        char *src = rows->memory[s] + ROW_GUARD_BYTES;
        for (int i = 0; i < NUM_SPECIAL_NUMBERS * NUM_SPECIAL_NUMBERS; i++) {
            const uint64_t bits =
                special_number(dtype, s == 0 ? i % NUM_SPECIAL_NUMBERS : i / NUM_SPECIAL_NUMBERS);
            memcpy(src + (uint64_t)i * wp_dtype_bytes(dtype), &bits, wp_dtype_bytes(dtype));
        }
        rows->srcs[s] = src;
    }
    rows->dst = rows->memory[MIXED_MAX_SRCS] + ROW_GUARD_BYTES;
    expect_mixed_sum(rows);
}

/* Leaves only one of the rows. */
static inline void keep_one_row(struct mixed_rows *rows, int32_t kept)
{
    for (int32_t i = 0; i < rows->num_srcs; i++) {
        if (i != kept)
            rows->srcs[i] = NULL;
    }
    expect_mixed_sum(rows);
}

/* Makes one of the sources the destination. 0 if the drawn one is none, or of another type. */
static inline int sum_into_a_source(struct mixed_rows *rows, uint64_t *state)
{
    const int32_t idx = (int32_t)(next_random(state) % MIXED_MAX_SRCS);
    if (idx >= rows->num_srcs || rows->srcs[idx] == NULL ||
        mixed_src_dtype(rows->sum, idx) != rows->sum.dst_dtype)
        return 0;
    rows->dst = rows->memory[idx] + ((const char *)rows->srcs[idx] - rows->memory[idx]);
    return 1;
}

/* What lies around the sum is as it was. */
static inline void check_mixed_rows(const struct mixed_rows *rows)
{
    const uint64_t row_bytes = (uint64_t)rows->num_elements * wp_dtype_bytes(rows->sum.dst_dtype);
    for (int64_t i = 0; i < rows->num_elements; i++) {
        const uint64_t bits = load_bits(rows->sum.dst_dtype, rows->dst, i);
        const uint64_t expected = load_bits(rows->sum.dst_dtype, rows->expected, i);
        if (bits != expected)
            fail_msg("%d rows of dtype %d and %d of %d to %d, element %lld of %lld: %llx, not %llx",
                     rows->sum.num_first, rows->sum.first_dtype,
                     rows->num_srcs - rows->sum.num_first, rows->sum.rest_dtype,
                     rows->sum.dst_dtype, (long long)i, (long long)rows->num_elements,
                     (unsigned long long)bits, (unsigned long long)expected);
    }
    check_guards(rows->dst, row_bytes);
}
