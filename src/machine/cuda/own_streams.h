/* SPDX-License-Identifier: MIT */
/*
 * CUDA's streams that weft makes. A GPU has few hardware queues, of which CUDA gives a stream one with
 * its first work. What is in one stream of a queue waits for the kernels of the others there, which
 * may wait for it.
 *
 * Streams that get their first work from several threads at the same moment get the same queue,
 * however many there are. Measured on H200 (2026-11-28, driver 580.159), 4 threads, 8 queues or 32:
 * 21 of 21 trials hang; none of 300 where first launches come one after another. So they do here,
 * also on streams of the caller's.
 *
 * And there are few streams: the host's own work has two for each device, and streams that users
 * have destroyed are used again.
 */
#pragma once

#include "machine/cuda/driver.h"

/* Around the first work on a stream. */
void weft__cuda_first_work_begin(void);
void weft__cuda_first_work_end(void);

/* All in the context of the stream's device. For users: */
weft_result weft__cuda_take_stream(CUcontext context, CUstream *stream);
/* All its work has ended. */
void weft__cuda_give_stream(CUcontext context, CUstream stream);
/* For work that waits for no other rank: of the highest priority, so that it need not share a queue
 * with streams of users. */
weft_result weft__cuda_make_host_stream(CUstream *stream);
