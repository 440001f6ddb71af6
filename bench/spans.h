/* SPDX-License-Identifier: MIT */
/* How long something takes that all ranks do at the same time: from the first rank's start to the
 * last rank's end. Where there are more ranks than cores, what single ranks measure of themselves
 * would miss the time in which they wait for a core before they start. */
#pragma once

#include "weft.h"
#include "workload/figures.h"

struct spans {
    int32_t num_spans;
    double *starts, *ends; /* [num_spans] of this rank */
};

weft_result spans_init(struct spans *spans, int32_t num_spans);
void spans_destroy(struct spans *spans);

/* Enqueues stamps of span `i`, the first behind a barrier of all ranks. */
weft_result spans_begin(struct spans *spans, int32_t i, weft_comm *comm, weft_stream *stream);
weft_result spans_end(struct spans *spans, int32_t i, weft_stream *stream);

/* Collective: microseconds, over the spans of all ranks. */
weft_result spans_figures(const struct spans *spans, weft_comm *comm, struct figures *us);
