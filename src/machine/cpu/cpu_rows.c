/* SPDX-License-Identifier: MIT */
#include "machine/cpu/cpu_rows.h"

#include <stdatomic.h>
#include <stddef.h>

extern const struct weft__row_functions weft__row_functions_base;
#ifdef __x86_64__
extern const struct weft__row_functions weft__row_functions_avx2, weft__row_functions_avx512;
#endif

const struct weft__row_functions *weft__cpu_rows_of(enum weft__row_variant variant)
{
#ifdef __x86_64__
    if (variant == WEFT__ROWS_AVX512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                       __builtin_cpu_supports("avx512vl")
                   ? &weft__row_functions_avx512
                   : NULL;
    /* Every processor with avx2 has f16c. */
    if (variant == WEFT__ROWS_AVX2)
        return __builtin_cpu_supports("avx2") ? &weft__row_functions_avx2 : NULL;
#endif
    return variant == WEFT__ROWS_BASE ? &weft__row_functions_base : NULL;
}

static const struct weft__row_functions *widest_functions(void)
{
    for (int i = WEFT__NUM_ROW_VARIANTS - 1; i > WEFT__ROWS_BASE; i--) {
        const struct weft__row_functions *functions = weft__cpu_rows_of((enum weft__row_variant)i);
        if (functions != NULL)
            return functions;
    }
    return &weft__row_functions_base;
}

const struct weft__row_functions *weft__cpu_rows(void)
{
    /* Every thread that chooses chooses the same, so the order of their stores does not matter. */
    static _Atomic(const struct weft__row_functions *) chosen;
    const struct weft__row_functions *functions =
        atomic_load_explicit(&chosen, memory_order_relaxed);
    if (functions == NULL) {
        functions = widest_functions();
        atomic_store_explicit(&chosen, functions, memory_order_relaxed);
    }
    return functions;
}
