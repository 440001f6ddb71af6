/* SPDX-License-Identifier: MIT */
#pragma once

#include "machine/machine.h"

enum wp_quantise_direction { WP_QUANTISE, WP_DEQUANTISE };

struct wp_quantise_args {
    enum wp_quantise_direction direction;
    int32_t num_parts;     /* of each row */
    int64_t part_elements; /* but the last part has the rest: whole words of scales */
    int64_t num_rows;
    int64_t num_elements; /* of a row */
    struct wp_quantisation how;
    const char *src;
    char *dst;
    char *scales;
    uint64_t src_stride_bytes, dst_stride_bytes, scales_stride_bytes; /* between rows */
};
