/* SPDX-License-Identifier: MIT */
/* The way from each GPU and port to each other, and what is near what. */
#pragma once

#include "topo/graph.h"

enum { WEFT__TOPO_P2P_AUTO = -1 };

/* What the driver, the system and the user say of pairs of ranks. */
struct weft__topo_access {
    /* The worst type of path by which GPUs reach each other's memory; AUTO: PXB, or SYS for two GPUs beside an AMD
     * processor. What they cannot reach goes through the memory of a processor. */
    int32_t p2p_level;
    int32_t num_ranks;       /* of what follows */
    const uint8_t *refused;  /* [rank][rank] not 0: the driver refuses access; NULL: nowhere */
    const uint8_t *unshared; /* the same: they do not even share memory of the host */
};

/* Where `access` is NULL, nobody says anything. */
weft_result weft__topo_compute_paths(struct weft__topo *topo,
                                     const struct weft__topo_access *access);

/* Leaves the GPUs that rank reaches without the network, and computes their paths anew. */
weft_result weft__topo_trim(struct weft__topo *topo, int32_t rank,
                            const struct weft__topo_access *access);

/* ------------------------------------------------------------------ for the parts of this */

static inline struct weft__topo_path *weft__topo_path(struct weft__topo_node *from,
                                                      const struct weft__topo_node *to)
{
    return &from->paths[to->kind][to->index];
}

/* Nodes of a kind with the most bandwidth, and among these by the nearest path. */
struct weft__topo_locals {
    int32_t count;
    int32_t indices[WEFT__TOPO_MAX_NODES];
};
void weft__topo_find_locals(const struct weft__topo *topo, const struct weft__topo_node *node,
                            enum weft__topo_kind kind, struct weft__topo_locals *locals);
/* NULL: there is no path. */
struct weft__topo_node *weft__topo_local_cpu(const struct weft__topo *topo,
                                             const struct weft__topo_node *node);
/* The index of the GPU that uses a port first, -1: none does. */
int32_t weft__topo_local_gpu(const struct weft__topo *topo, const struct weft__topo_node *net);
/* Enters for every GPU which ports its channels take, and for every port its local GPU. */
weft_result weft__topo_assign_nets(struct weft__topo *topo);
