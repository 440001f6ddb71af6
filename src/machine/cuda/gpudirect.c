/* SPDX-License-Identifier: MIT */
#include "machine/cuda/gpudirect.h"

#include <stdio.h>

#include "comm/host/log.h"
#include "net/attach.h"

static int attribute(const struct weft__cuda *cuda, CUdevice_attribute name)
{
    int value = 0;
    (void)weft__cu.device_get_attribute(&value, name, cuda->device);
    return value;
}

/* NULL: there is none. What the network has written is read after an acquire of a word in memory of
 * the host, which is added to after the write has been flushed: enough on GPUs that order such
 * writes, and others are not used. */
static const char *find_obstacle(const weft_comm *comm)
{
    const struct weft__cuda *cuda = weft__cuda_of(comm);
    const char *of_network = comm->network->gpu_obstacle;
    if (of_network != NULL)
        return of_network;
    if (attribute(cuda, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED) == 0)
        return "the driver offers no GPUDirect RDMA";
    if (attribute(cuda, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING) <
        CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER)
        return "the GPU does not order what the network writes";
    return NULL;
}

/* No memory of a pool, nor mapped: that of a plain allocation any network can register. */
static weft_result allocate(const struct weft__cuda *cuda, uint64_t bytes, void **memory)
{
    CUdeviceptr allocated;
    WEFT__TRY(weft__cuda_plain_alloc(cuda, bytes, &allocated));
    *memory = (void *)(uintptr_t)allocated;
    return WEFT_OK;
}

void weft__cuda_gpudirect_free(weft_comm *comm, void *memory)
{
    if (memory != NULL)
        weft__cuda_plain_free(weft__cuda_of(comm), (CUdeviceptr)(uintptr_t)memory);
}

weft_result weft__cuda_gpudirect_alloc(weft_comm *comm, struct weft__cuda_gpudirect *gpudirect,
                                       uint64_t bytes, void **memory, uint64_t *place)
{
    const int is_tried = find_obstacle(comm) == NULL;
    struct weft__net_part part = {.num_bytes = bytes, .kind = WEFT__NET_DEVICE_MEMORY};
    if (is_tried && allocate(weft__cuda_of(comm), bytes, &part.memory) != WEFT_OK)
        weft__log(WEFT__LOG_WARN, comm->rank, "rows cannot be staged in memory of the GPU: %s",
                  weft__last_error());
    const weft_result result = weft__net_add_region(comm, &part, place);
    const int is_refused = is_tried && result == WEFT_ERROR_UNSUPPORTED;
    snprintf(gpudirect->refusal, sizeof gpudirect->refusal, "%s",
             is_refused ? weft__last_error() : "");
    if (is_refused)
        weft__log(WEFT__LOG_WARN, comm->rank, "rows are staged in memory of the host: %s",
                  gpudirect->refusal);
    if (result == WEFT_OK)
        *memory = part.memory;
    else
        weft__cuda_gpudirect_free(comm, part.memory);
    return result;
}

void weft__cuda_gpudirect_describe(const weft_comm *comm,
                                   const struct weft__cuda_gpudirect *gpudirect, char *text,
                                   size_t text_bytes)
{
    const char *obstacle = find_obstacle(comm);
    if (obstacle == NULL && gpudirect->refusal[0] != '\0')
        obstacle = gpudirect->refusal;
    if (obstacle != NULL)
        snprintf(text, text_bytes, "through the host, because %s", obstacle);
    else
        snprintf(text, text_bytes, "staged rows by GPUDirect, heaps through the host");
}
