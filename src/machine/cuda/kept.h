/* SPDX-License-Identifier: MIT */
/*
 * Keeps resources that CUDA takes back only when all kernels of the context have ended. Until then
 * CUDA lets no other thread into the driver. One of these kernels may wait for the rank that gives
 * the resource back, or for another rank of this process, which then cannot launch. So a resource
 * that is no longer needed is kept for the next user of its kind. It is given back when the process
 * has no communicator left.
 */
#pragma once

#include <stdint.h>

#include "machine/cuda/driver.h"

/* Gives a resource back, in its context. Resources with the same function are of one kind. */
typedef void weft__cuda_give_back(void *kept, uint64_t bytes);

/* A communicator of the process exists between the two calls. */
void weft__cuda_kept_begin(void);
void weft__cuda_kept_end(void);

void weft__cuda_keep(weft__cuda_give_back *kind, CUcontext context, void *kept, uint64_t bytes);
/* NULL: none of that kind and size is kept. */
void *weft__cuda_take_kept(weft__cuda_give_back *kind, CUcontext context, uint64_t least_bytes,
                           uint64_t most_bytes);
