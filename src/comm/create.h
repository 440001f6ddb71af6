/* SPDX-License-Identifier: MIT */
/* How a communicator is made. Shared by the files that make one alone: create.c and derive.c. */
#pragma once

#include "comm/comm.h"

/* All that it takes, however the ranks came by it. */
struct weft__origin {
    struct weft__meeting_point point;
    uint64_t key;
    int32_t rank, num_ranks;
    int32_t num_nodes; /* virtual ones; 0: by node_key */
    weft_comm_config config;
    weft_comm
        *parent; /* whose nodes, streams and job it has: of a split or shrunk one; NULL: none */
    /* Tells those who wait that this rank will not come. NULL: they hear at the deadline. So do
     * those of a shrunk communicator, whose key is used again by the next attempt. */
    weft_comm *messenger;
    struct weft__watch watch; /* ends the meeting */
    const struct weft__comm_hooks *hooks;
};

/* Reads the environment too. */
weft_result weft__origin_read_config(struct weft__origin *origin, const weft_comm_config *config);
/* Reads num_nodes, which num_ranks limits. So num_ranks must be known. */
weft_result weft__origin_read_nodes(struct weft__origin *origin);

/* Collective over the ranks of the new communicator. */
weft_result weft__origin_create(const struct weft__origin *origin, weft_comm **created);
/* In place of weft__origin_create: this rank has failed with the thread's last error. */
void weft__origin_withdraw(const struct weft__origin *origin, weft_result result);
