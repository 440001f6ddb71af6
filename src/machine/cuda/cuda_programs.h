/* SPDX-License-Identifier: MIT */
/* The compiled programs inside the library: cmake/cuda.cmake makes the lists and the bytes. */
#pragma once

#include <stdint.h>

enum { WEFT__CUDA_MAX_PROGRAMS = 128 }; /* the list that cmake makes says if there are more */

/* An image that the driver loads: the kernels of one program or of many, for all GPUs. */
struct weft__cuda_module {
    const char *name;
    const void *fatbin;
};

struct weft__cuda_program {
    const char *name;
    const char *symbol; /* of its kernel */
    int32_t module_idx; /* where that is */
};

/* The compute capabilities of their code, 90 for 9.0. The last also has PTX, and 0 follows. */
extern const int32_t weft__cuda_gpus[];

/* Which of them a GPU of that capability runs; 0: none. */
int32_t weft__cuda_code_for(const int32_t *gpus, int32_t capability);

extern const struct weft__cuda_module weft__cuda_modules[];
extern const struct weft__cuda_program weft__cuda_programs[]; /* the last has no name */
