/* SPDX-License-Identifier: MIT */
/* Rows that are to be reduced, and what must come out. */
#pragma once

#include "row_reference.h"
#include "row_values.h"

enum {
    MAX_ELEMENTS = 1600,
    MAX_SRCS = 9,
    MAX_DSTS = 3,
    NUM_TRIALS = 40,
    ROW_BYTES = 8 * MAX_ELEMENTS + ROW_MISALIGNMENT + 2 * ROW_GUARD_BYTES
};

/* Reductions of every type by every operator. */
enum { NUM_REDUCTIONS = NUM_DTYPES * (WP_REDUCTION_SUM_FROM_ZERO + 1) };

static inline struct wp_reduction numbered_reduction(int i)
{
    return (struct wp_reduction){(weft_dtype)(1 + i % NUM_DTYPES),
                                 (enum wp_reduction_op)(i / NUM_DTYPES), 0};
}

struct rows {
    _Alignas(64) char src[MAX_SRCS][ROW_BYTES];
    _Alignas(64) char dst[MAX_DSTS][ROW_BYTES];
    uint64_t expected[MAX_ELEMENTS];
    const void *srcs[MAX_SRCS];
    const void *dsts[MAX_DSTS];
    int32_t num_srcs;
    int32_t num_dsts;
};

/* Half of the rows of a trial begin at any multiple of what all are aligned to, for which machines
 * have ways of their own. */
static inline size_t draw_alignment(uint64_t *state)
{
    return (size_t)1 << next_random(state) % 5;
}

static inline size_t draw_misalignment(uint64_t *state, size_t alignment)
{
    return next_random(state) % 2 == 0
               ? 0
               : next_random(state) % (ROW_MISALIGNMENT / alignment) * alignment;
}

static inline void draw_rows(struct rows *rows, struct wp_reduction reduction, int64_t num_elements,
                             uint64_t *state)
{
    const size_t alignment = draw_alignment(state);
    const uint64_t null_odds = next_random(state) % 2 == 0 ? 4 : UINT64_MAX; /* often none */
    rows->num_srcs = (int32_t)(next_random(state) % (MAX_SRCS + 1));
    for (int32_t i = 0; i < rows->num_srcs; i++) {
        char *src = rows->src[i] + draw_misalignment(state, alignment);
        fill_row(reduction.dtype, src, num_elements, state);
        rows->srcs[i] = next_random(state) % null_odds == 0 ? NULL : src;
    }
    if (reduction.op != WP_REDUCTION_SUM_FROM_ZERO) { /* which alone may have no rows */
        char *src = rows->src[0] + draw_misalignment(state, alignment);
        fill_row(reduction.dtype, src, num_elements, state);
        rows->srcs[0] = src;
        rows->num_srcs = rows->num_srcs == 0 ? 1 : rows->num_srcs;
    }
    rows->num_dsts = (int32_t)(next_random(state) % MAX_DSTS + 1);
    for (int32_t i = 0; i < rows->num_dsts; i++) {
        char *dst = rows->dst[i] + ROW_GUARD_BYTES + draw_misalignment(state, alignment);
        rows->dsts[i] = next_random(state) % 4 == 0 ? NULL : dst;
    }
    memset(rows->dst, ROW_GUARD, sizeof rows->dst);
}

static inline void compute_expected(struct rows *rows, struct wp_reduction reduction,
                                    int64_t num_elements)
{
    reduce_reference(reduction, rows->srcs, rows->num_srcs, num_elements, rows->expected);
}

static inline void check_row(const struct rows *rows, const void *row,
                             struct wp_reduction reduction, int64_t num_elements)
{
    for (int64_t i = 0; i < num_elements; i++) {
        const uint64_t bits = load_bits(reduction.dtype, row, i);
        const uint64_t expected = load_bits(reduction.dtype, rows->expected, i);
        if (bits != expected)
            fail_msg("dtype %d, op %d, element %lld of %lld: %llx, not %llx", reduction.dtype,
                     reduction.op, (long long)i, (long long)num_elements, (unsigned long long)bits,
                     (unsigned long long)expected);
    }
}
