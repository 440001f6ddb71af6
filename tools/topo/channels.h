/* SPDX-License-Identifier: MIT */
/* Channels: ways through all GPUs of a node that do not take bandwidth from each other. NCCL calls a set of them a
 * graph. */
#pragma once

#include "topo/graph.h"
#include "weft.h"

enum { WEFT__MAX_CHANNELS = 64 };

/* The numbers are those of files. A channel is a chain over all GPUs; between nodes it begins and ends at a port. */
enum weft__pattern {
    WEFT__PATTERN_BALANCED_TREE = 1, /* the first two GPUs share what goes to the port */
    WEFT__PATTERN_SPLIT_TREE = 2,    /* it comes to the first GPU, and goes from the second */
    WEFT__PATTERN_TREE = 3,          /* it comes to the first GPU, and goes from it */
    WEFT__PATTERN_RING = 4, /* it goes from the last; on one node from the last to the first */
    WEFT__PATTERN_NVLS = 5, /* the first GPU sums for all by NVSwitch: a head */
    WEFT__PATTERN_COLLNET_DIRECT = 6 /* only in files */
};

/* Which channels of a file they are. */
enum weft__channels_id {
    WEFT__CHANNELS_RING,
    WEFT__CHANNELS_TREE,
    WEFT__CHANNELS_COLLNET_CHAIN,
    WEFT__CHANNELS_NVLS,
    WEFT__CHANNELS_COLLNET_DIRECT,
    WEFT__NUM_CHANNELS_IDS
};

struct weft__channel {
    int32_t nets[2]; /* where it comes from the network and goes to it: indices; -1: none */
    int32_t *ranks;  /* [num_gpus] */
};

struct weft__channels {
    enum weft__channels_id id;
    enum weft__pattern pattern;
    int32_t cross_nic; /* 2: a ring may leave by another port than it came by */
    int32_t same_channels;
    int32_t num_channels, num_gpus;
    float bw_intra, bw_inter; /* GB/s of each channel in the node and to the network */
    float latency_inter;
    enum weft__topo_type type_intra, type_inter; /* the worst path that is used */
    int32_t num_hops;
    struct weft__channel channel[WEFT__MAX_CHANNELS];
};

/* Without channels. NULL may be freed. */
weft_result weft__channels_create(int32_t num_gpus, struct weft__channels **channels);
void weft__channels_free(struct weft__channels *channels);
/* All but room for ranks, which must be as much. */
void weft__channels_copy(struct weft__channels *to, const struct weft__channels *from);

/* 0: the search found nothing. Then there is one channel, in NCCL's simple order, with
 * WEFT__NO_GBPS in place of a bandwidth. It has ports even on one node. */
#define WEFT__NO_GBPS .1F
int weft__channels_were_found(const struct weft__channels *channels);

/* What a GPU sends by all of them together, in GB/s. */
double weft__channels_gbps(const struct weft__channels *channels);

const char *weft__pattern_name(enum weft__pattern pattern);
