/* SPDX-License-Identifier: MIT */
/* Options of coll and nccl_coll. */
#pragma once

#include "workload/collective.h"
#include "workload/options.h"

enum form { FORM_TABLE, FORM_JSON };

struct collective_options {
    struct option_list ops;        /* weft_collective */
    struct option_list algorithms; /* weft_algorithm; those that serve an operation */
    struct option_list sizes;      /* bytes, as nccl-tests counts */
    struct option_list num_blocks; /* 0: the library's choice */
    struct option_list num_warps;  /* the same */
    uint64_t packet_bytes;         /* the same */
    weft_dtype dtype;
    int32_t num_iters, num_warmups;
    enum form form;
};

/* Ends the process when an option is bad. */
void collective_options_parse(struct collective_options *options, const char *doc, int argc,
                              char **argv);

/* The largest of options->sizes. */
uint64_t collective_options_max_bytes(const struct collective_options *options);
