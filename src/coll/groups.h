/* SPDX-License-Identifier: MIT */
/* Sends and receives, in groups, and what consists of them: what a weft_coll has for them, and how
 * they are launched. */
#pragma once

#include "launch/exchange_host.h"
#include "programs/coll/send_receive.h"

/* A send or a receive, checked by the api. */
struct weft__coll_transfer {
    enum wp_direction direction; /* SEND or RECEIVE */
    int32_t peer;
    char *memory;
    uint64_t bytes;
    weft_dtype dtype;
};

struct weft__coll_group {
    int32_t num_begun;  /* that have not ended */
    weft_result result; /* of the first call in it that was refused, with the message */
    char message[WEFT__ERROR_BYTES];
    weft_stream *stream; /* of the first call */
    struct weft__coll_transfer *transfers;
    int32_t num_transfers, max_transfers; /* for which there is memory */
};

/* Memory of the machine for the lists of a launch, beyond what fits its arguments. */
struct weft__coll_table {
    struct weft__coll_table *next;
    void *memory;
    uint64_t bytes;
    _Atomic int is_used; /* by a launch that has not ended, or by a graph */
};

struct weft__coll_groups {
    /* Its operations are groups, of which each rank counts its own; nobody meets by it. */
    struct weft__exchange *exchange;
    struct wp_grants grants;
    uint64_t num_slots; /* of the staging block, in each direction */
    void *network_words;
    void *counters;
    struct weft__coll_table *tables;
    struct weft__coll_group group;
};

/* groups.c. */
/* Channels and slots as configured, or as suits, in the staging block, which is made larger if it
 * has too few. */
void weft__coll_groups_plan(weft_coll *coll, const weft_coll_config *config);
/* Collective, once there is a staging block. After an error, too, it is destroyed with coll. */
weft_result weft__coll_groups_create(weft_coll *coll);
void weft__coll_groups_destroy(weft_coll *coll);

/* transfers.c. */
/* Launches what the group has. */
weft_result weft__coll_groups_launch(weft_coll *coll);
void weft__coll_tables_destroy(weft_coll *coll);
