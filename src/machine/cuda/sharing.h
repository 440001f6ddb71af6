/* SPDX-License-Identifier: MIT */
/* How device memory gets from rank to rank: allocations of virtual memory management by descriptor,
 * plain ones by name. Called between weft__cuda_enter and weft__cuda_leave. */
#pragma once

#include "machine/cuda/device.h"

/* Makes an allocation appear at addresses that have been reserved. */
weft_result weft__cuda_map(const struct weft__cuda *cuda, CUdeviceptr address, size_t bytes,
                           CUmemGenericAllocationHandle allocation);
/* Maps an allocation of `rank`, given by its descriptor, which stays the caller's. */
weft_result weft__cuda_import(const struct weft__cuda *cuda, int32_t rank, int fd,
                              CUdeviceptr address, size_t bytes);
weft_result weft__cuda_export(CUmemGenericAllocationHandle allocation, int *fd);

/* A rank's message about a plain allocation. CUDA refuses to open a handle in the process
 * that made it. */
struct weft__cuda_name {
    CUipcMemHandle handle;
    uint64_t address;
    int32_t ordinal; /* of the device */
    int32_t unused;
};

weft_result weft__cuda_name(const struct weft__cuda *cuda, CUdeviceptr address,
                            struct weft__cuda_name *name);
/* *address is closed by weft__cuda_close_name unless the rank is of this process. */
weft_result weft__cuda_open_name(weft_comm *comm, int32_t rank, const struct weft__cuda_name *name,
                                 CUdeviceptr *address);
void weft__cuda_close_name(const weft_comm *comm, CUdeviceptr address);
