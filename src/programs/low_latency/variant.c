/* SPDX-License-Identifier: MIT */
/*
 * One row of variants.def as a program: the steps of its base, with the columns of the row as
 * constants. src/CMakeLists.txt writes a file for each row. That file defines WP_LL_VARIANT(X) as
 * the row, WP_LL_VARIANT_IS_<word> as 1 for each of its words, and includes this one.
 */
#include "programs/low_latency/hints.h"

#if WP_LL_VARIANT_IS_dispatch && WP_LL_VARIANT_IS_SIGNALS
#include "programs/low_latency/low_latency_dispatch.c"
#elif WP_LL_VARIANT_IS_dispatch && WP_LL_VARIANT_IS_PACKETS
#include "programs/low_latency/packet_low_latency_dispatch.c"
#elif WP_LL_VARIANT_IS_dispatch && WP_LL_VARIANT_IS_TOLD
#include "programs/low_latency/told_low_latency_dispatch.c"
#elif WP_LL_VARIANT_IS_combine && WP_LL_VARIANT_IS_SIGNALS
#include "programs/low_latency/low_latency_combine.c"
#elif WP_LL_VARIANT_IS_combine
#include "programs/low_latency/packet_low_latency_combine.c"
#endif

#include "programs/low_latency/usual.h"

#define WP_LL_PROGRAM(name, operation, ...)                                                        \
    struct wp_##name##_args {                                                                      \
        struct wp_low_latency_##operation##_args operation;                                        \
    };                                                                                             \
    WP_PROGRAM(name, warp, args)                                                                   \
    {                                                                                              \
        const struct wp_ll_variant variant = WP_LL_VARIANT_OF(__VA_ARGS__);                        \
        struct wp_low_latency_##operation##_args fixed = args->operation;                          \
        wp_ll_fix_##operation(&fixed.ll, &args->operation.ll, variant);                            \
        return operation(warp, &fixed);                                                            \
    }
WP_LL_VARIANT(WP_LL_PROGRAM)
