/* SPDX-License-Identifier: MIT */
/* The body of the reduction of rows, compiled once per instruction set by the rows_*.c files, which
 * define ROW_REDUCE as the name to give it. */
#include <string.h>

#include "machine/cpu/reduce_ops.h"
#include "machine/cpu/rows.h"
#include "machine/machine.h"

enum {
    TILE = 512, /* elements reduced at a time: the accumulators stay in the first-level cache */
    MAX_ELEMENT_BYTES = 8,
    LINE_BYTES = 64
};

struct reduction {
    const void *const *dsts;
    int32_t num_dsts;
    const void *const *srcs;
    int32_t num_srcs;
    int32_t num_rows; /* the non-null srcs */
    enum weft_reduction_op op;
    const struct element_type *type;
    size_t element_bytes;
};

/* Where in the rows: n elements. */
struct tile {
    size_t offset_bytes;
    int64_t n;
};

union tile_memory {
    _Alignas(LINE_BYTES) char bytes[TILE * MAX_ELEMENT_BYTES];
};

/* Rows may start at any byte; a tile is copied to aligned memory when its elements are not aligned. */
static const void *aligned_tile(const void *src, size_t element_bytes, int64_t n, void *buffer)
{
    if ((uintptr_t)src % element_bytes == 0)
        return src;
    return memcpy(buffer, src, (size_t)n * element_bytes);
}

/* The rows of a token lie far apart, so the processor does not see what comes next: while one row's
 * tile is added, the next row's is fetched. */
static void prefetch_tile(const void *const *srcs, int32_t num_srcs, size_t offset_bytes,
                          size_t tile_bytes)
{
    for (int32_t i = 0; i < num_srcs; i++) {
        if (srcs[i] == NULL)
            continue;
        for (size_t line = 0; line < tile_bytes; line += LINE_BYTES)
            __builtin_prefetch((const char *)srcs[i] + offset_bytes + line);
        return;
    }
}

static void accumulate_tile(const struct reduction *r, struct tile tile, void *accumulators)
{
    union tile_memory aligned;
    const size_t tile_bytes = (size_t)tile.n * r->element_bytes;
    accumulate_fn *accumulate = r->type->accumulate_first;
    if (r->op == WEFT_REDUCTION_SUM_FROM_ZERO) {
        memset(accumulators, 0, (size_t)tile.n * r->type->accumulator_bytes);
        accumulate = r->type->accumulate[r->op];
    }
    for (int32_t i = 0; i < r->num_srcs; i++) {
        if (r->srcs[i] == NULL)
            continue;
        prefetch_tile(r->srcs + i + 1, r->num_srcs - i - 1, tile.offset_bytes, tile_bytes);
        const void *src = aligned_tile((const char *)r->srcs[i] + tile.offset_bytes,
                                       r->element_bytes, tile.n, &aligned);
        accumulate(accumulators, src, tile.n);
        accumulate = r->type->accumulate[r->op];
    }
    if (r->op == WEFT_REDUCTION_AVG)
        r->type->divide(accumulators, r->num_rows, tile.n);
}

/* A dst may be one of the srcs, whose tile has been read by now. */
static void store_tile(const struct reduction *r, struct tile tile, const void *accumulators)
{
    union tile_memory narrow;
    const void *stored = NULL; /* the tile, in the first dst that is aligned or else here */
    for (int32_t i = 0; i < r->num_dsts; i++) {
        if (r->dsts[i] == NULL)
            continue;
        char *dst = (char *)(uintptr_t)r->dsts[i] + tile.offset_bytes;
        if (stored == NULL) {
            void *first = (uintptr_t)dst % r->element_bytes == 0 ? (void *)dst : (void *)&narrow;
            r->type->narrow(first, accumulators, tile.n);
            stored = first;
        }
        if (stored != dst)
            memcpy(dst, stored, (size_t)tile.n * r->element_bytes);
    }
}

weft__row_reduce_fn ROW_REDUCE;
void ROW_REDUCE(const void *const *dsts, int32_t num_dsts, const void *const *srcs,
                int32_t num_srcs, struct weft_reduction reduction, int64_t num_elements)
{
    struct reduction r = {
        .dsts = dsts,
        .num_dsts = num_dsts,
        .srcs = srcs,
        .num_srcs = num_srcs,
        .op = reduction.op,
        .type = element_types[reduction.dtype],
        .element_bytes = weft_dtype_bytes(reduction.dtype),
    };
    for (int32_t i = 0; i < num_srcs; i++)
        r.num_rows += srcs[i] != NULL;
    for (int64_t begin = 0; begin < num_elements; begin += TILE) {
        union tile_memory accumulators;
        const struct tile tile = {
            .offset_bytes = (size_t)begin * r.element_bytes,
            .n = num_elements - begin < TILE ? num_elements - begin : TILE,
        };
        accumulate_tile(&r, tile, &accumulators);
        store_tile(&r, tile, &accumulators);
    }
}
