/* SPDX-License-Identifier: MIT */
/* Shared by balance.c, expert_moves.c and expert_copies.c: what they work with. */
#pragma once

#include "ep/balance.h"

/* Items in packs of as many each. */
struct packing {
    int32_t pack_items, num_packs;
    const float *loads;   /* of the items */
    const int32_t *kinds; /* of the items: two of a kind are kept apart; NULL: they need not be */
    int32_t *slots;       /* the items, pack by pack */
    float *pack_loads;    /* [num_packs] */
};

struct weft__balance_work {
    struct weft__balance balance;
    double *rank_loads; /* [num_ranks], and the memory of all that follows */
    /* The layer's. */
    int32_t *group_slots;
    float *group_loads, *node_loads;
    int32_t *candidate; /* [num_replicas] another placement */
    int32_t *num_sent;  /* [num_replicas] moves out of each replica */
    int32_t *common;    /* [num_ranks][num_ranks] */
    /* A node's experts, and replicas, whose kinds are places in node_experts. */
    int32_t *node_experts, *num_copies;
    float *expert_loads;
    int32_t *kinds, *slots;
    float *item_loads, *pack_loads;
    /* For one step. */
    int32_t *order, *scratch, *num_there;
};
