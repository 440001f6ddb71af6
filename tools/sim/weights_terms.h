/* SPDX-License-Identifier: MIT */
/* The weights of experts that move or are copied, as a scenario draws them. */
#pragma once

#include <stdint.h>

#include "scenario.h"

enum { WEIGHTS_MAX_PLANES = 2, WEIGHTS_MAX_REPLICAS_PER_RANK = 3 };
enum { WEIGHTS_MAX_REPLICAS = WEIGHTS_MAX_REPLICAS_PER_RANK * SCENARIO_MAX_RANKS };

struct weights_terms {
    uint64_t key; /* of the placements */
    uint64_t row_bytes[WEIGHTS_MAX_PLANES];
    /* For copies alone. */
    int32_t replicas_per_rank;
    weft_dtype dtype; /* of gradients */
    uint64_t staging_bytes;
    weft_dtype index_type; /* of choices */
};
