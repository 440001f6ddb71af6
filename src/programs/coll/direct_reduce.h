/* SPDX-License-Identifier: MIT */
#pragma once

#include "programs/coll/direct.h"

struct wp_direct_reduce_args {
    struct wp_direct direct;
    struct wp_reduction reduction;
    uint64_t part_offset; /* of what this rank reduces, in every input */
    uint64_t part_bytes;
    char *out;    /* where the part goes; NULL: to its offset in the output of */
    int32_t root; /* this rank; WP_NO_RANK: of all ranks */
};
