/* SPDX-License-Identifier: MIT */
#pragma once

#include "programs/ep/routing.h"
#include "programs/exchange.h"

struct wp_combine_args {
    struct wp_exchange exchange;
    struct wp_message message; /* where this rank's rows are */
    struct wp_routing routing;
    weft_dtype dtype;
    const char *biases[2]; /* [num_biases], in the order in which they are added */
    int32_t num_biases;
    char *out;
    float *out_topk_weights;
};
