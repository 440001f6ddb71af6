/* SPDX-License-Identifier: MIT */
/* The arguments of weft tune. */
#pragma once

#include "coll_options.h"
#include "workload/options.h"

enum { TUNE_MAX_SIZES = 25 };

struct tune_options {
    struct coll_options coll; /* of every run, but for operation, algorithm, blocks and warps */
    struct option_list ops;
    struct option_list blocks, warps; /* none: the tool chooses them by the machine */
    const char *output;               /* NULL: standard output */
};

/* Ends the process with STATUS_USAGE when an argument is wrong whatever the number of ranks. */
void tune_options_parse(struct tune_options *options, int argc, char **argv);
