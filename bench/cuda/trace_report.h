/* SPDX-License-Identifier: MIT */
/* Figures of the layers of a trace on stdout: lines of a table, or JSON objects. */
#pragma once

#include "row_tables.h"
#include "workload/figures.h"

/* Rows of dispatch, which combine moves the other way. */
struct trace_load {
    int32_t busiest; /* of the rank with most */
    double mean;     /* over ranks */
};

struct trace_loads {
    struct trace_load recv; /* received, the rank's own included */
    struct trace_load link; /* to other ranks or from them, whichever is more */
};

struct trace_loads trace_loads_of(const struct plan *plan);

enum trace_operation { TRACE_DISPATCH, TRACE_COMBINE, NUM_TRACE_OPERATIONS };
enum { TRACE_UNIFORM = -1 }; /* in place of a layer */

/* One operation on one layer. */
struct trace_figure {
    enum trace_operation operation;
    int32_t layer;
    struct trace_loads loads;
    struct figures us; /* of the slowest rank, over the iterations */
    /* Over the time that the busiest link would take at the speed that uniform routing reaches
     * there: 1 where imbalance explains the time. */
    double vs_uniform;
    int64_t num_wrong;
};

struct trace_report {
    enum output output;
    const char *name;                        /* of the file */
    const struct plan *plan;                 /* of any layer: how many ranks, tokens, experts */
    const char *rows;                        /* bytes per row, as text */
    int32_t row_bytes[NUM_TRACE_OPERATIONS]; /* the same; combine takes the first plane */
    int32_t num_blocks;
};

double trace_link_gb_per_s(const struct trace_report *report, const struct trace_figure *figure);
void trace_report_layer(const struct trace_report *report, const struct trace_figure *figure);
/* Medians over the layers, all of one operation; there is room for num_layers samples. */
void trace_report_medians(const struct trace_report *report, const struct trace_figure *layers,
                          int32_t num_layers, double *samples);
