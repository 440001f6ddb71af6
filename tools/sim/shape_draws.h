/* SPDX-License-Identifier: MIT */
/* Shared by the files that draw shapes. */
#pragma once

#include "shape.h"
#include "workload/rng.h"

enum { MAX_RANKS_DRAWN = 4, MAX_RANKS_OF_SMALL = 8 };

/* Draws by numbers of their own have keys from here on, so that all else stays as it was when
 * such a draw is added. They are as many as there were operations then: tests name seeds. */
enum { OWN_KEYS = 15 };

static inline int32_t draw(struct rng *rng, int32_t min, int32_t max)
{
    return min + (int32_t)rng_below(rng, (uint32_t)(max - min + 1));
}

static inline int32_t draw_divisor(struct rng *rng, int32_t number)
{
    int32_t divisor;
    do
        divisor = draw(rng, 1, number);
    while (number % divisor != 0);
    return divisor;
}

/* Terms, scripts and masks of low latency, once all else has been drawn. */
void shape_draw_ll(struct shape *shape, struct rng *rng, enum weft__sim_fault fault);
/* The rows that move_experts and copies carry. */
void weights_draw_terms(struct shape *shape, struct rng *rng);
