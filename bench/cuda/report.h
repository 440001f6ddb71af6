/* SPDX-License-Identifier: MIT */
/* Figures on stdout, a JSON object each. */
#pragma once

#include "row_tables.h"
#include "workload/figures.h"

struct report {
    int32_t num_ranks, num_topk, num_experts;
};

/* Microseconds of the slowest GPU, over the iterations. */
struct measured {
    const char *name;   /* push_rows_us */
    const char *kernel; /* how: ldst, bulk, ... */
    int32_t num_sms;    /* 0: not chosen by this program */
    int32_t num_tokens;
    const char *rows; /* bytes per row */
    struct figures us;
    /* Per GPU, its own rows included, as DeepEP counts, and of them those from or to another GPU;
     * the mean over GPUs. */
    struct routed_bytes bytes;
    /* Units of rows, and counts, on all ranks together. 0 in programs that end when one is
     * wrong. */
    int64_t num_wrong;
};

void report_print(const struct report *report, const struct measured *measured);
