/* SPDX-License-Identifier: MIT */
#pragma once

#include "machine/machine.h"

struct wp_gate_balance_args {
    float *bias;
    int32_t *num_tokens_per_expert;
    int32_t num_experts;
    float step;
};
