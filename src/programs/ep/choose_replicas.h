/* SPDX-License-Identifier: MIT */
#pragma once

#include "programs/placement.h"

struct wp_choose_replicas_args {
    const void *topk_idx; /* [num_tokens][num_topk] */
    void *replica_idx;    /* the same, perhaps the same memory */
    const int32_t *granules;
    weft_dtype index_type; /* of both */
    int32_t rank;          /* this one */
    int32_t num_tokens, num_topk, num_experts;
};
