/* SPDX-License-Identifier: MIT */
/*
 * The network's access to the heap, for the progress thread. Kernels may wait for the very word
 * that comes, so nothing here waits for kernels: all is done on a stream that all networks of the
 * device share, and only that stream is synchronised. It has the highest priority, and so shares no
 * hardware queue with the user's streams, behind whose kernels it would wait.
 */
#include "machine/cuda/network_heap.h"

#include <stdio.h>
#include <string.h>

#include "machine/cuda/network_add.h"

enum {
    PIECE_BYTES = 512 << 10, /* as the longest messages, UCX's before 1.16 */
    PINNED_BYTES = PIECE_BYTES + sizeof(uint64_t)
};

static const struct weft__program network_add_program = {.name = "network_add"};

/* ---------------------------------------------------------------- the GPU */

/* Until leave. What this thread does goes into no graph, whatever others capture. */
static weft_result enter(const struct weft__cuda_network_heap *heap, CUstreamCaptureMode *mode)
{
    *mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    WEFT__TRY(weft__cuda_enter(weft__cuda_of(heap->comm)));
    (void)weft__cu.thread_exchange_stream_capture_mode(mode);
    return WEFT_OK;
}

/* This rank's failure, whoever waits for it: told before the network tells its own. */
static weft_result leave(const struct weft__cuda_network_heap *heap, CUstreamCaptureMode *mode,
                         weft_result result)
{
    weft_comm *comm = heap->comm;
    char message[512];
    (void)weft__cu.thread_exchange_stream_capture_mode(mode);
    weft__cuda_leave();
    if (result == WEFT_OK)
        return WEFT_OK;
    snprintf(message, sizeof message, "%s", weft__last_error());
    weft__status_fail(&comm->status, result, comm->rank, "rank %d: %s", comm->rank, message);
    weft__comm_tell_failure(comm);
    return weft__error(result, "%s", message);
}

static weft_result finish(const struct weft__cuda_network_heap *heap, CUresult enqueued)
{
    const CUresult result =
        enqueued == CUDA_SUCCESS ? weft__cu.stream_synchronize(heap->queue.stream) : enqueued;
    return result == CUDA_SUCCESS ? WEFT_OK
                                  : weft__cuda_error(result, "the network cannot access the heap");
}

static weft_result copy_piece(const struct weft__cuda_network_heap *heap, void *dst,
                              const void *src, size_t num_bytes)
{
    return finish(heap,
                  weft__cu.memcpy_async((CUdeviceptr)(uintptr_t)dst, (CUdeviceptr)(uintptr_t)src,
                                        num_bytes, heap->queue.stream));
}

/* ---------------------------------------------------------------- the accessor */

static size_t piece_bytes(size_t num_left)
{
    return num_left < PIECE_BYTES ? num_left : PIECE_BYTES;
}

static weft_result read_heap(void *context, void *bytes, uint64_t offset, size_t num_bytes)
{
    const struct weft__cuda_network_heap *heap = context;
    CUstreamCaptureMode mode;
    WEFT__TRY(enter(heap, &mode));
    weft_result result = WEFT_OK;
    for (size_t begin = 0; begin < num_bytes && result == WEFT_OK; begin += PIECE_BYTES) {
        const size_t piece = piece_bytes(num_bytes - begin);
        result = copy_piece(heap, heap->piece, heap->base + offset + begin, piece);
        if (result == WEFT_OK)
            memcpy((char *)bytes + begin, heap->piece, piece);
    }
    return leave(heap, &mode, result);
}

static weft_result write_heap(void *context, uint64_t offset, const void *bytes, size_t num_bytes)
{
    const struct weft__cuda_network_heap *heap = context;
    CUstreamCaptureMode mode;
    WEFT__TRY(enter(heap, &mode));
    weft_result result = WEFT_OK;
    for (size_t begin = 0; begin < num_bytes && result == WEFT_OK; begin += PIECE_BYTES) {
        const size_t piece = piece_bytes(num_bytes - begin);
        memcpy(heap->piece, (const char *)bytes + begin, piece);
        result = copy_piece(heap, heap->base + offset + begin, heap->piece, piece);
    }
    return leave(heap, &mode, result);
}

/* Behind the copies before it, which are done. */
static weft_result add_to_heap(void *context, uint64_t offset, uint64_t add, uint64_t *before)
{
    struct weft__cuda_network_heap *heap = context;
    const struct wp_network_add_args args = {
        .word = (uint64_t *)(void *)(heap->base + offset), .add = add, .before = heap->before};
    const struct weft__launch launch = {.program = &network_add_program,
                                        .args = &args,
                                        .args_bytes = sizeof args,
                                        .grid = {.num_blocks = 1, .num_warps = 1},
                                        .comm = heap->comm};
    CUstreamCaptureMode mode;
    WEFT__TRY(enter(heap, &mode));
    weft_result result = weft__cuda_launch_on(&heap->queue, &launch);
    if (result == WEFT_OK)
        result = finish(heap, CUDA_SUCCESS);
    if (result == WEFT_OK)
        *before = *heap->before;
    return leave(heap, &mode, result);
}

struct weft__net_accessor weft__cuda_network_heap_accessor(struct weft__cuda_network_heap *heap)
{
    return (struct weft__net_accessor){heap, read_heap, write_heap, add_to_heap};
}

/* ---------------------------------------------------------------- life */

static weft_result allocate(struct weft__cuda_network_heap *heap)
{
    void *pinned;
    WEFT__TRY(weft__cuda_pinned_alloc(weft__cuda_of(heap->comm), PINNED_BYTES, &pinned));
    heap->piece = pinned;
    heap->before = (uint64_t *)(void *)(heap->piece + PIECE_BYTES);
    return WEFT_OK;
}

/* CUDA sets things up at the first use, which must not happen while kernels wait. Nobody else uses
 * the heap's header. */
static weft_result warm_up(struct weft__cuda_network_heap *heap)
{
    uint64_t word = 0, before;
    WEFT__TRY(read_heap(heap, &word, 0, sizeof word));
    WEFT__TRY(write_heap(heap, 0, &word, sizeof word));
    return add_to_heap(heap, 0, 0, &before);
}

weft_result weft__cuda_network_heap_open(weft_comm *comm, struct weft__cuda_network_heap *heap)
{
    heap->comm = comm;
    heap->base = weft__heap_bases(comm->heap)[comm->rank];
    heap->queue.stream = weft__cuda_held(weft__cuda_of(comm)->ordinal)->network;
    WEFT__TRY(allocate(heap));
    return warm_up(heap);
}

void weft__cuda_network_heap_close(struct weft__cuda_network_heap *heap)
{
    if (heap->piece != NULL)
        weft__cuda_pinned_free(weft__cuda_of(heap->comm), heap->piece, PINNED_BYTES);
}
