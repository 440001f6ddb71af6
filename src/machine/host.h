/* SPDX-License-Identifier: MIT */
/* The machine as the host sees it: launches of programs on streams. */
#ifndef WEFT_MACHINE_HOST_H
#define WEFT_MACHINE_HOST_H

#include "comm/comm.h"
#include "machine/machine.h"

typedef enum weft_status weft__program_fn(struct weft_warp *warp, const void *args);

struct weft__program {
    const char *name;
    weft__program_fn *run;
};

enum { WEFT__MAX_WARPS = 32 }; /* per block */

struct weft__launch {
    const struct weft__program *program;
    const void *args; /* copied */
    size_t args_bytes;
    int32_t num_blocks;
    int32_t num_warps;
    weft_comm *comm;
    /* Called by the stream after a launch that failed: makes it the communicator's failure. */
    weft_result (*on_failure)(weft_comm *comm, const struct weft__program *program,
                              const struct weft_failure *failure);
};

/* Enqueues a launch; it is skipped if the communicator has failed by then. */
weft_result weft__stream_launch(weft_stream *stream, const struct weft__launch *launch);

#endif
