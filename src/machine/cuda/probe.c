/* SPDX-License-Identifier: MIT */
#include "machine/cuda/probe.h"

#include <stdlib.h>

#include "comm/log.h"
#include "machine/cuda/device.h"

/* Nothing has been allocated in the heap yet, and it has at least a page of 2 MiB. */
enum { SLOTS_OFFSET = 4096, COPY_OFFSET = 1 << 20, COPY_BYTES = 1 << 20 };

static const struct weft__program probe_program = {.name = "probe"};

/* The others know it too, but memory does not hold it by chance. */
static uint64_t secret_of(const weft_comm *comm, int32_t rank)
{
    return (comm->key ^ UINT64_C(0x9e3779b97f4a7c15)) + (uint64_t)rank * UINT64_C(1000003);
}

static weft_result store_to_all(weft_comm *comm)
{
    struct weft__cuda *cuda = weft__cuda_of(comm);
    char *const *bases = weft__heap_bases(comm->heap);
    void *heap_bases;
    WEFT__TRY(weft__machine_duplicate(comm, bases, (uint64_t)comm->num_ranks * sizeof(char *),
                                      &heap_bases));
    const struct weft_probe_args args = {comm->rank, comm->num_ranks, heap_bases, SLOTS_OFFSET,
                                         secret_of(comm, comm->rank)};
    const struct weft__launch launch = {.program = &probe_program,
                                        .args = &args,
                                        .args_bytes = sizeof args,
                                        .grid = {1, 1},
                                        .comm = comm};
    weft_result result = weft__cuda_launch_on(cuda->copies, &launch);
    if (result == WEFT_OK && weft__cu.stream_synchronize(cuda->copies) != CUDA_SUCCESS)
        result = weft__error(WEFT_ERROR_SYSTEM, "rank %d cannot store to the heaps of the others",
                             comm->rank);
    weft__cuda_free(comm, heap_bases);
    return result;
}

static weft_result look_for_all(weft_comm *comm)
{
    char *const *bases = weft__heap_bases(comm->heap);
    uint64_t *slots = malloc((size_t)comm->num_ranks * sizeof *slots);
    if (slots == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for %d ranks", comm->num_ranks);
    weft_result result = weft__cuda_copy(comm, slots, bases[comm->rank] + SLOTS_OFFSET,
                                         (uint64_t)comm->num_ranks * sizeof *slots);
    for (int32_t rank = 0; result == WEFT_OK && rank < comm->num_ranks; rank++) {
        if (bases[rank] != NULL && slots[rank] != secret_of(comm, rank) + (uint64_t)comm->rank)
            result = weft__error(WEFT_ERROR_UNSUPPORTED,
                                 "what rank %d stored into the memory of rank %d has not come: the "
                                 "driver offers peer access between their GPUs but drops stores",
                                 rank, comm->rank);
    }
    free(slots);
    return result;
}

/* Copies by the copy engine, which needs no SM and is a little faster than those are. */
static CUresult copy_to_peer(const weft_comm *comm, int32_t num_copies)
{
    const struct weft__cuda *cuda = weft__cuda_of(comm);
    char *const *bases = weft__heap_bases(comm->heap);
    const CUdeviceptr from = (CUdeviceptr)(uintptr_t)(bases[comm->rank] + COPY_OFFSET);
    const CUdeviceptr to = (CUdeviceptr)(uintptr_t)(bases[cuda->link_peer] + COPY_OFFSET);
    CUresult result = CUDA_SUCCESS;
    for (int32_t i = 0; i < num_copies && result == CUDA_SUCCESS; i++)
        result = weft__cu.memcpy_async(to, from, COPY_BYTES, cuda->copies);
    return result;
}

static CUresult time_copies(weft_comm *comm, CUevent start, CUevent end)
{
    enum { WARM_UP = 4, COPIES = 32 };
    struct weft__cuda *cuda = weft__cuda_of(comm);
    float elapsed_ms = 0.0f;
    CUresult result = copy_to_peer(comm, WARM_UP);
    if (result == CUDA_SUCCESS)
        result = weft__cu.event_record(start, cuda->copies);
    if (result == CUDA_SUCCESS)
        result = copy_to_peer(comm, COPIES);
    if (result == CUDA_SUCCESS)
        result = weft__cu.event_record(end, cuda->copies);
    if (result == CUDA_SUCCESS)
        result = weft__cu.event_synchronize(end);
    if (result == CUDA_SUCCESS)
        result = weft__cu.event_elapsed_time(&elapsed_ms, start, end);
    if (result == CUDA_SUCCESS && elapsed_ms > 0)
        cuda->link_gbps = (double)COPIES * COPY_BYTES / ((double)elapsed_ms * 1e6);
    return result;
}

/* All at once, each to another rank, so that links are as busy as in an operation. */
static weft_result measure_link(weft_comm *comm)
{
    const struct weft__cuda *cuda = weft__cuda_of(comm);
    CUevent start = NULL, end = NULL;
    if (cuda->link_peer < 0)
        return WEFT_OK;
    WEFT__TRY(weft__cuda_enter(cuda));
    CUresult result = weft__cu.event_create(&start, CU_EVENT_DEFAULT);
    if (result == CUDA_SUCCESS)
        result = weft__cu.event_create(&end, CU_EVENT_DEFAULT);
    if (result == CUDA_SUCCESS)
        result = time_copies(comm, start, end);
    if (start != NULL)
        (void)weft__cu.event_destroy(start);
    if (end != NULL)
        (void)weft__cu.event_destroy(end);
    weft__cuda_leave();
    return result == CUDA_SUCCESS
               ? WEFT_OK
               : weft__cuda_error(result, "cannot copy to the heap of rank %d", cuda->link_peer);
}

weft_result weft__cuda_probe(weft_comm *comm)
{
    WEFT__TRY(weft__comm_agree(comm, store_to_all(comm), "store to the heaps of the others"));
    WEFT__TRY(weft__comm_agree(comm, look_for_all(comm), "be reached by all the others"));
    /* Everybody is done with the heaps when all have agreed. */
    WEFT__TRY(weft__comm_agree(comm, measure_link(comm), "copy to another GPU"));
    weft__log(WEFT__LOG_INFO, comm->rank, "%.0f GB/s to rank %d", weft__cuda_of(comm)->link_gbps,
              weft__cuda_of(comm)->link_peer);
    return WEFT_OK;
}
