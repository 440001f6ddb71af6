/* SPDX-License-Identifier: MIT */
/* Arguments of the kernel in probe.cu. */
#pragma once

#include <stdint.h>

struct wp_probe_args {
    int32_t rank;
    int32_t num_ranks;
    char *const *heap_bases; /* [num_ranks] NULL: cannot be reached */
    uint64_t slots_offset;   /* in every heap: a uint64_t per rank */
    uint64_t secret;
    uint64_t *clock_ns; /* what the device's clock says then */
};
