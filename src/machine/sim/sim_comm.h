/* SPDX-License-Identifier: MIT */
/* Communicators and heaps of the sim: all ranks are here, so what they share is one object. */
#pragma once

#include "comm/heap/ranges.h"
#include "machine/sim/world.h"

/* The accesses that a rank has posted to the network. */
struct sim_posted {
    uint64_t num_posted;
    uint64_t num_done;                    /* all of lower numbers are done */
    struct sim_completion *first, **last; /* those that are not counted as done, in order */
    struct sim_clock done;                /* what whoever has waited for num_done acquires */
};

/* A rank's contribution to an all-gather. */
struct sim_contribution {
    unsigned char *blob; /* or why there is none */
    size_t bytes;
    struct weft__call_step step;
    weft_result result;
};

/* Shared by the ranks of one communicator. */
struct weft__link {
    struct weft__link *next;
    uint64_t key;
    int32_t num_ranks;
    int32_t num_joined;
    int has_joined[SIM_MAX_RANKS];
    weft_comm *comms[SIM_MAX_RANKS]; /* NULL before creation, and after destruction */
    struct weft__wait_list last_waits[SIM_MAX_RANKS]; /* of those destroyed */
    int32_t world_ranks[SIM_MAX_RANKS];
    int has_failed;               /* for a rank that has left since */
    int is_member[SIM_MAX_RANKS]; /* [world rank]: from creation to destruction; maps all heaps */
    int32_t num_parcels[SIM_MAX_RANKS]; /* puts of each rank that are under way */
    struct sim_posted posted[SIM_MAX_RANKS];
    /* [sender][target], from the sender's first put on: what its puts have done there. */
    struct sim_clock *landed[SIM_MAX_RANKS];
    struct sim_nics *nics; /* NULL: accesses go by the host's queue */
    /* The all-gather that is going on. */
    uint64_t gather_number;
    int32_t num_gathered;
    int has_gathered[SIM_MAX_RANKS];
    struct sim_contribution contributions[SIM_MAX_RANKS];
    struct sim_clock clocks[2]; /* of this all-gather's and the previous one's past */
};

struct weft__heap {
    int32_t rank;
    int32_t num_ranks;
    struct weft__ranges ranges;
    char *bases[SIM_MAX_RANKS];
    int32_t region;
};

extern struct weft__link *sim_links; /* of all communicators of the run */

/* heap.c. */
weft_result sim_heap_create(weft_comm *comm);
/* The run is over: all heaps' memory can be used again. */
void sim_heap_reset(void);
