/* SPDX-License-Identifier: MIT */
/* Sends and receives, in groups: what a weft_coll has for them, and how a group is launched. */
#ifndef WEFT_COLL_GROUPS_H
#define WEFT_COLL_GROUPS_H

#include "ops/exchange.h"
#include "programs/send_receive.h"

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
    int32_t num_transfers;
    struct weft__coll_transfer transfers[WEFT_COLL_MAX_GROUP];
};

struct weft__coll_groups {
    /* Its operations are groups, of which each rank counts its own; nobody meets by it. */
    struct weft__exchange *exchange;
    struct wp_fifos fifos;
    int32_t num_channels;
    void *counters; /* of the fifos */
    struct weft__coll_group group;
};

/* Channels and slots as configured, or as suits. */
void weft__coll_groups_plan(const weft_comm *comm, const weft_coll_config *config,
                            struct weft__coll_groups *groups);
/* Collective, once the ranks have agreed on the plan. After an error, too, it is destroyed with coll. */
weft_result weft__coll_groups_create(weft_coll *coll);
void weft__coll_groups_destroy(weft_coll *coll);

/* Launches what the group has. */
weft_result weft__coll_groups_launch(weft_coll *coll);

#endif
