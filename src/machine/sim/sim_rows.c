/* SPDX-License-Identifier: MIT */
/* Row operations: asynchronous, in chunks that the lanes take turns in. */
#include <string.h>

#include "machine/cpu/cpu_rows.h"
#include "machine/sim/sim_launch.h"

#define ROW_CHUNK_BYTES ((uint64_t)16)

static size_t chunk_bytes(uint64_t row_bytes, uint64_t offset)
{
    const uint64_t num_left = row_bytes - offset;
    return num_left < ROW_CHUNK_BYTES ? num_left : ROW_CHUNK_BYTES;
}

/* The end of each row is a point at which others may go on. */
static void copy_row(struct wp_warp *warp, char *dst, const char *src, uint64_t row_bytes,
                     const void *code)
{
    for (uint64_t i = sim_row_turn(warp) * ROW_CHUNK_BYTES; i < row_bytes;
         i += WP_WARP_SIZE * ROW_CHUNK_BYTES) {
        const size_t n = chunk_bytes(row_bytes, i);
        if (src != NULL)
            sim_check_access(src + i, n, SIM_ROW_READ, code);
        sim_check_access(dst + i, n, SIM_ROW_WRITE, code);
        sim_store_begin(dst + i, n, SIM_ROW_STORE);
        if (src != NULL)
            memcpy(dst + i, src + i, n);
        else
            memset(dst + i, 0, n);
    }
    sim_yield();
}

/* It is read now, and again when it is copied: it must be there both times. */
void weft__sim_row_prefetch(struct wp_warp *warp, const void *src, uint64_t row_bytes)
{
    const void *code = __builtin_return_address(0);
    const char *from = src;
    for (uint64_t i = sim_row_turn(warp) * ROW_CHUNK_BYTES; i < row_bytes;
         i += WP_WARP_SIZE * ROW_CHUNK_BYTES)
        sim_check_access(from + i, chunk_bytes(row_bytes, i), SIM_ROW_READ, code);
    sim_current()->num_row_operations++;
}

void weft__sim_row_copy(struct wp_warp *warp, const void *const *dsts, int32_t num_dsts,
                        const void *src, uint64_t row_bytes, struct weft__sim_place place)
{
    const void *code = __builtin_return_address(0);
    sim_trace("copy", place, src, row_bytes);
    for (int32_t i = 0; i < num_dsts; i++) {
        sim_check_access(&dsts[i], sizeof dsts[i], SIM_READ, code);
        if (dsts[i] != NULL)
            copy_row(warp, (char *)(uintptr_t)dsts[i], src, row_bytes, code);
    }
    sim_current()->num_row_operations++;
}

void weft__sim_row_copy_each(struct wp_warp *warp, const void *const *dsts, const void *const *srcs,
                             int32_t num_rows, uint64_t row_bytes, struct weft__sim_place place)
{
    const void *code = __builtin_return_address(0);
    for (int32_t i = 0; i < num_rows; i++) {
        sim_check_access(&dsts[i], sizeof dsts[i], SIM_READ, code);
        sim_check_access(&srcs[i], sizeof srcs[i], SIM_READ, code);
        sim_trace("copy", place, srcs[i], row_bytes);
        copy_row(warp, (char *)(uintptr_t)dsts[i], srcs[i], row_bytes, code);
    }
    sim_current()->num_row_operations++;
}

/* A row reduction. */
struct reduction;
typedef void reduce_chunk_fn(const struct reduction *reduction, const void *const *dsts,
                             const void *const *srcs, int64_t num_elements);
struct reduction {
    reduce_chunk_fn *reduce_chunk;
    const void *how;      /* what that one is told */
    const float *weights; /* if it has some */
    const void *const *dsts;
    int32_t num_dsts;
    uint64_t dst_bytes; /* of an element */
    const void *const *srcs;
    int32_t num_srcs;
    int32_t num_first; /* of the srcs */
    uint64_t first_bytes, rest_bytes;
    uint64_t num_elements;
    const void *code;
};

struct chunk {
    uint64_t idx;
    uint64_t first_element;
    uint64_t num_elements;
};

/* Chunk `idx` of the row; of no elements behind its end. The widest have ROW_CHUNK_BYTES. */
static struct chunk chunk_at(const struct reduction *reduction, uint64_t idx)
{
    uint64_t widest = reduction->dst_bytes;
    widest = reduction->first_bytes > widest ? reduction->first_bytes : widest;
    widest = reduction->rest_bytes > widest ? reduction->rest_bytes : widest;
    const uint64_t most = ROW_CHUNK_BYTES / widest, first = idx * most;
    const uint64_t num_left = first < reduction->num_elements ? reduction->num_elements - first : 0;
    return (struct chunk){idx, first, num_left < most ? num_left : most};
}

/* A row that is read and written in one operation is read before it is written. */
static int is_written(const struct reduction *reduction, const void *src)
{
    for (int32_t i = 0; i < reduction->num_dsts; i++) {
        if (reduction->dsts[i] == src)
            return 1;
    }
    return 0;
}

/* Where the rows are at this chunk. */
static void read_chunk(const struct reduction *reduction, struct chunk chunk, const void **rows)
{
    for (int32_t i = 0; i < reduction->num_srcs; i++) {
        const char *src = reduction->srcs[i];
        const uint64_t bytes =
            i < reduction->num_first ? reduction->first_bytes : reduction->rest_bytes;
        rows[i] = src == NULL ? NULL : src + chunk.first_element * bytes;
        if (src != NULL)
            sim_check_access(rows[i], chunk.num_elements * bytes,
                             is_written(reduction, src) ? SIM_READ : SIM_ROW_READ, reduction->code);
    }
}

static void begin_writing_chunk(const struct reduction *reduction, struct chunk chunk,
                                const void **rows)
{
    const uint64_t num_bytes = chunk.num_elements * reduction->dst_bytes;
    for (int32_t i = 0; i < reduction->num_dsts; i++) {
        char *dst = (char *)(uintptr_t)reduction->dsts[i];
        rows[i] = dst == NULL ? NULL : dst + chunk.first_element * reduction->dst_bytes;
        if (dst == NULL)
            continue;
        sim_check_access(rows[i], num_bytes, SIM_ROW_WRITE, reduction->code);
        sim_store_begin(dst + chunk.first_element * reduction->dst_bytes, num_bytes, SIM_ROW_STORE);
    }
}

static void read_pointers(const void *const *pointers, int32_t num_pointers, const void *code)
{
    sim_check_access(pointers, (size_t)num_pointers * sizeof *pointers, SIM_READ, code);
}

/* Reads and writes the lane's chunks. */
static void reduce_row(struct wp_warp *warp, const struct reduction *reduction)
{
    const void *from[WP_WARP_POINTERS], *to[WP_WARP_POINTERS];
    read_pointers(reduction->srcs, reduction->num_srcs, reduction->code);
    for (struct chunk chunk = chunk_at(reduction, sim_row_turn(warp)); chunk.num_elements > 0;
         chunk = chunk_at(reduction, chunk.idx + WP_WARP_SIZE)) {
        read_chunk(reduction, chunk, from);
        begin_writing_chunk(reduction, chunk, to);
        reduction->reduce_chunk(reduction, to, from, (int64_t)chunk.num_elements);
    }
    sim_current()->num_row_operations++;
    sim_yield();
}

static void reduce_chunk(const struct reduction *reduction, const void *const *dsts,
                         const void *const *srcs, int64_t num_elements)
{
    weft__cpu_rows_of(WEFT__ROWS_BASE)
        ->reduce(dsts, reduction->num_dsts, srcs, reduction->num_srcs,
                 *(const struct wp_reduction *)reduction->how, num_elements);
}

void weft__sim_row_reduce(struct wp_warp *warp, const void *const *dsts, int32_t num_dsts,
                          const void *const *srcs, int32_t num_srcs, struct wp_reduction how,
                          int64_t num_elements, struct weft__sim_place place)
{
    const uint64_t bytes = wp_dtype_bytes(how.dtype);
    const struct reduction reduction = {.reduce_chunk = reduce_chunk,
                                        .how = &how,
                                        .dsts = dsts,
                                        .num_dsts = num_dsts,
                                        .dst_bytes = bytes,
                                        .srcs = srcs,
                                        .num_srcs = num_srcs,
                                        .num_first = num_srcs,
                                        .first_bytes = bytes,
                                        .rest_bytes = bytes,
                                        .num_elements = (uint64_t)num_elements,
                                        .code = __builtin_return_address(0)};
    sim_trace("reduce", place, num_dsts > 0 ? dsts[0] : NULL, (uint64_t)num_elements);
    read_pointers(dsts, num_dsts, reduction.code);
    reduce_row(warp, &reduction);
}

static void sum_mixed_chunk(const struct reduction *reduction, const void *const *dsts,
                            const void *const *srcs, int64_t num_elements)
{
    weft__cpu_rows_of(WEFT__ROWS_BASE)
        ->sum_mixed((void *)(uintptr_t)dsts[0], srcs, reduction->num_srcs,
                    *(const struct wp_mixed_sum *)reduction->how, num_elements);
}

void weft__sim_row_sum_mixed(struct wp_warp *warp, void *dst, const void *const *srcs,
                             int32_t num_srcs, struct wp_mixed_sum sum, int64_t num_elements,
                             struct weft__sim_place place)
{
    const void *const dsts[] = {dst};
    const struct reduction reduction = {.reduce_chunk = sum_mixed_chunk,
                                        .how = &sum,
                                        .dsts = dsts,
                                        .num_dsts = 1,
                                        .dst_bytes = wp_dtype_bytes(sum.dst_dtype),
                                        .srcs = srcs,
                                        .num_srcs = num_srcs,
                                        .num_first = sum.num_first,
                                        .first_bytes = wp_dtype_bytes(sum.first_dtype),
                                        .rest_bytes = wp_dtype_bytes(sum.rest_dtype),
                                        .num_elements = (uint64_t)num_elements,
                                        .code = __builtin_return_address(0)};
    sim_trace("reduce", place, dst, (uint64_t)num_elements);
    reduce_row(warp, &reduction);
}

static void weighted_sum_chunk(const struct reduction *reduction, const void *const *dsts,
                               const void *const *srcs, int64_t num_elements)
{
    weft__cpu_rows_of(WEFT__ROWS_BASE)
        ->weighted_sum((void *)(uintptr_t)dsts[0], srcs, reduction->weights, reduction->num_srcs,
                       *(const struct wp_weighted_sum *)reduction->how, num_elements);
}

void weft__sim_row_weighted_sum(struct wp_warp *warp, void *dst, const void *const *srcs,
                                const float *weights, int32_t num_srcs, struct wp_weighted_sum sum,
                                int64_t num_elements, struct weft__sim_place place)
{
    const void *const dsts[] = {dst};
    const struct reduction reduction = {.reduce_chunk = weighted_sum_chunk,
                                        .how = &sum,
                                        .weights = weights,
                                        .dsts = dsts,
                                        .num_dsts = 1,
                                        .dst_bytes = wp_dtype_bytes(sum.dst_dtype),
                                        .srcs = srcs,
                                        .num_srcs = num_srcs,
                                        .num_first = num_srcs,
                                        .first_bytes = wp_dtype_bytes(sum.src_dtype),
                                        .rest_bytes = wp_dtype_bytes(sum.src_dtype),
                                        .num_elements = (uint64_t)num_elements,
                                        .code = __builtin_return_address(0)};
    sim_trace("reduce", place, dst, (uint64_t)num_elements);
    if (weights != NULL)
        sim_check_access(weights, (size_t)num_srcs * sizeof *weights, SIM_READ, reduction.code);
    reduce_row(warp, &reduction);
}
