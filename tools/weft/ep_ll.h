/* SPDX-License-Identifier: MIT */
/* The part of a layer that is low latency. */
#pragma once

#include "ep_layer.h"

enum { EP_LL_GRAPH_CALLS = 20 };

/* How rows are quantised, of a format that does it. */
weft_rows_args ep_ll_rows_args(const struct ep_options *options);

/* What the options ask for. */
weft_ll_config ep_ll_config(const struct ep_options *options);

/* Prints how rows come, and why the library has chosen no faster way. */
void ep_ll_print_carrier(const weft_ll_sizes *sizes);

/* Collective; of a layer that has its weft_ep. Close also after a failure. */
weft_result ep_ll_open(struct ep_layer *layer);
void ep_ll_close(struct ep_layer *layer);

/* Whether experts write their answers where rows came to, in place of ll.y. */
int ep_ll_fills_slots(const struct ep_layer *layer);

/* Enqueues an operation, or the graph of it. EP_LL_COMBINE keeps its result, so that it can come
 * again; a graph of EP_LL_DISPATCH releases each of its results. */
weft_result ep_ll_enqueue(struct ep_layer *layer, enum ep_op op);

/* Single calls, in as many phases as the options ask for. A combine by EP_LL_LAYER ends the
 * result. */
weft_result ep_ll_dispatch(struct ep_layer *layer);
weft_result ep_ll_combine(struct ep_layer *layer, enum ep_op op);

/* What came with the last dispatch. */
weft_result ep_ll_count_traffic(struct ep_layer *layer, struct ep_traffic *traffic);
/* Of a dispatch, what this rank sends to other nodes, where partners relay rows once for all ranks
 * there; of a combine, what it is answered from there. */
int64_t ep_ll_count_rows_between_nodes(const struct ep_layer *layer, enum ep_op op);
