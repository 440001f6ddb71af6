/* SPDX-License-Identifier: MIT */
/* A stream of the cuda machine, for graphs that are recorded on it. */
#pragma once

#include "machine/cuda/comms.h"
#include "machine/cuda/device.h"

/* It may outlive the communicator that it was made for. */
struct weft__cuda_stream {
    weft_stream base;
    CUdevice device;
    CUcontext context;
    struct weft__cuda_queue queue;
    int is_wrapped;
    struct weft__cuda_comms comms;     /* whose launches the next synchronisation answers for */
    struct weft__cuda_graph *recorded; /* since weft_graph_begin, or NULL */
};

static inline struct weft__cuda_stream *weft__cuda_stream_of(weft_stream *base)
{
    return (struct weft__cuda_stream *)(void *)base;
}

/* Until weft__cuda_leave the calling thread's context is the stream's. */
weft_result weft__cuda_enter_context(CUcontext context);

/* Work on a stream goes into graphs while the stream is under capture. */
struct weft__cuda_capture {
    int is_going_on;
    cuuint64_t
        id; /* of one that has not been invalidated, and of no other in this process; else 0 */
};
struct weft__cuda_capture weft__cuda_capture_of(const struct weft__cuda_stream *stream);
