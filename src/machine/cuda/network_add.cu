/* SPDX-License-Identifier: MIT */
/* Adds to a word of the heap for the network: as GPUs add to it, which the copy engine cannot. */
#include "machine/machine.h"

#include "machine/cuda/network_add.h"

WP_PROGRAM(network_add, warp, args)
{
    if (wp_lane_idx(warp) == 0)
        *args->before = wp_fetch_add(warp, WP_NO_RANK, args->word, args->add);
    return WP_STATUS_OK;
}
