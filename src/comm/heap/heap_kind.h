/* SPDX-License-Identifier: MIT */
/* Where the memory of a heap comes from, and how the other ranks of the host map it: what a machine
 * gives to comm/heap/heap_memory.c. */
#pragma once

#include <stdint.h>

#include "weft.h"

struct weft__heap_limits {
    uint64_t page_bytes;        /* the unit of growth */
    uint64_t default_max_bytes; /* addresses to reserve when the user does not say */
    uint64_t spare_bytes; /* what this rank could get at the moment, if all ask for the same */
};

enum weft__heap_sharing {
    WEFT__HEAP_SHARED_ONCE,    /* one descriptor stands for all that is ever committed */
    WEFT__HEAP_SHARED_BY_PART, /* every part committed has a descriptor of its own */
    WEFT__HEAP_SHARED_BY_NAME  /* handles are bytes, and there is only one part: no growth */
};

struct weft__heap_handle {
    int fd; /* -1: none */
    unsigned char name[80];
};

/* The bytes begin_bytes..end_bytes of a rank's heap, of which addresses for max_bytes have been
 * reserved at `base`. */
struct weft__heap_part {
    char *base;
    uint64_t max_bytes;
    uint64_t begin_bytes, end_bytes;
    struct weft__heap_handle handle;
};

struct weft__heap_kind {
    const char *name;
    enum weft__heap_sharing sharing;
    int host_can_access; /* 1: the heap is memory of this process as any other */
    void (*limits)(const weft_comm *comm, struct weft__heap_limits *limits);
    /* `base` may stay NULL where commit and map find an address by themselves. */
    weft_result (*reserve)(weft_comm *comm, uint64_t max_bytes, char **base);
    /* Backs a part of the own heap with memory, and makes its handle. */
    weft_result (*commit)(weft_comm *comm, struct weft__heap_part *part);
    /* The reverse, of the last commit; of kinds shared by part, also of the last map. */
    void (*release)(weft_comm *comm, const struct weft__heap_part *part);
    /* Makes a part of the heap of `rank` appear here. */
    weft_result (*map)(weft_comm *comm, int32_t rank, struct weft__heap_part *part);
    /* Gives back the addresses and all that is mapped there, bytes 0 .. part->end_bytes of
     * `rank`. */
    void (*unmap)(weft_comm *comm, int32_t rank, const struct weft__heap_part *part);
};

/* Shared memory of the host. */
extern const struct weft__heap_kind weft__heap_of_host;
