/* SPDX-License-Identifier: MIT */
/* The nodes of a communicator as programs see them (programs/nodes.h). */
#pragma once

#include "comm/comm.h"
#include "programs/nodes.h"

struct weft__nodes {
    struct wp_nodes device;
    void *ranks; /* the arrays of device, in memory of the machine */
};

/* Whether all nodes have as many ranks. */
int weft__nodes_are_alike(const weft_comm *comm);
/* UNSUPPORTED, naming `what`, if they have not. */
weft_result weft__nodes_check(const weft_comm *comm, const char *what);

/* Collective, of nodes that need not be alike. */
weft_result weft__nodes_create(weft_comm *comm, struct weft__nodes *nodes);
void weft__nodes_destroy(weft_comm *comm, struct weft__nodes *nodes);
