/* SPDX-License-Identifier: MIT */
#pragma once

#include "programs/gate/scores.h"

struct wp_gate_args {
    struct wp_gate_logits logits;
    const float *bias; /* NULL: none */
    const uint8_t *token_mask;
    void *topk_idx;
    weft_dtype index_type;
    float *topk_weights;
    int32_t *num_tokens_per_expert; /* NULL: nobody asks */
    int32_t num_tokens, num_topk;
    int32_t num_groups, num_kept_groups;
    int32_t group_experts;
    uint32_t group_reciprocal; /* wp_reciprocal(group_experts) */
    weft_gate_group_score group_score;
    weft_gate_weights weights;
    float scale;
};
