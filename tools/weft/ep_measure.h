/* SPDX-License-Identifier: MIT */
/* Times of the operations: the maximum over ranks in each iteration, then over iterations. */
#ifndef WEFT_TOOL_EP_MEASURE_H
#define WEFT_TOOL_EP_MEASURE_H

#include "ep_layer.h"
#include "workload/figures.h"

/* What an operation that moves rows moves per rank, the maximum over ranks. */
struct ep_traffic {
    uint64_t bytes_logical; /* rows that arrive at the rank (go back, in combine), own included */
    uint64_t bytes_remote;  /* without the rank's own */
};

/* Collective. Fills figures[op], in microseconds, of operations that exist. */
weft_result ep_measure(struct ep_layer *layer, struct figures figures[EP_NUM_OPS]);

/* Collective; after ep_measure. */
weft_result ep_measure_traffic(struct ep_layer *layer, struct ep_traffic *traffic);

#endif
