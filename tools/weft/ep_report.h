/* SPDX-License-Identifier: MIT */
/* The output of weft ep. */
#pragma once

#include "ep_measure.h"
#include "report/figures.h"
#include "workload/ep_check.h"

struct ep_report {
    const struct ep_options *options;
    weft_machine machine;
    struct figures figures[EP_NUM_OPS]; /* microseconds */
    struct ep_tally tallies[EP_NUM_OPS];
    struct ep_traffic_of_ranks traffic; /* of dispatch, in rows of the layer */
    struct ep_network network;
    struct ep_slowest slowest;
    weft_ll_sizes ll_sizes; /* of low latency */
};

/* Prints how rows come, and why the library has chosen no faster way. */
void ep_ll_print_carrier(const weft_ll_sizes *sizes);

/* Adds to `plotted` what --plot will draw. 0, or -1 when standard output cannot be written. */
int ep_report_print(const struct ep_report *report, struct figure_list *plotted);
/* Draws: 0, or -1 when the file of --plot cannot be written. */
int ep_report_end(const struct ep_options *options, const struct figure_list *plotted);
