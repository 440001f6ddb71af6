/* SPDX-License-Identifier: MIT */
/* An address range of the host. Its beginning is pinned, as far as it is needed: so the network has
 * one region, and the GPU has this region at the same addresses. */
#pragma once

#include "machine/cuda/device.h"

#define WEFT__CUDA_NETWORK_BYTES (UINT64_C(1) << 36) /* of addresses: more than a process pins */

struct weft__cuda_network_memory {
    char *base;
    uint64_t *ends; /* [num_pieces] of the parts, each pinned at one time */
    int32_t num_pieces, max_pieces;
};

weft_result weft__cuda_network_memory_open(const struct weft__cuda *cuda,
                                           struct weft__cuda_network_memory **memory);
/* Pins up to `end`, a multiple of pages. Pinned memory stays pinned. */
weft_result weft__cuda_network_memory_pin(const struct weft__cuda *cuda,
                                          struct weft__cuda_network_memory *memory, uint64_t end);
void weft__cuda_network_memory_close(const struct weft__cuda *cuda,
                                     struct weft__cuda_network_memory *memory);
