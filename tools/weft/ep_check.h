/* SPDX-License-Identifier: MIT */
/* One more pass through the layer, with experts, whose every result is compared with what follows
 * from the routing and the global token index, to the bit, and on other machines than cpu, where all rows
 * are to be checked, also with what that machine gives. */
#pragma once

#include "ep_layer.h"

struct ep_tally {
    int64_t checked_rows; /* rows compared; of layout and notify: tokens and counts */
    int64_t errors;       /* those that differed */
};

/* Collective. Adds to tallies what all ranks together have compared; those of the layer are those of all operations. The first
 * difference of each operation on each rank is told on standard error. The routing of all tokens
 * must be loaded. Overwrites the layer's buffers. */
weft_result ep_check(struct ep_layer *layer, struct ep_tally tallies[EP_NUM_OPS]);
