/* SPDX-License-Identifier: MIT */
/* Programs whose loops over a row become vectors are compiled for wider ones, too:
 * src/CMakeLists.txt writes the files. The same bits in every instruction set. */
#pragma once

#include "machine/machine.h"

/* Defines a program as its variant for the widest vectors that the processor has. */
#define WEFT__CPU_CHOOSE_VARIANT(name)                                                             \
    enum wp_status weft__cpu_##name##_avx2(struct wp_warp *warp, const void *args);                \
    enum wp_status weft__cpu_##name(struct wp_warp *warp, const void *args);                       \
    enum wp_status weft__cpu_##name(struct wp_warp *warp, const void *args)                        \
    {                                                                                              \
        return weft__cpu_rows_of(WEFT__ROWS_AVX2) != NULL ? weft__cpu_##name##_avx2(warp, args)    \
                                                          : weft__cpu_##name##_base(warp, args);   \
    }
