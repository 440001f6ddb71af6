/* SPDX-License-Identifier: MIT */
#include "machine/cpu/rows.h"

#include <stdatomic.h>
#include <stddef.h>

#include "machine/cpu/tile.h"
#include "machine/machine.h"

struct variant {
    weft__row_reduce_fn *reduce;
    weft__row_sum_mixed_fn *sum_mixed;
    const struct weft__tile_functions *tile;
};

#define DECLARE_VARIANT(name)                                                                      \
    extern weft__row_reduce_fn weft__row_reduce_##name;                                            \
    extern weft__row_sum_mixed_fn weft__row_sum_mixed_##name;                                      \
    extern const struct weft__tile_functions weft__tile_functions_##name;                          \
    static const struct variant variant_##name = {                                                 \
        weft__row_reduce_##name, weft__row_sum_mixed_##name, &weft__tile_functions_##name};

DECLARE_VARIANT(base)
#ifdef __x86_64__
DECLARE_VARIANT(avx2)
DECLARE_VARIANT(avx512)
#endif

/* NULL when this processor cannot run it. */
static const struct variant *find_variant(enum weft__row_variant variant)
{
#ifdef __x86_64__
    if (variant == WEFT__ROWS_AVX512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                       __builtin_cpu_supports("avx512vl")
                   ? &variant_avx512
                   : NULL;
    /* Every processor with avx2 has f16c. */
    if (variant == WEFT__ROWS_AVX2)
        return __builtin_cpu_supports("avx2") ? &variant_avx2 : NULL;
#endif
    return variant == WEFT__ROWS_BASE ? &variant_base : NULL;
}

static const struct variant *widest_variant(void)
{
    for (int i = WEFT__NUM_ROW_VARIANTS - 1; i > WEFT__ROWS_BASE; i--) {
        const struct variant *variant = find_variant((enum weft__row_variant)i);
        if (variant != NULL)
            return variant;
    }
    return &variant_base;
}

static const struct variant *chosen_variant(void)
{
    /* Every thread that chooses chooses the same, so the order of their stores does not matter. */
    static _Atomic(const struct variant *) chosen;
    const struct variant *variant = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (variant == NULL) {
        variant = widest_variant();
        atomic_store_explicit(&chosen, variant, memory_order_relaxed);
    }
    return variant;
}

weft__row_reduce_fn *weft__cpu_row_reduce_variant(enum weft__row_variant variant)
{
    const struct variant *found = find_variant(variant);
    return found == NULL ? NULL : found->reduce;
}

void weft__cpu_row_reduce(const void *const *dsts, int32_t num_dsts, const void *const *srcs,
                          int32_t num_srcs, struct wp_reduction reduction, int64_t num_elements)
{
    chosen_variant()->reduce(dsts, num_dsts, srcs, num_srcs, reduction, num_elements);
}

weft__row_sum_mixed_fn *weft__cpu_row_sum_mixed_variant(enum weft__row_variant variant)
{
    const struct variant *found = find_variant(variant);
    return found == NULL ? NULL : found->sum_mixed;
}

void weft__cpu_row_sum_mixed(void *dst, const void *const *srcs, int32_t num_srcs,
                             struct wp_mixed_sum sum, int64_t num_elements)
{
    chosen_variant()->sum_mixed(dst, srcs, num_srcs, sum, num_elements);
}

const struct weft__tile_functions *weft__cpu_tile_functions(void)
{
    return chosen_variant()->tile;
}
