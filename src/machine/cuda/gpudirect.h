/* SPDX-License-Identifier: MIT */
/* Memory of GPUs that the network reads and writes itself, where engine, driver and GPU allow that.
 * Only rows that are staged are in such: what is registered cannot grow, as heaps do. */
#pragma once

#include "machine/cuda/device.h"

struct weft__cuda_gpudirect {
    char refusal[128]; /* why the last memory was not taken; "": it was, or was not offered */
};

/* As staging_alloc of the machine's table. UNSUPPORTED on all ranks: the host must do. */
weft_result weft__cuda_gpudirect_alloc(weft_comm *comm, struct weft__cuda_gpudirect *gpudirect,
                                       uint64_t bytes, void **memory, uint64_t *place);
/* Memory of the former, that nobody puts to any more. */
void weft__cuda_gpudirect_free(weft_comm *comm, void *memory);

/* As weft_net_info.gpu_memory. */
void weft__cuda_gpudirect_describe(const weft_comm *comm,
                                   const struct weft__cuda_gpudirect *gpudirect, char *text,
                                   size_t text_bytes);
