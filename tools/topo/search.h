/* SPDX-License-Identifier: MIT */
/* Finds channels: those that move most bytes per second together, as NCCL does, with the same answers. */
#pragma once

#include "topo/channels.h"

/* What is looked for. */
struct weft__search_wish {
    enum weft__channels_id id;
    enum weft__pattern pattern;
    int32_t min_channels, max_channels;
    enum weft__topo_reach {
        WEFT__TOPO_ONE_NODE,
        WEFT__TOPO_SEVERAL_NODES /* ranks are on others, too: channels come from the network and go to it */
    } reach;
};

/* The topology has its paths; its links are afterwards as before. What cannot be has no channels (NVLS), or one in the
 * order of the file with next to no bandwidth. */
weft_result weft__search(struct weft__topo *topo, const struct weft__search_wish *wish,
                         struct weft__channels **channels);

/* All that NCCL looks for when it starts: rings, then trees as many as rings, then NVLS. */
struct weft__channel_sets {
    struct weft__channels *of[WEFT__NUM_CHANNELS_IDS]; /* NULL: none were looked for */
};
weft_result weft__search_all(struct weft__topo *topo, enum weft__topo_reach reach,
                             struct weft__channel_sets *sets);
void weft__channel_sets_free(struct weft__channel_sets *sets);
