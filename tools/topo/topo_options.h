/* SPDX-License-Identifier: MIT */
/* The arguments of weft topo. */
#pragma once

#include "topo_times.h"
#include "workload/options.h"

enum topo_what { TOPO_ALL, TOPO_RING, TOPO_TREE, TOPO_BALANCED_TREE, TOPO_SPLIT_TREE, TOPO_NVLS };

struct topo_options {
    struct option_texts files; /* none: this machine */
    int32_t num_alike;         /* nodes like each of them */
    enum topo_what what;
    int32_t p2p_level; /* 0: AUTO, else behind the type */
    const char *nccl_version, *graph_in, *graph_out, *dump, *svg;
    int json;
    struct topo_times times;
};
