/* SPDX-License-Identifier: MIT */
/* How long a collective is expected to take on one node: a start, and the bytes that its busiest rank moves. What
 * an algorithm moves is a row of a table; what that takes is the costs of a machine. The model tells, and chooses
 * nothing (choose.c says why). Between nodes: model_nodes.h. */
#pragma once

#include "weft.h"

/* How data go. */
enum weft__coll_way {
    WEFT__COLL_PACKETS,
    WEFT__COLL_DIRECT,
    WEFT__COLL_PIECES, /* through fifos */
    WEFT__COLL_NUM_WAYS
};

struct weft__coll_way_costs {
    double start_us;     /* until the ranks have met, and the end of the operation */
    double peer_us;      /* more, for each other rank */
    double step_us;      /* of each step behind the first */
    double step_rank_us; /* more, for each rank */
    /* Of a rank, when all move as much: what it writes to others, what it reads of others, and what it copies in its
     * own memory. */
    double push_gbps;
    double pull_gbps;
    double copy_gbps; /* INFINITY: the others hide it */
    double alone;     /* how many times as fast a rank moves while the others do not */
};

struct weft__coll_costs {
    struct weft__coll_way_costs ways[WEFT__COLL_NUM_WAYS];
};

/* Where the ranks are. */
struct weft__coll_site {
    weft_machine machine;
    int32_t num_ranks;
    int32_t num_cores; /* of the host, for machine cpu */
    double link_gbps;  /* of a rank, for machine cuda */
};
struct weft__coll_costs weft__coll_costs_at(const struct weft__coll_site *site);

struct weft__coll_work {
    weft_collective collective;
    weft_algorithm algorithm;
    uint64_t row_bytes; /* as weft_coll_algorithm has them */
    int32_t num_ranks;
};
struct weft__coll_expectation {
    double latency_us;   /* whatever the bytes */
    double transfer_us;  /* of the bytes */
    uint64_t link_bytes; /* that the busiest rank writes to others and reads of them */
};
/* Whether the model knows what the algorithm moves. */
int weft__coll_is_modelled(weft_collective collective, weft_algorithm algorithm);
/* 0: it does not. */
int weft__coll_expect(const struct weft__coll_costs *costs, const struct weft__coll_work *work,
                      struct weft__coll_expectation *expectation);

/* The longest row that the algorithm can move where a rank has so many bytes of packets under way to each other one;
 * UINT64_MAX: it needs no packets. */
uint64_t weft__coll_max_row_bytes(weft_algorithm algorithm, uint64_t packet_bytes,
                                  int32_t num_ranks);
/* Where nobody says how many they are. */
uint64_t weft__coll_default_packet_bytes(weft_machine machine, int32_t num_ranks);
