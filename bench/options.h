/* SPDX-License-Identifier: MIT */
/* Options of the benchmark programs, the same for weft and for Open MPI. */
#pragma once

#include <stdint.h>

#include "workload/ep_layer_options.h"

enum bench_measure {
    MEASURE_ROWS,    /* dispatch and combine, each against plain memcpy */
    MEASURE_LAYER,   /* layout, notify, dispatch and combine of one layer */
    MEASURE_LATENCY, /* one dispatch among many in a row */
    MEASURE_DECODE,  /* one step of low latency, by rank and by expert, against the normal one */
    MEASURE_IDLE,    /* processor time while waiting for a rank */
    MEASURE_RAIL /* what crosses between nodes alone: every token goes to the own partner there */
};

struct bench_options {
    enum bench_measure measure;
    int32_t num_tokens; /* per rank */
    int32_t hidden;     /* bf16 elements */
    int32_t num_topk;
    int32_t num_experts;
    int32_t num_iters;
    int32_t num_warmups;
    uint64_t seed;
};

/* Ends the process when an option is bad. */
void bench_options_parse(struct bench_options *options, int argc, char **argv);

/* The layer that they are of. */
struct ep_layer_options bench_layer_options(const struct bench_options *options);
