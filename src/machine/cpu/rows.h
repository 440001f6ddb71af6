/* SPDX-License-Identifier: MIT */
/* Row operations of the cpu machine. */
#ifndef WEFT_MACHINE_CPU_ROWS_H
#define WEFT_MACHINE_CPU_ROWS_H

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

typedef void weft__row_reduce_fn(const void *const *dsts, int32_t num_dsts, const void *const *srcs,
                                 int32_t num_srcs, struct wp_reduction reduction,
                                 int64_t num_elements);

typedef void weft__row_sum_mixed_fn(void *dst, const void *const *srcs, int32_t num_srcs,
                                    struct wp_mixed_sum sum, int64_t num_elements);

/* wp_row_reduce and wp_row_sum_mixed, in the widest vectors that the processor has. Same bits
 * in every variant. */
weft__row_reduce_fn weft__cpu_row_reduce;
weft__row_sum_mixed_fn weft__cpu_row_sum_mixed;

/* The variants, for tests: NULL when this processor cannot run one. */
enum weft__row_variant {
    WEFT__ROWS_BASE,
    WEFT__ROWS_AVX2,
    WEFT__ROWS_AVX512,
    WEFT__NUM_ROW_VARIANTS
};
weft__row_reduce_fn *weft__cpu_row_reduce_variant(enum weft__row_variant variant);
weft__row_sum_mixed_fn *weft__cpu_row_sum_mixed_variant(enum weft__row_variant variant);

#endif
