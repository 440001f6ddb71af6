/* SPDX-License-Identifier: MIT */
/* Adds to a word of the heap for the network: as GPUs add to it, which the copy engine cannot. */
#include "machine/machine.h"

#include "machine/cuda/network_add.h"

WEFT_PROGRAM(network_add, warp, args)
{
    if (weft_lane_idx(warp) == 0)
        *args->before = weft_fetch_add(warp, WEFT_NO_RANK, args->word, args->add);
    return WEFT_STATUS_OK;
}
