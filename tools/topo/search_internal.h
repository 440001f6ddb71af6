/* SPDX-License-Identifier: MIT */
/* The state that the parts of a search share. */
#pragma once

#include "topo/paths.h"
#include "topo/search.h"

/* Steps of a search, in place of time, so that the answer does not depend on the machine. */
enum {
    SEARCH_PERFECT = -1, /* what is left when nothing better can be found */
    SEARCH_STEPS = 1 << 14,
    SEARCH_STEPS_SAME_CHANNELS = 1 << 8,
    SEARCH_STEPS_IN_ORDER = 1 << 10,
    SEARCH_STEPS_IN_ALL = 1 << 19
};

/* Ports in the order in which they are tried. */
struct net_list {
    int32_t count;
    int32_t *indices;
};

struct search {
    struct topo *topo;
    enum topo_reach reach;
    int32_t num_gpus;
    int32_t min_channels, max_channels;
    struct channels *now;  /* what is being tried */
    struct channels *best; /* what was found */
    int32_t steps_left;
    uint64_t *used;               /* [gpu] a bit for each channel of `now` that has it */
    int32_t *next;                /* [channel][step][gpu] which GPUs are tried next */
    struct net_list net_list;     /* for the start of channels */
    struct net_list *net_list_of; /* [gpu] for the way back */
};

/* Fills the lists of ports for paths of at most type `type_inter`. */
void search_list_nets(struct search *search, enum topo_type type_inter);

/* One try: whether there are channels of search->now's bandwidth and types; the best so far are
 * search->best. */
void search_try(struct search *search);

/* The GPUs that may follow `gpu`, in the order in which they are tried. */
enum net_use {
    NET_UNUSED,
    NET_NEXT, /* the next GPU goes to the port */
    NET_LATER
};
int32_t search_order_gpus(struct search *search, const struct topo_node *gpu, enum net_use use,
                          int32_t *next);

/* Takes bandwidth, `times` that of a channel, along the path; 0, and nothing is taken, if there is
 * not enough. Or gives it back. */
int search_take(struct search *search, struct topo_node *from, struct topo_node *to, float times);
void search_give_back(struct search *search, struct topo_node *from, struct topo_node *to,
                      float times);

static inline struct topo_node *search_gpu(const struct search *search, int32_t index)
{
    return topo_at(search->topo, TOPO_GPU, index);
}
/* The channel that is being made. */
static inline struct channel *search_channel(const struct search *search)
{
    return &search->now->channel[search->now->num_channels];
}
