/* SPDX-License-Identifier: MIT */
/* Figures of collectives on stdout: lines of a table, or JSON objects. */
#pragma once

#include "workload/collective.h"
#include "workload/figures.h"

/* Microseconds per call of the slowest rank, over the iterations. */
struct collective_figure {
    const char *library; /* weft, nccl */
    const struct collective *collective;
    const char *algorithm; /* that was used */
    const char *asked;     /* what was asked for */
    const char *kernel;    /* stream, graph, ... */
    int32_t num_blocks;    /* that were asked for; 0: the library's choice */
    int32_t num_warps;     /* the same */
    struct figures us;
    uint64_t num_wrong; /* elements of all ranks */
};

void collective_report_heading(void); /* of lines of a table */
void collective_report_line(const struct collective_figure *figure);
void collective_report_json(const struct collective_figure *figure);
