/* SPDX-License-Identifier: MIT */
/* A reduction of up to WEFT__TILE_ELEMENTS elements, row by row: the part of wp_row_reduce that
 * works in the first-level cache, also for rows that come one by one. */
#pragma once

#include "machine/machine.h"

enum { WEFT__TILE_ELEMENTS = 512, WEFT__TILE_BYTES = WEFT__TILE_ELEMENTS * 8 };

struct weft__tile {
    struct wp_reduction reduction;
    int32_t num_rows; /* so far */
    int64_t num_elements;
    _Alignas(64) char accumulators[WEFT__TILE_BYTES];
};

/* In one instruction set. */
struct weft__tile_functions {
    void (*begin)(struct weft__tile *tile, struct wp_reduction reduction, int64_t num_elements);
    void (*add)(struct weft__tile *tile, const void *src);
    /* May change the accumulators. dst may be one of the rows added. */
    void (*store)(struct weft__tile *tile, void *dst);
};
