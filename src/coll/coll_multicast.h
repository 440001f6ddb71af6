/* SPDX-License-Identifier: MIT */
/* Host side of the program multicast: what a weft_coll has for it, if something may ask for it. */
#pragma once

#include "coll/coll.h"
#include "memory/multicast_memory.h"
#include "programs/coll/multicast.h"

struct weft__coll_multicast {
    struct weft__multicast object;
    struct wp_multicast_queues queues;
    uint64_t *num_chunks_before; /* in memory of the machine */
};

/* What the config, the same on all ranks, says of queues: as many channels as the program may have
 * blocks. */
void weft__coll_multicast_plan(weft_coll *coll, const weft_coll_config *config);
/* Collective; fills coll->multicast if the algorithm is pinned, or a row of the table has it. */
weft_result weft__coll_multicast_create(weft_coll *coll);
void weft__coll_multicast_destroy(weft_coll *coll);
weft_result weft__coll_multicast_run(const struct weft__coll_call *call);
