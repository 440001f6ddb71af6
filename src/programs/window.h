/* SPDX-License-Identifier: MIT */
/*
 * Places in a rank's memory, as it tells them to others: one of its windows (memory/windows.h) and an
 * offset in it. An offset in the heap, which is window 0, is a place.
 */
#pragma once

#include "machine/machine.h"
#include "net/access.h" /* WP_PLACE_OFFSET_BITS */

WP_FN uint64_t wp_place(int32_t window, uint64_t offset)
{
    return (uint64_t)window << WP_PLACE_OFFSET_BITS | offset;
}

WP_FN int wp_place_is_in_heap(uint64_t place)
{
    return place >> WP_PLACE_OFFSET_BITS == 0;
}

/* Where a place of `rank` is here; bases: [windows][num_ranks]. */
WP_FN char *wp_place_address(char *const *bases, int32_t num_ranks, int32_t rank, uint64_t place)
{
    const uint64_t window = place >> WP_PLACE_OFFSET_BITS;
    const uint64_t offset = place & ((UINT64_C(1) << WP_PLACE_OFFSET_BITS) - 1);
    return bases[window * (uint64_t)num_ranks + (uint64_t)rank] + offset;
}
