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

void sim_row_write(void *to, uint64_t num_bytes, const void *code)
{
    sim_check_access(to, num_bytes, SIM_ROW_WRITE, code);
    sim_store_begin(to, num_bytes, SIM_ROW_STORE);
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
        sim_row_write(dst + i, n, code);
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

/* A sum or another reduction of rows. */
struct reduction;
typedef void reduce_chunk_fn(const struct reduction *reduction, const void *const *dsts,
                             const void *const *srcs, int64_t num_elements);
struct reduction {
    reduce_chunk_fn *reduce_chunk;
    const void *how;      /* what that one is told */
    const float *weights; /* if it has some */
    const void *const *dsts;
    int32_t num_dsts;
    weft_dtype dst_dtype;
    const void *const *srcs;
    int32_t num_srcs;
    int32_t num_first; /* of the srcs */
    weft_dtype first_dtype, rest_dtype;
    int64_t num_elements;
    const void *code;
};

/* A part of the row that one lane does. */
struct chunk {
    int64_t first_element, num_elements;
};

/* So many elements that the widest have ROW_CHUNK_BYTES. */
static int64_t most_elements(const struct reduction *reduction)
{
    const weft_dtype dtypes[] = {reduction->dst_dtype, reduction->first_dtype,
                                 reduction->rest_dtype};
    uint64_t widest = 1;
    for (int i = 0; i < 3; i++)
        widest = wp_dtype_bytes(dtypes[i]) > widest ? wp_dtype_bytes(dtypes[i]) : widest;
    return (int64_t)(ROW_CHUNK_BYTES / widest);
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
        const weft_dtype dtype =
            i < reduction->num_first ? reduction->first_dtype : reduction->rest_dtype;
        rows[i] = src == NULL ? NULL : src + wp_elements_bytes(dtype, chunk.first_element);
        if (src != NULL)
            sim_check_access(rows[i], wp_elements_bytes(dtype, chunk.num_elements),
                             is_written(reduction, src) ? SIM_READ : SIM_ROW_READ, reduction->code);
    }
}

static void begin_writing_chunk(const struct reduction *reduction, struct chunk chunk,
                                const void **rows)
{
    for (int32_t i = 0; i < reduction->num_dsts; i++) {
        char *dst = (char *)(uintptr_t)reduction->dsts[i];
        rows[i] = NULL;
        if (dst == NULL)
            continue;
        dst += wp_elements_bytes(reduction->dst_dtype, chunk.first_element);
        rows[i] = dst;
        sim_row_write(dst, wp_elements_bytes(reduction->dst_dtype, chunk.num_elements),
                      reduction->code);
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
    const int64_t most = most_elements(reduction);
    read_pointers(reduction->srcs, reduction->num_srcs, reduction->code);
    if (reduction->weights != NULL)
        sim_check_access(reduction->weights,
                         (size_t)reduction->num_srcs * sizeof *reduction->weights, SIM_READ,
                         reduction->code);
    for (int64_t first = (int64_t)sim_row_turn(warp) * most; first < reduction->num_elements;
         first += most * WP_WARP_SIZE) {
        const int64_t num_left = reduction->num_elements - first;
        const struct chunk chunk = {first, num_left < most ? num_left : most};
        read_chunk(reduction, chunk, from);
        begin_writing_chunk(reduction, chunk, to);
        reduction->reduce_chunk(reduction, to, from, chunk.num_elements);
    }
    sim_current()->num_row_operations++;
    sim_yield();
}

static const struct weft__row_functions *rows(void)
{
    return weft__cpu_rows_of(WEFT__ROWS_BASE);
}

static void reduce_chunk(const struct reduction *reduction, const void *const *dsts,
                         const void *const *srcs, int64_t num_elements)
{
    rows()->reduce(dsts, reduction->num_dsts, srcs, reduction->num_srcs,
                   *(const struct wp_reduction *)reduction->how, num_elements);
}

void weft__sim_row_reduce(struct wp_warp *warp, const void *const *dsts, int32_t num_dsts,
                          const void *const *srcs, int32_t num_srcs, struct wp_reduction how,
                          int64_t num_elements, struct weft__sim_place place)
{
    const struct reduction reduction = {.reduce_chunk = reduce_chunk,
                                        .how = &how,
                                        .dsts = dsts,
                                        .num_dsts = num_dsts,
                                        .dst_dtype = how.dtype,
                                        .srcs = srcs,
                                        .num_srcs = num_srcs,
                                        .first_dtype = how.dtype,
                                        .rest_dtype = how.dtype,
                                        .num_elements = num_elements,
                                        .code = __builtin_return_address(0)};
    sim_trace("reduce", place, num_dsts > 0 ? dsts[0] : NULL, (uint64_t)num_elements);
    read_pointers(dsts, num_dsts, reduction.code);
    reduce_row(warp, &reduction);
}

static void sum_mixed_chunk(const struct reduction *reduction, const void *const *dsts,
                            const void *const *srcs, int64_t num_elements)
{
    rows()->sum_mixed((void *)(uintptr_t)dsts[0], srcs, reduction->num_srcs,
                      *(const struct wp_mixed_sum *)reduction->how, num_elements);
}

static void weighted_sum_chunk(const struct reduction *reduction, const void *const *dsts,
                               const void *const *srcs, int64_t num_elements)
{
    rows()->weighted_sum((void *)(uintptr_t)dsts[0], srcs, reduction->weights, reduction->num_srcs,
                         *(const struct wp_weighted_sum *)reduction->how, num_elements);
}

/* Sums rows to one. */
static void sum_rows(struct wp_warp *warp, struct reduction reduction, const void *dst,
                     struct weft__sim_place place)
{
    const void *const dsts[] = {dst};
    reduction.dsts = dsts;
    reduction.num_dsts = 1;
    sim_trace("reduce", place, dst, (uint64_t)reduction.num_elements);
    reduce_row(warp, &reduction);
}

void weft__sim_row_sum_mixed(struct wp_warp *warp, void *dst, const void *const *srcs,
                             int32_t num_srcs, struct wp_mixed_sum sum, int64_t num_elements,
                             struct weft__sim_place place)
{
    const struct reduction reduction = {.reduce_chunk = sum_mixed_chunk,
                                        .how = &sum,
                                        .dst_dtype = sum.dst_dtype,
                                        .srcs = srcs,
                                        .num_srcs = num_srcs,
                                        .num_first = sum.num_first,
                                        .first_dtype = sum.first_dtype,
                                        .rest_dtype = sum.rest_dtype,
                                        .num_elements = num_elements,
                                        .code = __builtin_return_address(0)};
    sum_rows(warp, reduction, dst, place);
}

void weft__sim_row_weighted_sum(struct wp_warp *warp, void *dst, const void *const *srcs,
                                const float *weights, int32_t num_srcs, struct wp_weighted_sum sum,
                                int64_t num_elements, struct weft__sim_place place)
{
    const struct reduction reduction = {.reduce_chunk = weighted_sum_chunk,
                                        .how = &sum,
                                        .weights = weights,
                                        .dst_dtype = sum.dst_dtype,
                                        .srcs = srcs,
                                        .num_srcs = num_srcs,
                                        .first_dtype = sum.src_dtype,
                                        .rest_dtype = sum.src_dtype,
                                        .num_elements = num_elements,
                                        .code = __builtin_return_address(0)};
    sum_rows(warp, reduction, dst, place);
}
