/* SPDX-License-Identifier: MIT */
#include "machine/cpu/rows.h"

#include <stdatomic.h>
#include <stddef.h>

#include "machine/machine.h"

weft__row_reduce_fn weft__row_reduce_base, weft__row_reduce_avx2, weft__row_reduce_avx512;

weft__row_reduce_fn *weft__cpu_row_reduce_variant(enum weft__row_variant variant)
{
#ifdef __x86_64__
    if (variant == WEFT__ROWS_AVX512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                       __builtin_cpu_supports("avx512vl")
                   ? weft__row_reduce_avx512
                   : NULL;
    /* Every processor with avx2 has f16c. */
    if (variant == WEFT__ROWS_AVX2)
        return __builtin_cpu_supports("avx2") ? weft__row_reduce_avx2 : NULL;
#endif
    return variant == WEFT__ROWS_BASE ? weft__row_reduce_base : NULL;
}

static weft__row_reduce_fn *widest_variant(void)
{
    for (int variant = WEFT__NUM_ROW_VARIANTS - 1; variant > WEFT__ROWS_BASE; variant--) {
        weft__row_reduce_fn *function =
            weft__cpu_row_reduce_variant((enum weft__row_variant)variant);
        if (function != NULL)
            return function;
    }
    return weft__row_reduce_base;
}

void weft__cpu_row_reduce(const void *const *dsts, int32_t num_dsts, const void *const *srcs,
                          int32_t num_srcs, struct weft_reduction reduction, int64_t num_elements)
{
    /* Every thread that chooses chooses the same, so the order of their stores does not matter. */
    static _Atomic(weft__row_reduce_fn *) chosen;
    weft__row_reduce_fn *function = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (function == NULL) {
        function = widest_variant();
        atomic_store_explicit(&chosen, function, memory_order_relaxed);
    }
    function(dsts, num_dsts, srcs, num_srcs, reduction, num_elements);
}
