/* SPDX-License-Identifier: MIT */
/* Units of rows on the cuda machine: what a lane loads and stores in one piece, as wide as the
 * rows' alignment allows. Part of primitives.h. */
#ifndef WEFT_MACHINE_CUDA_UNITS_H
#define WEFT_MACHINE_CUDA_UNITS_H

/* A unit of two bytes is the low half of its word. */
template <int BYTES> struct weft__cuda_unit {
    uint32_t words[BYTES < 4 ? 1 : BYTES / 4];
};

/* Rows are read once and written once: they need no place in L1. */
WEFT_FN void weft__cuda_load_unit(weft__cuda_unit<16> *unit, const void *row, uint32_t i)
{
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(unit->words[0]), "=r"(unit->words[1]), "=r"(unit->words[2]),
                   "=r"(unit->words[3])
                 : "l"((const uint4 *)row + i));
}
WEFT_FN void weft__cuda_load_unit(weft__cuda_unit<8> *unit, const void *row, uint32_t i)
{
    asm volatile("ld.global.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
                 : "=r"(unit->words[0]), "=r"(unit->words[1])
                 : "l"((const uint2 *)row + i));
}
WEFT_FN void weft__cuda_load_unit(weft__cuda_unit<4> *unit, const void *row, uint32_t i)
{
    asm volatile("ld.global.L1::no_allocate.u32 %0, [%1];"
                 : "=r"(unit->words[0])
                 : "l"((const uint32_t *)row + i));
}
WEFT_FN void weft__cuda_load_unit(weft__cuda_unit<2> *unit, const void *row, uint32_t i)
{
    uint16_t half;
    asm volatile("ld.global.L1::no_allocate.u16 %0, [%1];"
                 : "=h"(half)
                 : "l"((const uint16_t *)row + i));
    unit->words[0] = half;
}

WEFT_FN void weft__cuda_store_unit(void *row, uint32_t i, weft__cuda_unit<16> unit)
{
    asm volatile("st.global.L1::no_allocate.v4.u32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"((uint4 *)row + i), "r"(unit.words[0]), "r"(unit.words[1]),
                   "r"(unit.words[2]), "r"(unit.words[3])
                 : "memory");
}
WEFT_FN void weft__cuda_store_unit(void *row, uint32_t i, weft__cuda_unit<8> unit)
{
    asm volatile("st.global.L1::no_allocate.v2.u32 [%0], {%1, %2};"
                 :
                 : "l"((uint2 *)row + i), "r"(unit.words[0]), "r"(unit.words[1])
                 : "memory");
}
WEFT_FN void weft__cuda_store_unit(void *row, uint32_t i, weft__cuda_unit<4> unit)
{
    asm volatile("st.global.L1::no_allocate.u32 [%0], %1;"
                 :
                 : "l"((uint32_t *)row + i), "r"(unit.words[0])
                 : "memory");
}
WEFT_FN void weft__cuda_store_unit(void *row, uint32_t i, weft__cuda_unit<2> unit)
{
    asm volatile("st.global.L1::no_allocate.u16 [%0], %1;"
                 :
                 : "l"((uint16_t *)row + i), "h"((uint16_t)unit.words[0])
                 : "memory");
}

/* The widest unit that all addresses are multiples of, 16 bytes at most. Null pointers do not
 * count. */
WEFT_FN uint32_t weft__cuda_unit_bytes(const void *const *ptrs, int32_t num_ptrs, const void *other)
{
    uint32_t bits = (uint32_t)(uint64_t)other | 16u;
#pragma unroll 1
    for (int32_t i = 0; i < num_ptrs; i++)
        bits |= (uint32_t)(uint64_t)ptrs[i];
    return bits & (0u - bits);
}

#endif
