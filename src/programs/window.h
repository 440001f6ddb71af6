/* SPDX-License-Identifier: MIT */
/*
 * Places in a rank's memory, as it tells them to others: one of its windows (ops/windows.h) and an offset
 * in it. An offset in the heap, which is window 0, is a place.
 */
#ifndef WEFT_PROGRAMS_WINDOW_H
#define WEFT_PROGRAMS_WINDOW_H

#include "net/access.h" /* WP_PLACE_OFFSET_BITS */
#include "programs/exchange.h"

WP_FN uint64_t wp_place(int32_t window, uint64_t offset)
{
    return (uint64_t)window << WP_PLACE_OFFSET_BITS | offset;
}

/* Where a place of `rank` is here. */
WP_FN char *wp_place_address(const struct wp_exchange *exchange, int32_t rank, uint64_t place)
{
    const uint64_t window = place >> WP_PLACE_OFFSET_BITS;
    const uint64_t offset = place & ((UINT64_C(1) << WP_PLACE_OFFSET_BITS) - 1);
    return exchange->bases[window * (uint64_t)exchange->num_ranks + (uint64_t)rank] + offset;
}

#endif
