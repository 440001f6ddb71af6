/* SPDX-License-Identifier: MIT */
/* Memory as users of weft have it from CUDA. Functions return 0, or 1 when a check has failed; they
 * are called on a thread whose context is current. */
#pragma once

#include "cuda/driver.h"

enum device_memory_kind {
    MEMORY_PLAIN,    /* as from cudaMalloc */
    MEMORY_SEGMENTS, /* several allocations side by side, as PyTorch's expandable segments */
    MEMORY_SEGMENTS_WITHOUT_HANDLES, /* the same, which cannot be shared */
    MEMORY_OF_POOL,                  /* as from cudaMallocAsync */
    MEMORY_PINNED,                   /* of the host */
    MEMORY_NUM_KINDS
};

enum { MEMORY_NUM_SEGMENTS = 3 };

struct device_memory {
    enum device_memory_kind kind;
    char *base;
    size_t bytes; /* those of MEMORY_NUM_SEGMENTS segments */
    size_t segment_bytes;
};

const char *device_memory_name(enum device_memory_kind kind);
/* Whether other processes can be given it. */
int device_memory_is_shareable(enum device_memory_kind kind);
int device_memory_alloc(enum device_memory_kind kind, struct device_memory *memory);
int device_memory_free(const struct device_memory *memory);
/* How many bytes of the device are free. */
int device_memory_count_free(size_t *free_bytes);
