/* SPDX-License-Identifier: MIT */
/* Launches as ranges of NVTX, which profilers show. */
#pragma once

#include "machine/host.h"

/* Around what issues a launch, on its thread. Without a tool (NVTX_INJECTION64_PATH, as nsys sets
 * it) they do nothing. */
void weft__cuda_range_begin(const struct weft__launch *launch);
void weft__cuda_range_end(void);
