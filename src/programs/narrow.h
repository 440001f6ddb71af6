/* SPDX-License-Identifier: MIT */
#pragma once

#include "machine/machine.h"

struct wp_narrow_args {
    const char *src; /* rows side by side, as in dst */
    char *dst;
    weft_dtype src_dtype; /* bf16, fp16 or fp32 */
    weft_dtype dst_dtype; /* the same, or WEFT_LOG_10BIT */
    int64_t num_elements; /* of a row */
    int32_t max_rows;
    const int32_t
        *num_rows; /* those that there are when the launch runs, of which max_rows count */
};
