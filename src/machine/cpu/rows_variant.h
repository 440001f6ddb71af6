/* SPDX-License-Identifier: MIT */
/* The body of the reduction of rows, compiled once per instruction set by the rows_*.c files, which
 * define VARIANT(name) as the name to give to what is not static. */
#include <string.h>

#include "machine/cpu/cpu_quantise.h"
#include "machine/cpu/cpu_rows.h"
#include "machine/cpu/reduce_ops.h"
#include "machine/cpu/short_sums.h"
#include "machine/cpu/tile.h"
#include "machine/cpu/weighted_sums.h"

enum { LINE_BYTES = 64 };

/* Functions that run for every tile of every row. They are inlined, since sums of 8 rows that are
 * in the cache take 6 % longer with calls, and gcc 12 drops calls of a function that only
 * prefetches. */
#define EACH_TILE __attribute__((always_inline)) static inline

static void tile_begin(struct weft__tile *tile, struct wp_reduction reduction, int64_t num_elements)
{
    tile->reduction = reduction;
    tile->num_rows = 0;
    tile->num_elements = num_elements;
    if (reduction.op == WP_REDUCTION_SUM_FROM_ZERO)
        memset(tile->accumulators, 0,
               (size_t)num_elements * element_types[reduction.dtype]->accumulator_bytes);
}

/* Rows may start at any byte; elements that are not aligned are first copied to where they are. */
EACH_TILE const void *align_row(char aligned[WEFT__TILE_BYTES], const struct weft__tile *tile,
                                size_t element_bytes, const void *src)
{
    if ((uintptr_t)src % element_bytes == 0)
        return src;
    return memcpy(aligned, src, (size_t)tile->num_elements * element_bytes);
}

/* A row of any type that has the tile's accumulators. */
EACH_TILE void tile_add_type(struct weft__tile *tile, const struct element_type *type,
                             const void *src)
{
    _Alignas(LINE_BYTES) char aligned[WEFT__TILE_BYTES];
    const int is_first = tile->num_rows++ == 0 && tile->reduction.op != WP_REDUCTION_SUM_FROM_ZERO;
    accumulate_fn *accumulate =
        is_first ? type->accumulate_first : type->accumulate[tile->reduction.op];
    accumulate(tile->accumulators, align_row(aligned, tile, type->element_bytes, src),
               tile->num_elements);
}

static void tile_add(struct weft__tile *tile, const void *src)
{
    tile_add_type(tile, element_types[tile->reduction.dtype], src);
}

static void tile_store(struct weft__tile *tile, void *dst)
{
    _Alignas(LINE_BYTES) char aligned[WEFT__TILE_BYTES];
    const struct element_type *type = element_types[tile->reduction.dtype];
    if (tile->reduction.op == WP_REDUCTION_AVG)
        type->divide(tile->accumulators,
                     tile->reduction.num_averaged > 0 ? tile->reduction.num_averaged
                                                      : tile->num_rows,
                     tile->num_elements);
    const int is_aligned = (uintptr_t)dst % type->element_bytes == 0;
    type->narrow(is_aligned ? dst : aligned, tile->accumulators, tile->num_elements);
    if (!is_aligned)
        memcpy(dst, aligned, (size_t)tile->num_elements * type->element_bytes);
}

static const struct weft__tile_functions tile_functions = {
    .begin = tile_begin, .add = tile_add, .store = tile_store};

/* The rows of a token lie far apart, so the processor does not see what comes next: while one row's
 * tile is added, the next row's is fetched. */
EACH_TILE void prefetch(const void *const *srcs, int32_t num_srcs, size_t offset_bytes,
                        size_t bytes)
{
    for (int32_t i = 0; i < num_srcs; i++) {
        if (srcs[i] == NULL)
            continue;
        for (size_t line = 0; line < bytes; line += LINE_BYTES)
            __builtin_prefetch((const char *)srcs[i] + offset_bytes + line);
        return;
    }
}

/* The rows' elements from `begin` on. */
EACH_TILE void tile_add_rows(struct weft__tile *tile, const struct element_type *type,
                             const void *const *rows, int32_t num_rows, int64_t begin)
{
    const size_t offset_bytes = (size_t)begin * type->element_bytes;
    for (int32_t i = 0; i < num_rows; i++) {
        if (rows[i] == NULL)
            continue;
        prefetch(rows + i + 1, num_rows - i - 1, offset_bytes,
                 (size_t)tile->num_elements * type->element_bytes);
        tile_add_type(tile, type, (const char *)rows[i] + offset_bytes);
    }
}

/* How many of a row's elements, from `begin` on, make the next tile. */
static int64_t next_elements(int64_t num_elements, int64_t begin)
{
    const int64_t rest = num_elements - begin;
    return rest < WEFT__TILE_ELEMENTS ? rest : WEFT__TILE_ELEMENTS;
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

static void row_reduce(const void *const *dsts, int32_t num_dsts, const void *const *srcs,
                       int32_t num_srcs, struct wp_reduction reduction, int64_t num_elements)
{
    const struct element_type *type = element_types[reduction.dtype];
    for (int64_t begin = 0; begin < num_elements; begin += WEFT__TILE_ELEMENTS) {
        struct weft__tile tile;
        tile_begin(&tile, reduction, next_elements(num_elements, begin));
        tile_add_rows(&tile, type, srcs, num_srcs, begin);
        store_to_all(&tile, dsts, num_dsts, (size_t)begin * type->element_bytes);
    }
}

/* Elements [begin, begin + num_elements) of the rows. */
static void sum_tile(void *dst, const void *const *srcs, int32_t num_srcs, struct wp_mixed_sum sum,
                     int64_t begin, int64_t num_elements)
{
    const struct wp_reduction reduction = {sum.dst_dtype, WP_REDUCTION_SUM_FROM_ZERO, 0};
    struct weft__tile tile;
    tile_begin(&tile, reduction, num_elements);
    tile_add_rows(&tile, element_types[sum.first_dtype], srcs, sum.num_first, begin);
    tile_add_rows(&tile, element_types[sum.rest_dtype], srcs + sum.num_first,
                  num_srcs - sum.num_first, begin);
    tile_store(&tile, dst);
}

/* Sums that are read later go past the cache. Like what is not aligned, and what is written over
 * one of few rows, they are made elsewhere, tile by tile. */
static void row_sum_mixed(void *dst, const void *const *srcs, int32_t num_srcs,
                          struct wp_mixed_sum sum, int64_t num_elements)
{
    const struct element_type *type = element_types[sum.dst_dtype];
    const struct few_rows few = find_few_rows(srcs, num_srcs, sum);
    const int is_streamed =
        sum.reuse == WP_READ_LATER &&
        (uint64_t)num_elements * type->element_bytes >= WEFT__CPU_MIN_STREAM_BYTES;
    const int is_made_in_place =
        !is_streamed && !is_one_of(&few, dst) && (uintptr_t)dst % type->element_bytes == 0;
    for (int64_t begin = 0; begin < num_elements; begin += WEFT__TILE_ELEMENTS) {
        _Alignas(LINE_BYTES) char elsewhere[WEFT__TILE_BYTES];
        const int64_t num_now = next_elements(num_elements, begin);
        const size_t offset_bytes = (size_t)begin * type->element_bytes,
                     bytes = (size_t)num_now * type->element_bytes;
        char *at = (char *)dst + offset_bytes, *made = is_made_in_place ? at : elsewhere;
        if (few.num_rows > 0)
            sum_few(made, &few, offset_bytes, num_now);
        else
            sum_tile(made, srcs, num_srcs, sum, begin, num_now);
        if (is_streamed)
            weft__cpu_row_stream(at, made, bytes);
        else if (!is_made_in_place)
            memcpy(at, made, bytes);
    }
}

/* The rows' elements from `begin` on. */
EACH_TILE void tile_add_weighted_rows(struct weft__tile *tile, weft_dtype dtype,
                                      const void *const *rows, const float *weights,
                                      int32_t num_rows, int64_t begin)
{
    _Alignas(LINE_BYTES) char aligned[WEFT__TILE_BYTES];
    const size_t element_bytes = element_types[dtype]->element_bytes,
                 offset_bytes = (size_t)begin * element_bytes;
    for (int32_t i = 0; i < num_rows; i++) {
        if (rows[i] == NULL)
            continue;
        prefetch(rows + i + 1, num_rows - i - 1, offset_bytes,
                 (size_t)tile->num_elements * element_bytes);
        add_weighted[dtype](
            tile->accumulators,
            align_row(aligned, tile, element_bytes, (const char *)rows[i] + offset_bytes),
            weights == NULL ? 1.0f : weights[i], tile->num_elements);
    }
}

/* Without weights all products are the rows. Such sums go to other ranks, or to the caller: past
 * the cache, in 1.25 times the time of a normal step for 8 ranks of 16 tokens on 2 cores; else
 * 1.37. */
static void row_sum_plain(void *dst, const void *const *srcs, int32_t num_srcs,
                          struct wp_weighted_sum sum, int64_t num_elements)
{
    const struct wp_mixed_sum plain = {num_srcs, sum.src_dtype, sum.src_dtype, sum.dst_dtype,
                                       sum.reuse};
    row_sum_mixed(dst, srcs, num_srcs, plain, num_elements);
}

static void row_weighted_sum(void *dst, const void *const *srcs, const float *weights,
                             int32_t num_srcs, struct wp_weighted_sum sum, int64_t num_elements)
{
    const struct wp_reduction reduction = {sum.dst_dtype, WP_REDUCTION_SUM_FROM_ZERO, 0};
    const size_t element_bytes = element_types[sum.dst_dtype]->element_bytes;
    if (weights == NULL) {
        row_sum_plain(dst, srcs, num_srcs, sum, num_elements);
        return;
    }
    for (int64_t begin = 0; begin < num_elements; begin += WEFT__TILE_ELEMENTS) {
        struct weft__tile tile;
        tile_begin(&tile, reduction, next_elements(num_elements, begin));
        tile_add_weighted_rows(&tile, sum.src_dtype, srcs, weights, num_srcs, begin);
        tile_store(&tile, (char *)dst + (size_t)begin * element_bytes);
    }
}

extern const struct weft__row_functions VARIANT(weft__row_functions);
const struct weft__row_functions VARIANT(weft__row_functions) = {
    .reduce = row_reduce,
    .sum_mixed = row_sum_mixed,
    .weighted_sum = row_weighted_sum,
    .quantise = row_quantise,
    .dequantise = row_dequantise,
    .tile = &tile_functions,
};
