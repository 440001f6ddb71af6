/* SPDX-License-Identifier: MIT */
/* The way from each GPU and port to each other, and what is near what. */
#pragma once

#include "topo/graph.h"

enum { TOPO_P2P_AUTO = -1 };

/* p2p_level is the worst type of path by which GPUs reach each other's memory; AUTO: PXB, or SYS
 * for two GPUs beside an AMD processor. Other memory of GPUs is reached through a processor's. */
weft_result topo_compute_paths(struct topo *topo, int32_t p2p_level);

/* ------------------------------------------------------------------ for the parts of this */

static inline struct topo_path *topo_path(struct topo_node *from, const struct topo_node *to)
{
    return &from->paths[to->kind][to->index];
}

/* Nodes of a kind with the most bandwidth, and among these by the nearest path. */
struct topo_locals {
    int32_t count;
    int32_t indices[TOPO_MAX_NODES];
};
void topo_find_locals(const struct topo *topo, const struct topo_node *node, enum topo_kind kind,
                      struct topo_locals *locals);
/* NULL: there is no path. */
struct topo_node *topo_local_cpu(const struct topo *topo, const struct topo_node *node);
/* The index of the GPU that uses a port first, -1: none does. */
int32_t topo_local_gpu(const struct topo *topo, const struct topo_node *net);
/* Enters for every GPU which ports its channels take, and for every port its local GPU. */
weft_result topo_assign_nets(struct topo *topo);
