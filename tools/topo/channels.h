/* SPDX-License-Identifier: MIT */
/* Channels: ways through all GPUs of a node that do not take bandwidth from each other. NCCL calls
 * a set of them a graph. */
#pragma once

#include "topo/graph.h"
#include "weft.h"

enum { TOPO_MAX_CHANNELS = 64 };

/* The numbers are those of files. A channel is a chain over all GPUs; between nodes it begins and
 * ends at a port. */
enum pattern {
    PATTERN_BALANCED_TREE = 1, /* the first two GPUs share what goes to the port */
    PATTERN_TREE = 3,          /* it comes to the first GPU, and goes from it */
    PATTERN_RING = 4,          /* it goes from the last; on one node from the last to the first */
    PATTERN_NVLS = 5,          /* the first GPU sums for all by NVSwitch: a head */
    PATTERN_COLLNET_DIRECT = 6 /* only in files */
};

/* Which channels of a file they are. */
enum channels_id {
    CHANNELS_RING,
    CHANNELS_TREE,
    CHANNELS_COLLNET_CHAIN,
    CHANNELS_NVLS,
    CHANNELS_COLLNET_DIRECT,
    NUM_CHANNELS_IDS
};

struct channel {
    int32_t nets[2]; /* where it comes from the network and goes to it: indices; -1: none */
    int32_t *ranks;  /* [num_gpus] */
};

struct channels {
    enum channels_id id;
    enum pattern pattern;
    int32_t cross_nic; /* 2: a ring may leave by another port than it came by */
    int32_t same_channels;
    int32_t num_channels, num_gpus;
    float bw_intra, bw_inter; /* GB/s of each channel in the node and to the network */
    float latency_inter;
    enum topo_type type_intra, type_inter; /* the worst path that is used */
    int32_t num_hops;
    struct channel channel[TOPO_MAX_CHANNELS];
};

/* Without channels. NULL may be freed. */
weft_result channels_create(int32_t num_gpus, struct channels **channels);
void channels_free(struct channels *channels);
/* All but room for ranks, which must be as much. */
void channels_copy(struct channels *to, const struct channels *from);

/* 0: the search found nothing. Then there is one channel, in NCCL's simple order, with
 * NO_GBPS in place of a bandwidth. It has ports even on one node. */
#define NO_GBPS .1F
int channels_were_found(const struct channels *channels);

const char *pattern_name(enum pattern pattern);
