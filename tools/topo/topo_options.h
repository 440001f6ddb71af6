/* SPDX-License-Identifier: MIT */
/* The arguments of weft topo. */
#pragma once

#include "workload/options.h"

struct topo_options {
    struct option_texts files; /* none: this machine */
    int32_t num_alike;         /* nodes like each of them */
    int32_t p2p_level;         /* 0: AUTO, else behind the type */
    const char *nccl_version, *graph_out, *dump, *svg;
    int json;
};
