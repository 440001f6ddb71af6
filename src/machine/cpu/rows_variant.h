/* SPDX-License-Identifier: MIT */
/* The body of the reduction of rows, compiled once per instruction set by the rows_*.c files, which
 * define VARIANT(name) as the name to give to what is not static. */
#include <string.h>

#include "machine/cpu/reduce_ops.h"
#include "machine/cpu/rows.h"
#include "machine/cpu/tile.h"

enum { LINE_BYTES = 64 };

static void tile_begin(struct weft__tile *tile, struct weft_reduction reduction,
                       int64_t num_elements)
{
    tile->reduction = reduction;
    tile->num_rows = 0;
    tile->num_elements = num_elements;
    if (reduction.op == WEFT_REDUCTION_SUM_FROM_ZERO)
        memset(tile->accumulators, 0,
               (size_t)num_elements * element_types[reduction.dtype]->accumulator_bytes);
}

/* Rows may start at any byte; elements that are not aligned are first copied to where they are. */
static void tile_add(struct weft__tile *tile, const void *src)
{
    _Alignas(LINE_BYTES) char aligned[WEFT__TILE_BYTES];
    const struct element_type *type = element_types[tile->reduction.dtype];
    const int is_first =
        tile->num_rows++ == 0 && tile->reduction.op != WEFT_REDUCTION_SUM_FROM_ZERO;
    accumulate_fn *accumulate =
        is_first ? type->accumulate_first : type->accumulate[tile->reduction.op];
    if ((uintptr_t)src % type->element_bytes != 0)
        src = memcpy(aligned, src, (size_t)tile->num_elements * type->element_bytes);
    accumulate(tile->accumulators, src, tile->num_elements);
}

static void tile_store(struct weft__tile *tile, void *dst)
{
    _Alignas(LINE_BYTES) char aligned[WEFT__TILE_BYTES];
    const struct element_type *type = element_types[tile->reduction.dtype];
    if (tile->reduction.op == WEFT_REDUCTION_AVG)
        type->divide(tile->accumulators, tile->num_rows, tile->num_elements);
    const int is_aligned = (uintptr_t)dst % type->element_bytes == 0;
    type->narrow(is_aligned ? dst : aligned, tile->accumulators, tile->num_elements);
    if (!is_aligned)
        memcpy(dst, aligned, (size_t)tile->num_elements * type->element_bytes);
}

extern const struct weft__tile_functions VARIANT(weft__tile_functions);
const struct weft__tile_functions VARIANT(weft__tile_functions) = {
    .begin = tile_begin, .add = tile_add, .store = tile_store};

/* The rows of a token lie far apart, so the processor does not see what comes next: while one row's
 * tile is added, the next row's is fetched. */
static void prefetch(const void *const *srcs, int32_t num_srcs, size_t offset_bytes, size_t bytes)
{
    for (int32_t i = 0; i < num_srcs; i++) {
        if (srcs[i] == NULL)
            continue;
        for (size_t line = 0; line < bytes; line += LINE_BYTES)
            __builtin_prefetch((const char *)srcs[i] + offset_bytes + line);
        return;
    }
}

/* The tile goes to the first dst and is copied from there to the others. */
static void store_to_all(struct weft__tile *tile, const void *const *dsts, int32_t num_dsts,
                         size_t offset_bytes)
{
    const size_t bytes =
        (size_t)tile->num_elements * element_types[tile->reduction.dtype]->element_bytes;
    const char *stored = NULL;
    for (int32_t i = 0; i < num_dsts; i++) {
        if (dsts[i] == NULL)
            continue;
        char *dst = (char *)(uintptr_t)dsts[i] + offset_bytes;
        if (stored == NULL) {
            tile_store(tile, dst);
            stored = dst;
        } else {
            memcpy(dst, stored, bytes);
        }
    }
}

weft__row_reduce_fn VARIANT(weft__row_reduce);
void VARIANT(weft__row_reduce)(const void *const *dsts, int32_t num_dsts, const void *const *srcs,
                               int32_t num_srcs, struct weft_reduction reduction,
                               int64_t num_elements)
{
    const size_t element_bytes = element_types[reduction.dtype]->element_bytes;
    for (int64_t begin = 0; begin < num_elements; begin += WEFT__TILE_ELEMENTS) {
        const int64_t rest = num_elements - begin;
        const size_t offset_bytes = (size_t)begin * element_bytes;
        struct weft__tile tile;
        tile_begin(&tile, reduction, rest < WEFT__TILE_ELEMENTS ? rest : WEFT__TILE_ELEMENTS);
        for (int32_t i = 0; i < num_srcs; i++) {
            if (srcs[i] == NULL)
                continue;
            prefetch(srcs + i + 1, num_srcs - i - 1, offset_bytes,
                     (size_t)tile.num_elements * element_bytes);
            tile_add(&tile, (const char *)srcs[i] + offset_bytes);
        }
        store_to_all(&tile, dsts, num_dsts, offset_bytes);
    }
}
