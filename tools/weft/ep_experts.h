/* SPDX-License-Identifier: MIT */
/* The work of the experts: each multiplies a row by a factor of its own, and what a rank answers is the
 * sum over its experts, weighted by the gate. */
#ifndef WEFT_TOOL_EP_EXPERTS_H
#define WEFT_TOOL_EP_EXPERTS_H

#include <stddef.h>

#include "workload/payload.h"

/* Exact in fp32, and different for experts that are close to each other. */
static inline float ep_expert_factor(int32_t expert)
{
    return 1 + (float)(expert % 16) / 16;
}

/* y = x * scale, rounded as the rows of `kind` are; these go to `row`. x and y may be the same. */
void ep_scale_row(weft_dtype kind, size_t hidden, float scale, const float *x, float *y, void *row);

#endif
