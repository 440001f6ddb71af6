/* SPDX-License-Identifier: MIT */
/* Units of rows on the cuda machine: what a lane loads and stores in one piece, as wide as the
 * rows' alignment allows. Part of primitives.h. */
#pragma once

/* Whether the program says so (machine.h). */
#ifdef WP_ROWS_ARE_ALIGNED
enum { WEFT__CUDA_ROWS_ARE_ALIGNED = 1 };
#else
enum { WEFT__CUDA_ROWS_ARE_ALIGNED = 0 };
#endif

/* A unit of two bytes is the low half of its word. */
template <int BYTES> struct weft__cuda_unit {
    uint32_t words[BYTES < 4 ? 1 : BYTES / 4];
};

/* Rows are read once and written once: they need no place in L1. */
WP_FN void weft__cuda_load_unit(weft__cuda_unit<16> *unit, const void *row, uint32_t i)
{
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(unit->words[0]), "=r"(unit->words[1]), "=r"(unit->words[2]),
                   "=r"(unit->words[3])
                 : "l"((const uint4 *)row + i));
}
WP_FN void weft__cuda_load_unit(weft__cuda_unit<8> *unit, const void *row, uint32_t i)
{
    asm volatile("ld.global.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
                 : "=r"(unit->words[0]), "=r"(unit->words[1])
                 : "l"((const uint2 *)row + i));
}
WP_FN void weft__cuda_load_unit(weft__cuda_unit<4> *unit, const void *row, uint32_t i)
{
    asm volatile("ld.global.L1::no_allocate.u32 %0, [%1];"
                 : "=r"(unit->words[0])
                 : "l"((const uint32_t *)row + i));
}
WP_FN void weft__cuda_load_unit(weft__cuda_unit<2> *unit, const void *row, uint32_t i)
{
    uint16_t half;
    asm volatile("ld.global.L1::no_allocate.u16 %0, [%1];"
                 : "=h"(half)
                 : "l"((const uint16_t *)row + i));
    unit->words[0] = half;
}

/* Some programs make rows in memory of the block, too. */
#ifdef WP_ROWS_ARE_MADE_NEAR
#define WEFT__CUDA_STORE "st"
#else
#define WEFT__CUDA_STORE "st.global.L1::no_allocate"
#endif

WP_FN void weft__cuda_store_unit(void *row, uint32_t i, weft__cuda_unit<16> unit)
{
    asm volatile(WEFT__CUDA_STORE ".v4.u32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"((uint4 *)row + i), "r"(unit.words[0]), "r"(unit.words[1]),
                   "r"(unit.words[2]), "r"(unit.words[3])
                 : "memory");
}
WP_FN void weft__cuda_store_unit(void *row, uint32_t i, weft__cuda_unit<8> unit)
{
    asm volatile(WEFT__CUDA_STORE ".v2.u32 [%0], {%1, %2};"
                 :
                 : "l"((uint2 *)row + i), "r"(unit.words[0]), "r"(unit.words[1])
                 : "memory");
}
WP_FN void weft__cuda_store_unit(void *row, uint32_t i, weft__cuda_unit<4> unit)
{
    asm volatile(WEFT__CUDA_STORE ".u32 [%0], %1;"
                 :
                 : "l"((uint32_t *)row + i), "r"(unit.words[0])
                 : "memory");
}
WP_FN void weft__cuda_store_unit(void *row, uint32_t i, weft__cuda_unit<2> unit)
{
    asm volatile(WEFT__CUDA_STORE ".u16 [%0], %1;"
                 :
                 : "l"((uint16_t *)row + i), "h"((uint16_t)unit.words[0])
                 : "memory");
}

/* A unit of 4, 8 or 16 bytes as a chunk of 16, of which the rest is zero. Instructions without
 * branches, so that the loads of several rows are under way together. */
WP_FN int4 weft__cuda_load_any(const void *row, uint32_t i, uint32_t unit_bytes)
{
    int4 v = make_int4(0, 0, 0, 0);
    asm volatile("{\n .reg .pred is_16, is_8, is_4;\n"
                 " setp.eq.u32 is_16, %5, 16;\n"
                 " setp.eq.u32 is_8, %5, 8;\n"
                 " setp.eq.u32 is_4, %5, 4;\n"
                 " @is_16 ld.global.L1::no_allocate.v4.s32 {%0, %1, %2, %3}, [%4];\n"
                 " @is_8 ld.global.L1::no_allocate.v2.s32 {%0, %1}, [%4];\n"
                 " @is_4 ld.global.L1::no_allocate.s32 %0, [%4];\n}"
                 : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
                 : "l"((const char *)row + (uint64_t)i * unit_bytes), "r"(unit_bytes));
    return v;
}

WP_FN void weft__cuda_store_any(void *row, uint32_t i, uint32_t unit_bytes, int4 v)
{
    const weft__cuda_unit<16> unit = {{(uint32_t)v.x, (uint32_t)v.y, (uint32_t)v.z, (uint32_t)v.w}};
    if (unit_bytes == 16)
        weft__cuda_store_unit(row, i, unit);
    else if (unit_bytes == 8)
        weft__cuda_store_unit(row, i, weft__cuda_unit<8>{{unit.words[0], unit.words[1]}});
    else
        weft__cuda_store_unit(row, i, weft__cuda_unit<4>{{unit.words[0]}});
}

/* The lane's part of what weft__cuda_unit_bytes asks of many addresses. */
WP_FN uint32_t weft__cuda_low_bits(uint32_t lane_idx, const void *const *ptrs, int32_t num_ptrs)
{
    uint32_t bits = 0;
#pragma unroll 1
    for (int32_t i = (int32_t)lane_idx; i < num_ptrs && !WEFT__CUDA_ROWS_ARE_ALIGNED;
         i += WP_WARP_SIZE)
        bits |= (uint32_t)(uint64_t)ptrs[i];
    return bits;
}

/* The widest unit that all addresses are multiples of, 16 bytes at most, from the low bits that
 * each lane has seen. Null pointers do not count. All lanes call. */
WP_FN uint32_t weft__cuda_unit_bytes(uint32_t low_bits)
{
    if (WEFT__CUDA_ROWS_ARE_ALIGNED)
        return 16;
    const uint32_t bits = __reduce_or_sync(0xffffffffu, low_bits | 16u);
    return bits & (0u - bits);
}
