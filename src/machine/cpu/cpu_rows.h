/* SPDX-License-Identifier: MIT */
/* Row operations of the cpu machine. */
#pragma once

#include <stdint.h>

#include "weft.h"

/* Shorter rows stay in the cache. */
enum { WEFT__CPU_MIN_STREAM_BYTES = 2048 };

/* Visible to other ranks only after wp_signal's fence; so is what is streamed. */
void weft__cpu_row_copy(void *dst, const void *src, uint64_t row_bytes);
/* A part of a long row. */
void weft__cpu_row_stream(void *dst, const void *src, uint64_t num_bytes);

struct wp_reduction; /* machine/machine.h, which includes this file */
struct wp_mixed_sum;
struct wp_weighted_sum;
struct wp_quantisation;
struct wp_quantised_rows;

typedef void weft__row_reduce_fn(const void *const *dsts, int32_t num_dsts, const void *const *srcs,
                                 int32_t num_srcs, struct wp_reduction reduction,
                                 int64_t num_elements);

typedef void weft__row_sum_mixed_fn(void *dst, const void *const *srcs, int32_t num_srcs,
                                    struct wp_mixed_sum sum, int64_t num_elements);

typedef void weft__row_weighted_sum_fn(void *dst, const void *const *srcs, const float *weights,
                                       int32_t num_srcs, struct wp_weighted_sum sum,
                                       int64_t num_elements);

typedef void weft__row_quantise_fn(struct wp_quantised_rows to, const void *src,
                                   struct wp_quantisation how, int64_t num_elements);

typedef void weft__row_dequantise_fn(void *dst, const void *src, const void *scales,
                                     struct wp_quantisation how, int64_t num_elements);

/* In one instruction set: same bits in every one. */
struct weft__row_functions {
    weft__row_reduce_fn *reduce;
    weft__row_sum_mixed_fn *sum_mixed;
    weft__row_weighted_sum_fn *weighted_sum;
    weft__row_quantise_fn *quantise;
    weft__row_dequantise_fn *dequantise;
    const struct weft__tile_functions *tile; /* tile.h */
};

/* In the widest vectors that the processor has. */
const struct weft__row_functions *weft__cpu_rows(void);

enum weft__row_variant {
    WEFT__ROWS_BASE,
    WEFT__ROWS_AVX2,
    WEFT__ROWS_AVX512,
    WEFT__NUM_ROW_VARIANTS
};
/* Any of them, for tests and for the sim; NULL when this processor cannot run it. */
const struct weft__row_functions *weft__cpu_rows_of(enum weft__row_variant variant);
