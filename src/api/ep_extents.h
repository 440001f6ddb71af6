/* SPDX-License-Identifier: MIT */
/* Whether the memory that an operation of expert parallelism writes is nothing else's. */
#pragma once

#include "ep/ep.h"

/* Rows of the weights that weft_ep_move_experts takes. */
struct weft__move_rows {
    uint64_t src, dst;
};

/* Each when everything else about the call has been checked. */
weft_result weft__check_layout_memory(const weft_ep_handle *handle,
                                      const weft_ep_layout_args *args);
weft_result weft__check_dispatch_memory(const weft_ep_handle *handle,
                                        const weft_ep_dispatch_args *args);
weft_result weft__check_combine_memory(const weft_ep_handle *handle,
                                       const weft_ep_combine_args *args);
weft_result weft__check_expand_memory(const weft_ep_handle *handle,
                                      const weft_ep_expand_args *args);
weft_result weft__check_reduce_memory(const weft_ep_handle *handle,
                                      const weft_ep_reduce_args *args);
weft_result weft__check_move_memory(const weft_plane *planes, int32_t num_planes,
                                    struct weft__move_rows rows);
