/* SPDX-License-Identifier: MIT */
/* Rows of WEFT_LOG_10BIT: asynchronous as all row operations, in blocks that the lanes take turns
 * in. */
#include "machine/cpu/cpu_rows.h"
#include "machine/sim/sim_launch.h"

/* A part of a row that one lane does. */
struct block {
    int64_t num_elements;
    uint64_t log_offset, log_bytes;
    uint64_t wide_offset, wide_bytes;
};

static struct block block_at(int64_t idx, int64_t num_elements, weft_dtype wide)
{
    const int64_t first = idx * WP_LOG_BLOCK_ELEMENTS, rest = num_elements - first;
    const int64_t n = rest < WP_LOG_BLOCK_ELEMENTS ? rest : WP_LOG_BLOCK_ELEMENTS;
    return (struct block){n, wp_log_row_bytes(first), wp_log_row_bytes(n),
                          (uint64_t)first * wp_dtype_bytes(wide),
                          (uint64_t)n * wp_dtype_bytes(wide)};
}

static int64_t num_blocks_of(int64_t num_elements)
{
    return (num_elements + WP_LOG_BLOCK_ELEMENTS - 1) / WP_LOG_BLOCK_ELEMENTS;
}

static void begin_writing(char *to, uint64_t num_bytes, const void *code)
{
    sim_check_access(to, num_bytes, SIM_ROW_WRITE, code);
    sim_store_begin(to, num_bytes, SIM_ROW_STORE);
}

/* What the sources of a sum have for a block; those that are read. */
static void find_sources(const void **from, const void *const *srcs, int32_t num_srcs,
                         struct wp_mixed_sum sum, int64_t idx, int64_t num_elements,
                         const void *code)
{
    const struct block first = block_at(idx, num_elements, sum.first_dtype);
    for (int32_t s = 0; s < num_srcs; s++) {
        const int is_first = s < sum.num_first;
        const uint64_t offset = is_first ? first.wide_offset : first.log_offset;
        from[s] = srcs[s] == NULL ? NULL : (const char *)srcs[s] + offset;
        if (srcs[s] != NULL)
            sim_check_access(from[s], is_first ? first.wide_bytes : first.log_bytes, SIM_ROW_READ,
                             code);
    }
}

/* As what sums several rows has them. */
static void check_lists(const void *const *srcs, const float *weights, int32_t num_srcs,
                        const void *code)
{
    sim_check_access(srcs, (size_t)num_srcs * sizeof *srcs, SIM_READ, code);
    if (weights != NULL)
        sim_check_access(weights, (size_t)num_srcs * sizeof *weights, SIM_READ, code);
}

void weft__sim_row_log_encode(struct wp_warp *warp, void *dst, const void *const *srcs,
                              const float *weights, int32_t num_srcs, weft_dtype src_dtype,
                              int64_t num_elements, struct weft__sim_place place)
{
    const struct wp_mixed_sum wide = {num_srcs, src_dtype, src_dtype, src_dtype, WP_READ_SOON};
    const void *code = __builtin_return_address(0);
    sim_trace("encode", place, dst, (uint64_t)num_elements);
    check_lists(srcs, weights, num_srcs, code);
    for (int64_t i = (int64_t)sim_row_turn(warp); i < num_blocks_of(num_elements);
         i += WP_WARP_SIZE) {
        const void *from[WP_WARP_POINTERS];
        const struct block block = block_at(i, num_elements, src_dtype);
        char *to = (char *)dst + block.log_offset;
        find_sources(from, srcs, num_srcs, wide, i, num_elements, code);
        begin_writing(to, block.log_bytes, code);
        weft__cpu_rows_of(WEFT__ROWS_BASE)
            ->log_encode(to, from, weights, num_srcs, src_dtype, block.num_elements);
    }
    sim_current()->num_row_operations++;
    sim_yield();
}

static void sum_logs(struct wp_warp *warp, void *dst, const void *const *srcs, const float *weights,
                     int32_t num_srcs, struct wp_mixed_sum sum, int64_t num_elements,
                     const void *code)
{
    check_lists(srcs, weights, num_srcs, code);
    for (int64_t i = (int64_t)sim_row_turn(warp); i < num_blocks_of(num_elements);
         i += WP_WARP_SIZE) {
        const void *from[WP_WARP_POINTERS];
        const struct block block = block_at(i, num_elements, sum.dst_dtype);
        char *to = (char *)dst + block.wide_offset;
        find_sources(from, srcs, num_srcs, sum, i, num_elements, code);
        begin_writing(to, block.wide_bytes, code);
        weft__cpu_rows_of(WEFT__ROWS_BASE)
            ->log_sum(to, from, weights, num_srcs, sum, block.num_elements);
    }
    sim_current()->num_row_operations++;
    sim_yield();
}

void weft__sim_row_log_sum(struct wp_warp *warp, void *dst, const void *const *srcs,
                           const float *weights, int32_t num_srcs, weft_dtype dst_dtype,
                           int64_t num_elements, struct weft__sim_place place)
{
    const struct wp_mixed_sum sum = {0, dst_dtype, WEFT_LOG_10BIT, dst_dtype, WP_READ_LATER};
    sim_trace("reduce", place, dst, (uint64_t)num_elements);
    sum_logs(warp, dst, srcs, weights, num_srcs, sum, num_elements, __builtin_return_address(0));
}

void weft__sim_row_log_sum_mixed(struct wp_warp *warp, void *dst, const void *const *srcs,
                                 int32_t num_srcs, struct wp_mixed_sum sum, int64_t num_elements,
                                 struct weft__sim_place place)
{
    sim_trace("reduce", place, dst, (uint64_t)num_elements);
    sum_logs(warp, dst, srcs, NULL, num_srcs, sum, num_elements, __builtin_return_address(0));
}
