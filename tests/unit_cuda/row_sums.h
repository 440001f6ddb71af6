/* SPDX-License-Identifier: MIT */
/* The arguments of programs that call one row operation each. Read by C and by CUDA C++. */
#pragma once

#include "machine/machine.h"

enum { ROW_SUMS_MAX_SRCS = 10, ROW_SUMS_MAX_DSTS = 3 };

struct wp_row_sums_args {
    void *dst;
    const void *srcs[ROW_SUMS_MAX_SRCS];
    int32_t num_srcs;
    struct wp_mixed_sum sum;
    int64_t num_elements;
};

enum weights_place { WEIGHTS_NONE, WEIGHTS_GLOBAL, WEIGHTS_SHARED };

struct wp_row_weighted_args {
    void *dst;
    const void *srcs[ROW_SUMS_MAX_SRCS];
    int32_t num_srcs;
    enum weights_place weights_place; /* where the program finds */
    const float *weights;             /* these */
    struct wp_weighted_sum sum;
    int64_t num_elements;
};

/* Of quantising; and of the way back, where dsts[0] is the source. */
struct wp_row_quantising_args {
    const void *dsts[ROW_SUMS_MAX_DSTS];
    int64_t scales_offset;
    int32_t num_dsts;
    const void *src;
    struct wp_quantisation how;
    int64_t num_elements;
};

/* Also of copies, which have one source and count bytes. */
struct wp_row_reduction_args {
    const void *dsts[ROW_SUMS_MAX_DSTS];
    const void *srcs[ROW_SUMS_MAX_SRCS];
    int32_t num_dsts, num_srcs;
    struct wp_reduction reduction;
    int64_t num_elements;
};
