/* SPDX-License-Identifier: MIT */
/* Rows with scales: asynchronous as all row operations, in groups that the lanes take turns in. */
#include "machine/cpu/cpu_rows.h"
#include "machine/sim/sim_launch.h"

void weft__sim_row_quantise(struct wp_warp *warp, struct wp_quantised_rows to, const void *src,
                            struct wp_quantisation how, int64_t num_elements,
                            struct weft__sim_place place)
{
    const void *code = __builtin_return_address(0);
    const int64_t group = how.group_elements;
    const uint64_t group_bytes = (uint64_t)group * wp_dtype_bytes(how.src_dtype);
    sim_trace("quantise", place, src, (uint64_t)num_elements);
    sim_check_access(to.dsts, (size_t)to.num_dsts * sizeof *to.dsts, SIM_READ, code);
    sim_check_access(to.scales, (size_t)to.num_dsts * sizeof *to.scales, SIM_READ, code);
    for (int64_t i = (int64_t)sim_row_turn(warp); i < num_elements / group; i += WP_WARP_SIZE) {
        const void *dsts[WP_WARP_POINTERS];
        struct wp_quantised_rows of_group = to;
        const char *from = (const char *)src + (uint64_t)i * group_bytes;
        of_group.dsts = dsts;
        of_group.scales_offset += wp_scale_offset(how, i);
        sim_check_access(from, group_bytes, SIM_ROW_READ, code);
        for (int32_t d = 0; d < to.num_dsts; d++) {
            char *dst = (char *)(uintptr_t)to.dsts[d];
            char *scales = (char *)(uintptr_t)to.scales[d];
            dsts[d] = dst == NULL ? NULL : dst + i * group;
            if (dst == NULL)
                continue;
            sim_row_write(dst + i * group, (uint64_t)group, code);
            sim_row_write(scales + of_group.scales_offset, wp_scale_bytes(how.scale), code);
        }
        weft__cpu_rows_of(WEFT__ROWS_BASE)->quantise(of_group, from, how, group);
    }
    sim_current()->num_row_operations++;
    sim_yield();
}

void weft__sim_row_dequantise(struct wp_warp *warp, void *dst, const void *src, const void *scales,
                              struct wp_quantisation how, int64_t num_elements,
                              struct weft__sim_place place)
{
    const void *code = __builtin_return_address(0);
    const int64_t group = how.group_elements;
    const uint64_t group_bytes = (uint64_t)group * wp_dtype_bytes(how.dst_dtype);
    sim_trace("dequantise", place, dst, (uint64_t)num_elements);
    for (int64_t i = (int64_t)sim_row_turn(warp); i < num_elements / group; i += WP_WARP_SIZE) {
        char *to = (char *)dst + (uint64_t)i * group_bytes;
        const char *from = (const char *)src + i * group;
        const char *scale = (const char *)scales + wp_scale_offset(how, i);
        sim_check_access(from, (uint64_t)group, SIM_ROW_READ, code);
        sim_check_access(scale, wp_scale_bytes(how.scale), SIM_ROW_READ, code);
        sim_row_write(to, group_bytes, code);
        weft__cpu_rows_of(WEFT__ROWS_BASE)->dequantise(to, from, scale, how, group);
    }
    sim_current()->num_row_operations++;
    sim_yield();
}
