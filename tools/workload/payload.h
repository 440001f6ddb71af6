/* SPDX-License-Identifier: MIT */
/* The content of token rows: a pure function of (seed, global token index, plane), so that any rank
 * can recompute any row. */
#ifndef WEFT_WORKLOAD_PAYLOAD_H
#define WEFT_WORKLOAD_PAYLOAD_H

#include <stddef.h>
#include <stdint.h>

#include "weft.h"

enum payload_kind {
    PAYLOAD_BF16 = WEFT_BF16, /* values in -2..2, all finite */
    PAYLOAD_FP16 = WEFT_FP16,
    PAYLOAD_FP32 = WEFT_FP32,
    PAYLOAD_BYTES /* any byte */
};

struct payload {
    uint64_t seed;
    enum payload_kind kind;
};

/* 1 for PAYLOAD_BYTES. */
size_t payload_element_bytes(enum payload_kind kind);

/* row_bytes must be a multiple of the element size; `row` needs no alignment. */
void payload_fill_row(const struct payload *payload, int64_t token, int32_t plane, void *row,
                      size_t row_bytes);

/* Elements of any of the three number formats as fp32, and back: one rounding each. Rows are aligned
 * to their elements. */
void payload_to_fp32(enum payload_kind kind, const void *row, size_t num_elements, float *values);
void payload_from_fp32(enum payload_kind kind, const float *values, size_t num_elements, void *row);

#endif
