/* SPDX-License-Identifier: MIT */
/* The output of weft coll: a line of nccl-tests' columns per size, or JSON. */
#pragma once

#include "coll_check.h"
#include "coll_measure.h"
#include "report/figures.h"

struct coll_outcome {
    struct figures us;
    struct coll_tally tally;
};

/* The report about one size. */
struct coll_line {
    const struct coll_options *options;
    weft_machine machine;
    struct collective collective;
    weft_algorithm algorithm; /* that was used */
    struct coll_outcome outcomes[COLL_NUM_PLACES];
};

/* As --bytes and tables have sizes: "8K". */
enum { COLL_SIZE_CHARS = 32 };
void coll_size_text(uint64_t bytes, char text[COLL_SIZE_CHARS]);

/* Sums over all lines, how far they are, and what --plot draws of them. */
struct coll_totals {
    uint64_t num_wrong;
    double busbw_sum;
    int32_t num_busbw;
    struct figure_list plotted; /* on rank 0, with --plot */
    struct progress progress;
};
void coll_totals_add(struct coll_totals *totals, const struct coll_line *line);

/* Collective; rank 0 prints. */
weft_result coll_report_heading(const struct coll_options *options, weft_comm *comm);
void coll_report_line(const struct coll_line *line, struct figure_list *plotted);
/* 0, or -1 when standard output, or the file of --plot, could not be written. */
int coll_report_end(const struct coll_options *options, const struct coll_totals *totals);

/* --explain: which algorithm for which size, and why. Collective, though rank 0 alone has something
 * to say. Returns the exit status. */
int coll_explain(const struct coll_options *options, weft_comm *comm);
