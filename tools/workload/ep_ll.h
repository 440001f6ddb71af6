/* SPDX-License-Identifier: MIT */
/* The part of a layer that is low latency. */
#pragma once

#include "workload/ep_layer.h"

/* How rows are quantised, of a format that does it. */
weft_rows_args ep_ll_rows_args(const struct ep_layer_options *options);

/* The configuration that the options ask for. */
weft_ll_config ep_ll_config(const struct ep_layer_options *options);

/* Collective; of a layer that has its weft_ep. ep_layer_close ends it. */
weft_result ep_ll_open(struct ep_layer *layer);

/* 1 if experts write their answers where rows came to, in place of ll.y. */
int ep_ll_fills_slots(const struct ep_layer *layer);

/* Enqueues the parts of an operation. A combine alone keeps the result, so that it can come
 * again. */
weft_result ep_ll_enqueue(struct ep_layer *layer, int parts);
/* 1 if there is a result behind the parts, to be released. */
int ep_ll_leaves_result(int parts);

/* Single calls, in as many phases as the options ask for. */
enum ep_ll_end { EP_LL_KEEP, EP_LL_END }; /* the result of dispatch */
weft_result ep_ll_dispatch(struct ep_layer *layer);
weft_result ep_ll_combine(struct ep_layer *layer, enum ep_ll_end end);

/* Counts the rows that came with the last dispatch. */
weft_result ep_ll_count_traffic(struct ep_layer *layer, struct ep_traffic *traffic);
/* Rows that this rank sends to other nodes in dispatch, or gets from there in combine. Partners
 * relay a row once for all ranks of their node. */
int64_t ep_ll_count_rows_between_nodes(const struct ep_layer *layer, enum ep_part part);
