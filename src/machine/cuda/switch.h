/* SPDX-License-Identifier: MIT */
/* Rows through the switch between GPUs (machine/multicast.h), on sm_90 and later: a load at the
 * address of all parts sums them, a store there goes to all. Never run on hardware so far: see
 * machine/cuda/cuda_multicast.h. */
#pragma once

enum { WEFT__CUDA_SWITCH_BYTES = 16, WEFT__CUDA_SWITCH_UNROLL = 4 };

/* Parts are accessed by two addresses, their own and that of all: what was ordered by way of the
 * one is ordered for the other after this. */
WP_FN void wp_switch_fence(struct wp_warp *warp)
{
    weft__cuda_complete_stores(warp);
    asm volatile("fence.proxy.alias;" ::: "memory");
}

/* Of a dtype that memory/multicast_memory.c gives it. */
WP_FN uint4 weft__cuda_switch_sum(const char *all, weft_dtype dtype)
{
    uint4 sum;
    if (dtype == WEFT_FP32)
        asm volatile("multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(sum.x), "=r"(sum.y), "=r"(sum.z), "=r"(sum.w)
                     : "l"(all)
                     : "memory");
    else if (dtype == WEFT_BF16)
        asm volatile("multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.bf16x2 "
                     "{%0, %1, %2, %3}, [%4];"
                     : "=r"(sum.x), "=r"(sum.y), "=r"(sum.z), "=r"(sum.w)
                     : "l"(all)
                     : "memory");
    else
        asm volatile("multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.f16x2 "
                     "{%0, %1, %2, %3}, [%4];"
                     : "=r"(sum.x), "=r"(sum.y), "=r"(sum.z), "=r"(sum.w)
                     : "l"(all)
                     : "memory");
    return sum;
}

WP_FN void weft__cuda_switch_store(char *all, uint4 value)
{
    asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(all), "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w)
                 : "memory");
}

/* Rows of the user may begin anywhere; num_bytes of 16 are there. */
WP_FN uint4 weft__cuda_switch_load_row(const char *row, uint64_t num_bytes)
{
    uint4 value = make_uint4(0, 0, 0, 0);
    if (num_bytes >= WEFT__CUDA_SWITCH_BYTES && (uintptr_t)row % WEFT__CUDA_SWITCH_BYTES == 0)
        return *(const uint4 *)row;
    for (uint32_t i = 0; i < WEFT__CUDA_SWITCH_BYTES && i < num_bytes; i++)
        ((char *)&value)[i] = row[i];
    return value;
}

WP_FN void weft__cuda_switch_store_row(char *row, uint4 value, uint64_t num_bytes)
{
    if (num_bytes >= WEFT__CUDA_SWITCH_BYTES && (uintptr_t)row % WEFT__CUDA_SWITCH_BYTES == 0) {
        *(uint4 *)row = value;
        return;
    }
    for (uint32_t i = 0; i < WEFT__CUDA_SWITCH_BYTES && i < num_bytes; i++)
        row[i] = ((const char *)&value)[i];
}

/* What wp_multicast_move does where an end is all parts; called behind a fence, and ends with one.
 * Rows of all parts are in slots, whose bytes behind the end nobody reads: they are moved in whole
 * units. */
WP_FN void wp_switch_move(struct wp_warp *warp, char *all, const struct wp_multicast_end *to,
                          const struct wp_multicast_end *from, weft_dtype dtype, uint64_t num_bytes)
{
    enum { UNIT = WEFT__CUDA_SWITCH_BYTES, UNROLL = WEFT__CUDA_SWITCH_UNROLL };
    const uint64_t num_units = (num_bytes + UNIT - 1) / UNIT;
    for (uint64_t first = (uint64_t)wp_lane_idx(warp); first < num_units;
         first += UNROLL * WP_WARP_SIZE) {
        uint4 units[UNROLL];
#pragma unroll
        for (int i = 0; i < UNROLL; i++) {
            const uint64_t at = (first + (uint64_t)i * WP_WARP_SIZE) * UNIT;
            if (at < num_bytes)
                units[i] = from->row == NULL
                               ? weft__cuda_switch_sum(all + from->offset + at, dtype)
                               : weft__cuda_switch_load_row(from->row + at, num_bytes - at);
        }
#pragma unroll
        for (int i = 0; i < UNROLL; i++) {
            const uint64_t at = (first + (uint64_t)i * WP_WARP_SIZE) * UNIT;
            if (at < num_bytes && to->row == NULL)
                weft__cuda_switch_store(all + to->offset + at, units[i]);
            else if (at < num_bytes)
                weft__cuda_switch_store_row(to->row + at, units[i], num_bytes - at);
        }
    }
    wp_switch_fence(warp);
}
