/* SPDX-License-Identifier: MIT */
/* Host side of a multicast object (machine/multicast.h): memory of all ranks, at one offset of a
 * window of each. */
#pragma once

#include "machine/host.h"
#include "machine/multicast.h"

struct weft__multicast {
    struct wp_multicast device; /* as the programs have it, without a switch */
    char *memory;               /* own part, in the heap */
    struct weft__switched_memory
        switched; /* of the same size, if there is such hardware and all ranks ask for it */
};

/* Collective, after the first exchange (launch/exchange_host.h), for ranks that map each other's
 * memory: num_bytes of every rank, zeroed. */
weft_result weft__multicast_create(weft_comm *comm, uint64_t num_bytes,
                                   struct weft__multicast *object);
/* The object for moves that reduce so, or only copy (WEFT_DTYPE_NONE): by the switch if it has one
 * that can. It is the same choice on all ranks. */
struct wp_multicast weft__multicast_for(const struct weft__multicast *object,
                                        struct wp_reduction reduction);
/* Of an object that was made, or is zero. */
void weft__multicast_destroy(weft_comm *comm, struct weft__multicast *object);
