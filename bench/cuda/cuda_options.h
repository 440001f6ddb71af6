/* SPDX-License-Identifier: MIT */
/* Options of the programs of this folder. */
#pragma once

#include <stdint.h>

#include "kernels.h"
#include "workload/options.h"

enum { MAX_LISTED = 16 };

struct row_format {
    int32_t num_planes;
    int32_t row_bytes[MAX_PLANES];
    const char *text; /* as given, such as 7168+224 */
};

struct cuda_options {
    int32_t num_gpus;              /* 0: all */
    struct option_list num_tokens; /* per rank */
    struct option_list num_sms;
    int32_t num_formats;
    struct row_format formats[MAX_LISTED];
    int32_t num_topk, num_experts;
    int32_t num_iters, num_warmups;
    uint64_t seed;
};

/* Ends the process when an option is bad. */
void cuda_options_parse(struct cuda_options *options, const char *doc, int argc, char **argv);

static inline int32_t row_bytes_of(const struct row_format *format)
{
    int32_t row_bytes = 0;
    for (int32_t plane = 0; plane < format->num_planes; plane++)
        row_bytes += format->row_bytes[plane];
    return row_bytes;
}
