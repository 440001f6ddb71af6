/* SPDX-License-Identifier: MIT */
/* The content of token rows: a pure function of (seed, global token index, plane), so that any rank
 * can recompute any row. */
#pragma once

#include "workload/elements.h"
#include "workload/rng.h"

struct payload {
    uint64_t seed;
    weft_dtype dtype; /* BF16, FP16 or FP32: in -2..2, all finite; UINT8: any bytes */
};

/* row_bytes must be a multiple of the element size; `row` needs no alignment. */
static inline void payload_fill_row(const struct payload *payload, int64_t token, int32_t plane,
                                    void *row, size_t row_bytes)
{
    const struct element_source source = {
        .seed = rng_key(payload->seed, (uint64_t)plane),
        .dtype = payload->dtype,
        .content = payload->dtype == WEFT_UINT8 ? ELEMENTS_BITS : ELEMENTS_NUMBERS};
    elements_fill(&source, token, 0, row_bytes / dtype_bytes(payload->dtype), row);
}
