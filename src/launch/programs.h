/* SPDX-License-Identifier: MIT */
/* The warp programs as the host launches them. */
#pragma once

#include "machine/host.h"
#include "programs/list.h"

/* Enqueues a program over its arguments; a failure becomes the communicator's. */
weft_result weft__program_launch(weft_comm *comm, weft_stream *stream, enum wp_program program,
                                 struct weft__grid grid, const void *args, size_t args_bytes);

/* The communicator's failure in words; returns its result. For launches. */
weft_result weft__program_failed(weft_comm *comm, enum weft__call call,
                                 const struct wp_failure *failure);
