/* SPDX-License-Identifier: MIT */
/* 16-byte units of rows, and where they are. */
#pragma once

#include "kernels.h"

enum { LANES = 32 };

/* Every byte is used once: it need not stay in L1. */
static __device__ __forceinline__ int4 load_unit(const char *address)
{
    int4 unit;
    asm volatile("ld.global.L1::no_allocate.v4.s32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(unit.x), "=r"(unit.y), "=r"(unit.z), "=r"(unit.w)
                 : "l"(address));
    return unit;
}

static __device__ __forceinline__ void store_unit(char *address, int4 unit)
{
    asm volatile("st.global.L1::no_allocate.v4.s32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(address), "r"(unit.x), "r"(unit.y), "r"(unit.z), "r"(unit.w)
                 : "memory");
}

/* The planes of a row count as one row of units, one plane behind the other. */
static __device__ __forceinline__ int units_per_row(const token_rows &rows)
{
    int row_bytes = 0;
    for (int plane = 0; plane < rows.num_planes; plane++)
        row_bytes += rows.planes[plane].row_bytes;
    return row_bytes / UNIT_BYTES;
}
