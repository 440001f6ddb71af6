/* SPDX-License-Identifier: MIT */
/*
 * What CUDA takes back only when all kernels of the context have ended; until then it lets no other
 * thread into the driver. Such a kernel may wait for the rank that gives something back, or for
 * another rank of this process, which then cannot launch. So what nobody needs any more is kept for
 * the next who needs its like, and given back when the process has no communicator any more.
 */
#pragma once

#include <stdint.h>

#include "machine/cuda/driver.h"

/* Gives something back; what is given back alike is of one kind. Called in its context. */
typedef void weft__cuda_give_back(void *kept, uint64_t bytes);

/* Between the two the process has a communicator. */
void weft__cuda_kept_begin(void);
void weft__cuda_kept_end(void);

void weft__cuda_keep(weft__cuda_give_back *kind, CUcontext context, void *kept, uint64_t bytes);
/* NULL: there is none of that kind, of so many bytes. */
void *weft__cuda_take_kept(weft__cuda_give_back *kind, CUcontext context, uint64_t least_bytes,
                           uint64_t most_bytes);
