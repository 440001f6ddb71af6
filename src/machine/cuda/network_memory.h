/* SPDX-License-Identifier: MIT */
/* An address range of the host, whose begin is pinned as far as it is needed: so the network has one
 * region, and the GPU has it at the same addresses. */
#pragma once

#include "machine/cuda/device.h"

#define WEFT__CUDA_NETWORK_BYTES (UINT64_C(1) << 36) /* of addresses: more than anybody pins */

struct weft__cuda_network_memory {
    char *base;
    uint64_t *ends; /* [num_pieces], of what was pinned at a time */
    int32_t num_pieces, max_pieces;
};

weft_result weft__cuda_network_memory_open(const struct weft__cuda *cuda,
                                           struct weft__cuda_network_memory **memory);
/* Up to `end`, a multiple of pages; what is pinned remains so. */
weft_result weft__cuda_network_memory_pin(const struct weft__cuda *cuda,
                                          struct weft__cuda_network_memory *memory, uint64_t end);
void weft__cuda_network_memory_close(const struct weft__cuda *cuda,
                                     struct weft__cuda_network_memory *memory);
