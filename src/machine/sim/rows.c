/* SPDX-License-Identifier: MIT */
/* Row operations: asynchronous, in chunks that the lanes take turns in. */
#include <string.h>

#include "machine/cpu/rows.h"
#include "machine/sim/launch.h"

#define ROW_CHUNK_BYTES ((uint64_t)16)

/* A lane's share of a row: chunks a warp apart. Which ones is not the program's business, so it is the
 * other lane's share the next time. */
static uint64_t first_chunk_offset(const struct weft_warp *warp)
{
    const uint32_t turn = sim_current()->num_row_operations;
    return ((uint32_t)warp->lane_idx + turn) % WEFT_WARP_SIZE * ROW_CHUNK_BYTES;
}

static size_t chunk_bytes(uint64_t row_bytes, uint64_t offset)
{
    const uint64_t num_left = row_bytes - offset;
    return num_left < ROW_CHUNK_BYTES ? num_left : ROW_CHUNK_BYTES;
}

/* The end of each row is a point at which others may go on. */
static void copy_row(struct weft_warp *warp, char *dst, const char *src, uint64_t row_bytes,
                     const void *code)
{
    for (uint64_t i = first_chunk_offset(warp); i < row_bytes;
         i += WEFT_WARP_SIZE * ROW_CHUNK_BYTES) {
        const size_t n = chunk_bytes(row_bytes, i);
        sim_check_access(src + i, n, SIM_ROW_READ, code);
        sim_check_access(dst + i, n, SIM_ROW_WRITE, code);
        sim_store_begin(dst + i, n, SIM_ROW_STORE);
        memcpy(dst + i, src + i, n);
    }
    sim_yield();
}

void weft__sim_row_copy(struct weft_warp *warp, const void *const *dsts, int32_t num_dsts,
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

/* Of a row reduction. */
struct reduction {
    const void *const *dsts;
    int32_t num_dsts;
    const void *const *srcs;
    int32_t num_srcs;
    const void *code;
};

struct chunk {
    uint64_t offset;
    size_t num_bytes;
};

/* A row that is read and written in one operation is read before it is written. */
static int is_written(const struct reduction *reduction, const void *src)
{
    for (int32_t i = 0; i < reduction->num_dsts; i++) {
        if (reduction->dsts[i] == src)
            return 1;
    }
    return 0;
}

/* Returns how many rows there are at this chunk. */
static int32_t read_chunk(const struct reduction *reduction, struct chunk chunk, const void **rows)
{
    int32_t num_rows = 0;
    for (int32_t i = 0; i < reduction->num_srcs; i++) {
        const char *src = reduction->srcs[i];
        sim_check_access(&reduction->srcs[i], sizeof src, SIM_READ, reduction->code);
        if (src == NULL)
            continue;
        sim_check_access(src + chunk.offset, chunk.num_bytes,
                         is_written(reduction, src) ? SIM_READ : SIM_ROW_READ, reduction->code);
        rows[num_rows++] = src + chunk.offset;
    }
    return num_rows;
}

static int32_t begin_writing_chunk(const struct reduction *reduction, struct chunk chunk,
                                   const void **rows)
{
    int32_t num_rows = 0;
    for (int32_t i = 0; i < reduction->num_dsts; i++) {
        char *dst = (char *)(uintptr_t)reduction->dsts[i];
        sim_check_access(&reduction->dsts[i], sizeof dst, SIM_READ, reduction->code);
        if (dst == NULL)
            continue;
        sim_check_access(dst + chunk.offset, chunk.num_bytes, SIM_ROW_WRITE, reduction->code);
        sim_store_begin(dst + chunk.offset, chunk.num_bytes, SIM_ROW_STORE);
        rows[num_rows++] = dst + chunk.offset;
    }
    return num_rows;
}

void weft__sim_row_reduce(struct weft_warp *warp, const void *const *dsts, int32_t num_dsts,
                          const void *const *srcs, int32_t num_srcs, struct weft_reduction how,
                          int64_t num_elements, struct weft__sim_place place)
{
    const struct reduction reduction = {dsts, num_dsts, srcs, num_srcs,
                                        __builtin_return_address(0)};
    const uint64_t element_bytes = weft_dtype_bytes(how.dtype);
    const uint64_t row_bytes = (uint64_t)num_elements * element_bytes;
    weft__row_reduce_fn *reduce = weft__cpu_row_reduce_variant(WEFT__ROWS_BASE);
    const void *from[WEFT_WARP_POINTERS], *to[WEFT_WARP_POINTERS];
    sim_trace("reduce", place, num_dsts > 0 ? dsts[0] : NULL, (uint64_t)num_elements);
    for (uint64_t i = first_chunk_offset(warp); i < row_bytes;
         i += WEFT_WARP_SIZE * ROW_CHUNK_BYTES) {
        const struct chunk chunk = {i, chunk_bytes(row_bytes, i)};
        const int32_t num_from = read_chunk(&reduction, chunk, from);
        const int32_t num_to = begin_writing_chunk(&reduction, chunk, to);
        reduce(to, num_to, from, num_from, how, (int64_t)(chunk.num_bytes / element_bytes));
    }
    sim_current()->num_row_operations++;
    sim_yield();
}
