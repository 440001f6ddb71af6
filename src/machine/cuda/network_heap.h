/* SPDX-License-Identifier: MIT */
/* The heap as the network reaches it: by the GPU's copy engines, and a kernel that adds. */
#pragma once

#include "machine/cuda/device.h"
#include "net/net.h"

struct weft__cuda_network_heap {
    weft_comm *comm;
    char *base;
    struct weft__cuda_queue queue;
    char *piece;      /* pinned, as is `before` */
    uint64_t *before; /* the value before an addition */
};

/* When the heap is up and no kernel waits for this rank; *heap is zero. */
weft_result weft__cuda_network_heap_open(weft_comm *comm, struct weft__cuda_network_heap *heap);
/* Also after a failure of open, or without it. */
void weft__cuda_network_heap_close(struct weft__cuda_network_heap *heap);

struct weft__net_accessor weft__cuda_network_heap_accessor(struct weft__cuda_network_heap *heap);
