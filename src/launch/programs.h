/* SPDX-License-Identifier: MIT */
/* The warp programs as the host launches them. */
#pragma once

#include "machine/host.h"
#include "programs/list.h"

/* A program over its arguments, which are copied. */
struct weft__program_run {
    enum wp_program program;
    struct weft__grid grid;
    const void *args;
    size_t args_bytes;
    int32_t exchange;       /* its number; 0: none */
    uint64_t *num_meetings; /* [WEFT__NUM_MEETINGS] launched there so far; NULL: it is none */
};

/* Enqueues a program, with a record; a failure becomes the communicator's. */
weft_result weft__program_launch(weft_comm *comm, weft_stream *stream,
                                 const struct weft__program_run *run);

/* The communicator's failure in words; returns its result. For launches. */
weft_result weft__program_failed(weft_comm *comm, enum weft__call call,
                                 const struct wp_failure *failure);
