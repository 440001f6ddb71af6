/* SPDX-License-Identifier: MIT */
/*
 * CUDA streams that weft makes. A GPU has few hardware queues. CUDA gives a stream one of them with
 * the stream's first work. Work of a stream waits for the kernels of other streams in the same
 * queue, and these kernels may wait for that work.
 *
 * Streams that get their first work from several threads at the same moment get the same queue,
 * however many queues there are. Measured on H200 (driver 580.159) with 4 threads and 8 or 32
 * queues: 21 of 21 trials hang; 0 of 300 hang if first launches come one after another. So weft
 * gives streams their first work one after another, also streams of the caller.
 *
 * Weft makes few streams: two for each device for the host's own work, and those of users. A stream
 * that a user has destroyed is used again.
 */
#pragma once

#include "machine/cuda/driver.h"

/* The first work on a stream comes between the two calls. */
void weft__cuda_first_work_begin(void);
void weft__cuda_first_work_end(void);

/* Takes a stream for a user. Called in the context of the device, as the next two. */
weft_result weft__cuda_take_stream(CUcontext context, CUstream *stream);
/* All work of the stream must have ended. */
void weft__cuda_give_stream(CUcontext context, CUstream stream);
/* Makes a stream for work that waits for no other rank. It has the highest priority, so that it
 * need not share a queue with streams of users. */
weft_result weft__cuda_make_host_stream(CUstream *stream);
