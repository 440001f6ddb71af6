/* SPDX-License-Identifier: MIT */
#pragma once

#include "machine/machine.h"

enum { WP_MAX_COPIED_ROWS = 32 };

struct wp_copied_row {
    const char *src;
    char *dst;
    uint64_t bytes;
    /* Not NULL: only as many first rows of row_bytes each as this says when the launch runs. */
    const int32_t *num_rows;
    uint64_t row_bytes;
};

struct wp_copy_args {
    int32_t num_rows;
    uint64_t chunk_bytes; /* that a warp copies at a time */
    struct wp_copied_row rows[WP_MAX_COPIED_ROWS];
};
