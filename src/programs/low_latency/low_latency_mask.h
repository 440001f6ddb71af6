/* SPDX-License-Identifier: MIT */
#pragma once

#include "programs/low_latency/low_latency.h"

struct wp_low_latency_mask_args {
    struct wp_low_latency ll;
    const int32_t *more; /* [num_ranks] nonzero: masked from now on; NULL: none */
    int32_t *mask;       /* [num_ranks] what is masked then, 0 or 1; NULL: nobody asks */
};
