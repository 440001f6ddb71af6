/* SPDX-License-Identifier: MIT */
#include "machine/cuda/probe.h"

#include <stdlib.h>

#include "comm/host/thread.h"
#include "machine/cuda/device.h"

enum { SLOTS_OFFSET = 4096 }; /* nothing has been allocated in the heap yet */

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
    const struct wp_probe_args args = {comm->rank,
                                       comm->num_ranks,
                                       heap_bases,
                                       SLOTS_OFFSET,
                                       secret_of(comm, comm->rank),
                                       &cuda->board->clock_ns};
    const struct weft__launch launch = {.program = &probe_program,
                                        .args = &args,
                                        .args_bytes = sizeof args,
                                        .grid = {.num_blocks = 1, .num_warps = 1},
                                        .comm = comm};
    struct weft__cuda_queue queue = {.stream = cuda->copies};
    const int64_t before_ns = weft__now_ns();
    weft_result result = weft__cuda_launch_on(&queue, &launch);
    if (result == WEFT_OK && weft__cu.stream_synchronize(cuda->copies) != CUDA_SUCCESS)
        result = weft__error(WEFT_ERROR_SYSTEM, "rank %d cannot store to the heaps of the others",
                             comm->rank);
    cuda->clock_offset_ns =
        before_ns + (weft__now_ns() - before_ns) / 2 - (int64_t)cuda->board->clock_ns;
    weft__cuda_free(comm, heap_bases);
    return result;
}

static weft_result look_for_all(weft_comm *comm)
{
    char *const *bases = weft__heap_bases(comm->heap);
    uint64_t *slots = malloc((size_t)comm->num_ranks * sizeof *slots);
    WEFT__CHECK_MEMORY(slots, "no memory for %d ranks", comm->num_ranks);
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

weft_result weft__cuda_probe(weft_comm *comm)
{
    WEFT__TRY(weft__comm_agree(comm, store_to_all(comm), "store to the heaps of the others"));
    return weft__comm_agree(comm, look_for_all(comm), "be reached by all the others");
}
