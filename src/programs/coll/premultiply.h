/* SPDX-License-Identifier: MIT */
#pragma once

#include "machine/machine.h"

/* Elements [0, num_elements) of every row, to rows of just as many. */
struct wp_premultiply_args {
    const char *src; /* may be dst, of one row */
    char *dst;
    uint64_t src_stride_bytes; /* from one row to the next */
    int64_t num_rows;
    int64_t num_elements;
    int64_t chunk_elements; /* that a warp multiplies at a time */
    weft_dtype dtype;       /* BF16, FP16 or FP32 */
    float factor;
    const float *factor_at; /* NULL: factor */
};
