/* SPDX-License-Identifier: MIT */
/* Heads: the GPUs that sum for all through NVSwitch, as the search for NVLS channels finds them. */
#pragma once

#include <stdint.h>

#include "weft.h"

/* The ranks of the heads on the machine that a file describes, the first channel's first; heads has room for
 * num_ranks. None if its GPUs are not those of ranks 0 to num_ranks - 1, or it has no NVSwitch that sums. */
weft_result weft__topo_find_heads(const char *path, int32_t num_ranks, int32_t *heads,
                                  int32_t *num_heads);
