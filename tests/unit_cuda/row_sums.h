/* SPDX-License-Identifier: MIT */
/* The arguments of a program that calls weft_row_sum_mixed. Read by C and by CUDA C++. */
#ifndef TESTS_UNIT_CUDA_ROW_SUMS_H
#define TESTS_UNIT_CUDA_ROW_SUMS_H

#include "machine/machine.h"

enum { ROW_SUMS_MAX_SRCS = 10 };

struct weft_row_sums_args {
    void *dst;
    const void *srcs[ROW_SUMS_MAX_SRCS];
    int32_t num_srcs;
    struct weft_mixed_sum sum;
    int64_t num_elements;
};

#endif
