/* SPDX-License-Identifier: MIT */
/* Memory of GPUs that is freed together. */
#pragma once

#include <stddef.h>

enum { MAX_BLOCKS = 128 };

struct device_memory {
    int num_blocks;
    void *blocks[MAX_BLOCKS];
};

/* On the current device, filled with zeros. */
int device_alloc(struct device_memory *memory, size_t bytes, void **block);
/* The same, with a copy of `data`. */
int device_upload(struct device_memory *memory, const void *data, size_t bytes, void **block);
void device_free_all(struct device_memory *memory);
