/* SPDX-License-Identifier: MIT */
/* The choices of a round's tokens, for the oracle of expert parallelism. */
#pragma once

#include "shape.h"
#include "workload/ep_oracle.h"

struct shape_oracle {
    const struct shape *shape;
    int32_t round;
    int64_t first_tokens[SCENARIO_MAX_RANKS + 1];
    int32_t num_local_experts[SCENARIO_MAX_RANKS];
    struct ep_problem problem;
};

void shape_oracle_open(struct shape_oracle *oracle, const struct shape *shape, int32_t round);
