/* SPDX-License-Identifier: MIT */
/* Times of one operation: the maximum over ranks in each iteration, then over iterations. And what
 * is timed, and checked, as one: a call of an operation, or a graph of several. */
#pragma once

#include "coll_run.h"
#include "workload/figures.h"

/* Collective; microseconds of one call. */
weft_result coll_measure(const struct coll_run *run, const struct collective *collective,
                         enum coll_place place, struct figures *us);

/* In a graph that is timed: enough that what it takes to launch it shows little. */
enum { COLL_GRAPH_CALLS = 20 };

struct coll_calls {
    const struct coll_run *run;
    const struct collective *collective;
    enum coll_place place;
    int32_t num_calls; /* 1 unless they make a graph */
    weft_graph *graph; /* NULL: there is none */
};

/* COLL_GRAPH_CALLS with a graph, else 1. */
int32_t coll_calls_per_launch(const struct coll_options *options);

/* Records the graph, if options say so; they are ready to be enqueued then. Whether or not it
 * succeeds, coll_calls_drop must follow, once what was enqueued has finished. */
weft_result coll_calls_prepare(struct coll_calls *calls);
weft_result coll_calls_enqueue(const struct coll_calls *calls);
void coll_calls_drop(struct coll_calls *calls);
