/* SPDX-License-Identifier: MIT */
/* The state that the parts of a search share. */
#pragma once

#include "topo/paths.h"
#include "topo/search.h"

/* Steps of a search, in place of time, so that the answer does not depend on the machine. */
enum {
    WEFT__SEARCH_PERFECT = -1, /* what is left when nothing better can be found */
    WEFT__SEARCH_STEPS = 1 << 14,
    WEFT__SEARCH_STEPS_SAME_CHANNELS = 1 << 8,
    WEFT__SEARCH_STEPS_IN_ORDER = 1 << 10,
    WEFT__SEARCH_STEPS_IN_ALL = 1 << 19
};

/* Ports in the order in which they are tried. */
struct weft__net_list {
    int32_t count;
    int32_t *indices;
};

struct weft__search {
    struct weft__topo *topo;
    enum weft__topo_reach reach;
    int32_t num_gpus;
    int32_t min_channels, max_channels;
    struct weft__channels *now;  /* what is being tried */
    struct weft__channels *best; /* what was found */
    int32_t steps_left;
    uint64_t *used;                     /* [gpu] a bit for each channel of `now` that has it */
    int32_t *next;                      /* [channel][step][gpu] which GPUs are tried next */
    struct weft__net_list net_list;     /* for the start of channels */
    struct weft__net_list *net_list_of; /* [gpu] for the way back */
};

/* Fills the lists of ports for paths of at most type `type_inter`. */
void weft__search_list_nets(struct weft__search *search, enum weft__topo_type type_inter);

/* One try: whether there are channels of search->now's bandwidth and types; the best so far are search->best. */
void weft__search_try(struct weft__search *search);

/* The GPUs that may follow `gpu`, in the order in which they are tried. */
enum weft__net_use {
    WEFT__NET_UNUSED,
    WEFT__NET_NEXT, /* the next GPU goes to the port */
    WEFT__NET_LATER
};
int32_t weft__search_order_gpus(struct weft__search *search, const struct weft__topo_node *gpu,
                                enum weft__net_use use, int32_t *next);

/* Takes bandwidth, `times` that of a channel, along the path; 0, and nothing is taken, if there is not enough. Or gives it
 * back. */
int weft__search_take(struct weft__search *search, struct weft__topo_node *from,
                      struct weft__topo_node *to, float times);
void weft__search_give_back(struct weft__search *search, struct weft__topo_node *from,
                            struct weft__topo_node *to, float times);

static inline struct weft__topo_node *weft__search_gpu(const struct weft__search *search,
                                                       int32_t index)
{
    return weft__topo_at(search->topo, WEFT__TOPO_GPU, index);
}
/* The channel that is being made. */
static inline struct weft__channel *weft__search_channel(const struct weft__search *search)
{
    return &search->now->channel[search->now->num_channels];
}
