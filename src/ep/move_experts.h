/* SPDX-License-Identifier: MIT */
/* Weights of experts on their way to other ranks. */
#pragma once

#include "ep/ep.h"

/* An array of weights, a row for each local expert: its places in the heaps of all ranks. */
struct weft__expert_weights {
    uint64_t from, to, row_bytes;
};

/* Enqueues the accesses that bring this rank's experts of `to` from the ranks that have them in
 * `from`. */
weft_result weft__ep_fetch_experts(const weft_ep *from, const weft_ep *to,
                                   const struct weft__expert_weights *weights, int32_t num_arrays,
                                   weft_stream *stream);
