/* SPDX-License-Identifier: MIT */
/* Finds channels: those that move most bytes per second together, as NCCL does, with the same
 * answers. */
#pragma once

#include "topo/channels.h"

/* The aim of a search. */
struct search_wish {
    enum channels_id id;
    enum pattern pattern;
    int32_t min_channels, max_channels;
    enum topo_reach {
        TOPO_ONE_NODE,
        TOPO_SEVERAL_NODES /* channels come from the network and go to it */
    } reach;
};

/* The topology has its paths; its links are afterwards as before. What cannot be has no channels
 * (NVLS), or one in the order of the file with next to no bandwidth. */
weft_result search_channels(struct topo *topo, const struct search_wish *wish,
                            struct channels **channels);

/* All that NCCL looks for when it starts: rings, then trees as many as rings, then NVLS. */
struct channel_sets {
    struct channels *of[NUM_CHANNELS_IDS]; /* NULL: none were looked for */
};
weft_result search_all(struct topo *topo, enum topo_reach reach, struct channel_sets *sets);
void channel_sets_free(struct channel_sets *sets);
