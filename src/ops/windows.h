/* SPDX-License-Identifier: MIT */
/*
 * Windows: pieces of the ranks' memory that all ranks have mapped. Every rank numbers its own; number 0
 * is its heap. Where they are mapped is in one table per communicator, which the programs read.
 */
#ifndef WEFT_OPS_WINDOWS_H
#define WEFT_OPS_WINDOWS_H

#include "machine/host.h"

struct weft__windows {
    int32_t max_windows;
    void *table; /* char *[max_windows][num_ranks], in memory of the machine */
};

/* Fills comm->windows: room for the machine's number of windows. */
weft_result weft__windows_create(weft_comm *comm);
void weft__windows_destroy(weft_comm *comm);

#endif
