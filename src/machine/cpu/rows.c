/* SPDX-License-Identifier: MIT */
#include "machine/cpu/rows.h"

#include <stdatomic.h>
#include <stddef.h>

weft__row_sum_fn weft__row_sum_base, weft__row_sum_avx2, weft__row_sum_avx512;

weft__row_sum_fn *weft__cpu_row_sum_variant(enum weft__row_variant variant)
{
#ifdef __x86_64__
    if (variant == WEFT__ROWS_AVX512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                       __builtin_cpu_supports("avx512vl")
                   ? weft__row_sum_avx512
                   : NULL;
    /* Every processor with avx2 has f16c. */
    if (variant == WEFT__ROWS_AVX2)
        return __builtin_cpu_supports("avx2") ? weft__row_sum_avx2 : NULL;
#endif
    return variant == WEFT__ROWS_BASE ? weft__row_sum_base : NULL;
}

static weft__row_sum_fn *widest_variant(void)
{
    for (int variant = WEFT__NUM_ROW_VARIANTS - 1; variant > WEFT__ROWS_BASE; variant--) {
        weft__row_sum_fn *function = weft__cpu_row_sum_variant((enum weft__row_variant)variant);
        if (function != NULL)
            return function;
    }
    return weft__row_sum_base;
}

void weft__cpu_row_sum(void *dst, const void *const *srcs, int32_t num_srcs, weft_dtype dtype,
                       int64_t num_elements)
{
    /* Every thread that chooses chooses the same, so the order of their stores does not matter. */
    static _Atomic(weft__row_sum_fn *) chosen;
    weft__row_sum_fn *function = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (function == NULL) {
        function = widest_variant();
        atomic_store_explicit(&chosen, function, memory_order_relaxed);
    }
    function(dst, srcs, num_srcs, dtype, num_elements);
}
