/* SPDX-License-Identifier: MIT */
#pragma once

#include "machine/machine.h"

struct wp_add_copies_args {
    char *row;          /* the first of the sum, which it becomes */
    const char *copies; /* [num_copies][num_elements] */
    int32_t num_copies; /* below WP_WARP_POINTERS */
    weft_dtype dtype;
    int64_t num_elements;
    int64_t chunk_elements; /* that a warp adds at a time */
};
