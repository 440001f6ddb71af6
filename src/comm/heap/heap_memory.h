/* SPDX-License-Identifier: MIT */
/* The memory under a symmetric heap: this rank's, and the mappings of the other ranks of the
 * node. */
#pragma once

#include "comm/heap/heap_kind.h"

struct weft__heap_memory {
    weft_comm *comm;
    int fd;              /* of this rank's memory, where one serves all of its growth; else -1 */
    uint64_t page_bytes; /* the unit of growth, the same on all ranks */
    uint64_t committed_bytes, max_bytes;
    /* How much of this rank's memory is there. It grows before the others hear of it, so that what
     * they send to it by the network does not come too early. */
    _Atomic uint64_t backed_bytes;
    char **bases; /* [num_ranks] NULL: cannot be mapped */
    /* [num_ranks] scratch of an exchange of handles, during which no rank may run out of memory. */
    struct weft__heap_handle *handles;
    int *fds;
};

/* Collective. The kind of memory is that of comm. When it fails there is still something to
 * destroy. */
weft_result weft__heap_memory_create(struct weft__heap_memory *memory, weft_comm *comm,
                                     const weft_comm_config *config);
void weft__heap_memory_destroy(struct weft__heap_memory *memory);

/* The most that each rank that shares this memory could get at the moment, if all ask for the
 * same. */
uint64_t weft__heap_memory_spare_bytes(const struct weft__heap_memory *memory);

/* Collective, with the same arguments: commits `bytes`, rounded up to pages, on all ranks or none;
 * bytes is more than what is committed and at most max_bytes. */
weft_result weft__heap_memory_grow(struct weft__heap_memory *memory, uint64_t bytes);
