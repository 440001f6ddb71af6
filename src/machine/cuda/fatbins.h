/* SPDX-License-Identifier: MIT */
/* The compiled programs inside the library: cmake/cuda.cmake makes the list and the bytes. */
#pragma once

struct weft__cuda_fatbin {
    const char *program;
    const char *symbol; /* of its kernel */
    const void *bytes;
};

extern const struct weft__cuda_fatbin weft__cuda_fatbins[]; /* the last has no program */
