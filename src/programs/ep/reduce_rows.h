/* SPDX-License-Identifier: MIT */
#pragma once

#include "programs/ep/choices.h"

struct wp_reduce_rows_args {
    struct wp_choices choices;
    weft_dtype dtype, out_dtype;
    uint64_t row_bytes; /* of dtype */
    const char *rows;
    char *out;
    const float *row_weights; /* NULL: there are none */
    float *topk_weights;
};
