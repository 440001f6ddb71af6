/* SPDX-License-Identifier: MIT */
#pragma once

#include "programs/low_latency/low_latency.h"

struct wp_low_latency_unmask_args {
    struct wp_low_latency ll;
    const int32_t *mask; /* [num_ranks] nonzero: stays masked, or becomes so */
    uint64_t epoch;      /* greater than any before, the same on all ranks that take part */
};
