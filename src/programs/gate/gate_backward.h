/* SPDX-License-Identifier: MIT */
#pragma once

#include "programs/gate/scores.h"

struct wp_gate_backward_args {
    struct wp_gate_logits logits;
    const void *topk_idx;
    weft_dtype index_type;
    const float *grad_weights;
    float *grad_logits;
    int32_t num_tokens, num_topk;
    weft_gate_weights weights;
    float scale;
};
