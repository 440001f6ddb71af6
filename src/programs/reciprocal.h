/* SPDX-License-Identifier: MIT */
/* Division by a number that is known before: GPUs have no instruction that divides, and a division
 * takes longer than a load from the cache. */
#pragma once

#include "machine/machine.h"

WP_FN uint32_t wp_reciprocal(uint32_t divisor)
{
    return ((1u << 31) + divisor - 1) / divisor;
}

/* Exact where number times divisor is at most 2^31, and for any number where the divisor is 1. */
WP_FN uint32_t wp_divide(uint32_t number, uint32_t reciprocal)
{
    return (uint32_t)((uint64_t)number * reciprocal >> 31);
}
