/* SPDX-License-Identifier: MIT */
/* Quantised rows as weft.h defines them: by double arithmetic, whose products and quotients of
 * floats round to float as if they were exact, and the rounding of tools/workload. */
#pragma once

#include <stdint.h>

#include "weft.h"

struct quantised_form {
    weft_dtype wide, narrow;
    weft_scale_kind scale;
    int64_t group_elements;
    int64_t
        word_stride; /* from one word of a row's scales to the next: 4 if they lie side by side */
};

/* Where the scale of a group is, from that of the row's first on. */
int64_t quantised_scale_offset(const struct quantised_form *form, int64_t group);

/* Rows may lie anywhere. */
void quantised_make_row(const struct quantised_form *form, const void *src, int64_t num_elements,
                        char *codes, char *scales);
/* The number that element `i` of a row stands for. */
float quantised_number(const struct quantised_form *form, const char *codes, const char *scales,
                       int64_t i);
