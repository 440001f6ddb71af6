/* SPDX-License-Identifier: MIT */
/* Times of the operations: the maximum over ranks in each iteration, then over iterations. And what
 * they move and send. */
#pragma once

#include "ep_options.h"
#include "workload/ep_layer.h"
#include "workload/figures.h"

/* Collective. Fills figures[op], in microseconds, of operations that are timed. */
weft_result ep_measure(struct ep_layer *layer, const struct ep_options *options,
                       struct figures figures[EP_NUM_OPS]);

/* Collective; after ep_measure, of low latency of its last dispatch. */
struct ep_traffic_of_ranks {
    struct ep_traffic most, mean; /* over ranks */
};
weft_result ep_measure_traffic(struct ep_layer *layer, struct ep_traffic_of_ranks *traffic);

/* Bytes and rows that the operations send between nodes. */
struct ep_network {
    char engine[16];              /* "" on one node, where the rest is 0 */
    uint64_t bytes[EP_NUM_OPS];   /* that all ranks together put to other nodes */
    uint64_t of_rank[EP_NUM_OPS]; /* that the rank put which put most */
    int64_t num_rows[EP_NUM_OPS]; /* that ranks passed on for ranks of other nodes */
};

/* Collective; after ep_measure. Runs each operation once more. */
weft_result ep_network_measure(struct ep_layer *layer, struct ep_network *network);

/* The rank that comes late to the operations that were timed (weft_stats_query_slowest), by the
 * evidence of the hosts that have any; if each names one, the one with the greatest delays. */
struct ep_slowest {
    weft_slowest rank;
    int32_t num_witnesses; /* ranks that name it; 0: there is none */
};

/* Collective; right after ep_measure, before checks make ranks late. */
weft_result ep_find_slowest(weft_comm *comm, struct ep_slowest *slowest);
