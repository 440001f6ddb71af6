/* SPDX-License-Identifier: MIT */
/* weft tune: its arguments, the fastest way to do an operation, size by size, and the table of
 * them. */
#pragma once

#include <stdio.h>

#include "coll_options.h"
#include "workload/progress.h"

enum { TUNE_MAX_SIZES = 25 };

struct tune_options {
    struct coll_options coll; /* of every run, but for operation, algorithm, blocks and warps */
    struct option_list ops;
    struct option_list blocks, warps; /* none: the tool chooses them by the machine */
    const char *output;               /* NULL: standard output */
    enum progress_visibility progress;
};

struct tune_variant {
    weft_algorithm algorithm;
    int32_t num_blocks; /* 0: the machine's choice, as of warps */
    int32_t num_warps;
};

struct tune_point {
    uint64_t bytes; /* as weft_coll_algorithm has them */
    struct tune_variant best;
    double
        us; /* of the best, in the slower of its forms, out of place and in place; infinite: none */
};

/* One operation's points, in ascending order. */
struct tune_curve {
    weft_collective op;
    int num_points;
    struct tune_point points[TUNE_MAX_SIZES];
};

/* Collective, and the result is the same on all ranks: WEFT_ERROR_ABORTED once a rank has noted a
 * signal (job.h). The lists of options must not be empty. */
weft_result tune_measure(weft_comm *comm, const struct tune_options *options,
                         struct tune_curve *curve, struct progress *progress);
/* How many steps of progress that is. */
int64_t tune_num_steps(const struct tune_options *options, weft_collective op);

/* The table that weft tune writes: weft(1) tells its format. */
struct tune_table {
    FILE *file;
    weft_machine machine;
    int32_t num_ranks;
};

/* The measurement, its place and its time. */
void tune_table_begin(const struct tune_table *table, const struct tune_options *options);
/* Rows; neighbouring points with the same best variant are one. */
void tune_table_add(const struct tune_table *table, const struct tune_curve *curve);
