/* SPDX-License-Identifier: MIT */
/* Row operations of the cpu machine. */
#ifndef WEFT_MACHINE_CPU_ROWS_H
#define WEFT_MACHINE_CPU_ROWS_H

#include <stdint.h>

#include "weft.h"

/* Visible to other ranks only after weft_signal's fence. */
void weft__cpu_row_copy(void *dst, const void *src, uint64_t row_bytes);

typedef void weft__row_sum_fn(void *dst, const void *const *srcs, int32_t num_srcs,
                              weft_dtype dtype, int64_t num_elements);

/* dst = the non-null srcs added in order to +0 in fp32, rounded once; in the widest vectors that the
 * processor has. Same bits in every variant. */
weft__row_sum_fn weft__cpu_row_sum;

/* The variants, for tests: NULL when this processor cannot run one. */
enum weft__row_variant {
    WEFT__ROWS_BASE,
    WEFT__ROWS_AVX2,
    WEFT__ROWS_AVX512,
    WEFT__NUM_ROW_VARIANTS
};
weft__row_sum_fn *weft__cpu_row_sum_variant(enum weft__row_variant variant);

#endif
