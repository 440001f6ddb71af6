/* SPDX-License-Identifier: MIT */
#pragma once

#include "programs/low_latency/low_latency.h"

struct wp_low_latency_combine_args {
    struct wp_low_latency ll;
    enum wp_ll_phase phases;
    enum wp_ll_use use;
    /* To send: rows of plan.dtype, [num_ranks][max_tokens] or [local experts][capacity]; NULL: they are
     * in the slots, and stay there. */
    const char *rows;
    uint64_t row_stride_bytes;
    const float *late_weights; /* [num_tokens][num_topk], where they come late; NULL: 1 */
    /* To receive: */
    const float *topk_weights; /* [num_tokens][num_topk], of answers by choice; NULL: 1 */
    char *out;                 /* [num_tokens] rows of plan.dtype */
    int32_t *missing_ranks;    /* [num_ranks], or NULL */
};
