/* SPDX-License-Identifier: MIT */
/*
 * Places the experts of a layer by their loads: busy ones several times, so that all ranks have
 * nearly the same to do. Sums and quotients are fp32, as EPLB's, for the same answers.
 */
#pragma once

#include <stdint.h>

#include "weft.h"

struct weft__balance {
    int32_t num_experts, num_replicas;
    int32_t num_groups; /* of experts, each on one node as a whole */
    int32_t num_nodes, num_ranks;
    weft_balance_mode mode;
};

struct weft__balance_work;

enum weft__balance_use {
    WEFT__BALANCE_TO_PLACE,
    WEFT__BALANCE_TO_MOVE /* memory for each pair of ranks, which to align placements takes */
};
/* NULL: no memory. */
struct weft__balance_work *weft__balance_work_create(const struct weft__balance *balance,
                                                     enum weft__balance_use use);
void weft__balance_work_destroy(struct weft__balance_work *work);

/* Places the experts of one layer: replicas[num_replicas], of which each rank has the next
 * num_replicas / num_ranks, get their experts. */
void weft__balance_layer(struct weft__balance_work *work, const float *loads, int32_t *replicas);

/* The load of the busiest rank over the mean, where the ranks that have an expert share its load
 * alike. */
float weft__balance_imbalance(struct weft__balance_work *work, const float *loads,
                              const int32_t *replicas);

/* Rearranges the placement `to`, which stays as good, so that much of the placement `from` stays
 * where it is: nodes, ranks of a node and replicas of a rank change places. */
void weft__balance_align(struct weft__balance_work *work, const int32_t *from, int32_t *to);

/* Writes the moves that make `to` out of `from`, num_replicas at most, and returns their number.
 * Every expert is in `from`. */
int32_t weft__balance_find_moves(struct weft__balance_work *work, const int32_t *from,
                                 const int32_t *to, weft_expert_move *moves);

/* For one step: fills spare replicas (-1) of the layer with copies, until the imbalance is at
 * most `target` or no copy helps, and deals each expert's granules out among its replicas. Returns
 * the imbalance. */
float weft__balance_fill(struct weft__balance_work *work, const float *loads, float target,
                         int32_t *replicas, int32_t *granules);
