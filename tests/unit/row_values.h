/* SPDX-License-Identifier: MIT */
/* Rows for tests of reductions: values of a type that round, and often the special ones. */
#pragma once

#include <stdint.h>
#include <string.h>

#include "machine/machine.h"
#include "workload/hard_numbers.h"

static inline uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* Rows lie between guards, which must stay; those that are not plain at any address. */
enum { ROW_GUARD = 0x5a, ROW_GUARD_BYTES = 32, ROW_MISALIGNMENT = 16 };

static inline char *draw_place(char *memory, int is_plain, uint64_t *state)
{
    return memory + ROW_GUARD_BYTES + (is_plain ? 0 : next_random(state) % ROW_MISALIGNMENT);
}

static inline void check_guards(const char *row, uint64_t row_bytes)
{
    for (size_t i = 0; i < ROW_GUARD_BYTES; i++) {
        assert_int_equal(row[row_bytes + i], ROW_GUARD);
        assert_int_equal(*(row - 1 - i), ROW_GUARD);
    }
}

static inline void fill_row(weft_dtype dtype, void *row, int64_t num_elements, uint64_t *state)
{
    const uint64_t num_bytes = wp_dtype_bytes(dtype);
    for (int64_t i = 0; i < num_elements; i++) {
        const uint64_t choice = next_random(state) % 8;
        uint64_t bits = next_random(state) << 33 ^ next_random(state) << 16 ^ next_random(state);
        if (choice == 0)
            bits = special_number(dtype, (int)(next_random(state) % NUM_SPECIAL_NUMBERS));
        else if (choice < 6)
            bits = number_near_one(dtype, 0, bits); /* so that sums round instead of overflowing */
        memcpy((char *)row + (uint64_t)i * num_bytes, &bits, num_bytes);
    }
}
