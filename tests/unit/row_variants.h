/* SPDX-License-Identifier: MIT */
/* Tests of the cpu machine's row functions, in every instruction set that this processor has. */
#pragma once

#include <stdlib.h>

#include "harness/cmocka.h"
#include "machine/cpu/cpu_rows.h"

static inline void each_row_variant(void (*check)(const struct weft__row_functions *functions))
{
    int num_chosen = 0;
    for (int variant = 0; variant < WEFT__NUM_ROW_VARIANTS; variant++) {
        const struct weft__row_functions *functions =
            weft__cpu_rows_of((enum weft__row_variant)variant);
        if (functions == NULL)
            print_message("variant %d cannot run on this processor\n", variant);
        else
            check(functions);
        num_chosen += functions == weft__cpu_rows();
    }
    assert_int_equal(num_chosen, 1);
}

/* Before the body of a test, which gets the `functions` of a variant. */
#define TEST_OF_ROW_VARIANTS(name)                                                                 \
    static void name##_by(const struct weft__row_functions *functions);                            \
    TEST(name)                                                                                     \
    {                                                                                              \
        each_row_variant(name##_by);                                                               \
    }                                                                                              \
    static void name##_by(const struct weft__row_functions *functions)

/* To be freed. */
static inline void *new_rows(size_t bytes)
{
    void *rows = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_non_null(rows);
    return rows;
}

/* The same with memory for rows of this type. */
#define TEST_OF_ROWS(name, type)                                                                   \
    static void name##_of(const struct weft__row_functions *functions, type *rows);                \
    TEST_OF_ROW_VARIANTS(name)                                                                     \
    {                                                                                              \
        type *rows = new_rows(sizeof *rows);                                                       \
        name##_of(functions, rows);                                                                \
        free(rows);                                                                                \
    }                                                                                              \
    static void name##_of(const struct weft__row_functions *functions, type *rows)
