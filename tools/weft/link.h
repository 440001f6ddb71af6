/* SPDX-License-Identifier: MIT */
/* How fast rows go from one rank to another, measured with the operations that users call. */
#pragma once

#include <stdint.h>

#include "weft.h"

struct link_figures {
    double gbps;       /* of the fastest of several dispatches of many rows */
    double latency_us; /* the median time of a dispatch of one row of 16 bytes */
    int64_t num_damaged_rows;
};

/* Collective. links[num_ranks][num_ranks], from row to column, on all ranks the same. */
weft_result link_measure_all(weft_comm *comm, struct link_figures *links);
