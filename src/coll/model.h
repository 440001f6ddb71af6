/* SPDX-License-Identifier: MIT */
/* How long a collective is expected to take over several nodes: a start, the messages that follow
 * each other, and the bytes that the busiest node sends and its ranks touch. */
#pragma once

#include "weft.h"

struct weft__coll_work {
    weft_collective collective;
    weft_algorithm algorithm;
    uint64_t row_bytes; /* as weft_coll_algorithm has them */
    int32_t num_ranks;
};

struct weft__coll_expectation {
    double latency_us;   /* whatever the bytes */
    double transfer_us;  /* of the bytes */
    uint64_t link_bytes; /* that the busiest node sends */
};

struct weft__coll_wire {
    double
        latency_us; /* of a message, one way, but for what its ends do; 0: not known, and assumed */
    double port_gbps;      /* of a node; 0: not known, its cores count */
    double ranks_per_core; /* where they are most; 0: each has its own */
};

struct weft__coll_between {
    struct weft__coll_wire wire;
    int32_t num_nodes;
    int32_t most_local;        /* ranks of a node */
    int32_t num_rails;         /* that the operation has */
    int32_t num_channels;      /* rings of a rail to another node */
    int32_t window;            /* chunks of a ring that may be under way */
    uint64_t chunk_bytes;      /* at most, */
    uint64_t tree_chunk_bytes; /* and along a tree */
};

/* By RAILS or TREE; 0: it is neither. */
int weft__coll_expect_between(const struct weft__coll_between *between,
                              const struct weft__coll_work *work,
                              struct weft__coll_expectation *expectation);
/* How many messages follow each other. */
double weft__coll_hops(const struct weft__coll_work *work, int32_t num_nodes);
/* As it is known, or assumed. */
double weft__coll_latency_us(const struct weft__coll_wire *wire);
