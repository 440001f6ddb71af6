/* SPDX-License-Identifier: MIT */
/*
 * One row of variants.def as a program: the steps of its base, with the columns of the row as
 * constants. src/CMakeLists.txt writes a file for each row; for GPUs cmake/cuda.cmake writes a file
 * for several rows that share their hints. That file defines WP_LL_VARIANT(X) as its rows,
 * WP_LL_VARIANT_IS_<word> as 1 for each of their common words, and includes this one.
 */
#define WP_LL_STEPS_ONLY

#if WP_LL_VARIANT_IS_NODES || WP_LL_VARIANT_IS_RELAYED

/* Between nodes: the steps for one node, and what is for ranks of other nodes. The program for one
 * node has no time, so it has none of that. */
#define WP_LL_HAS_NODES(plan) 1
#if WP_LL_VARIANT_IS_RELAYED
#define WP_LL_HAS_RELAYS(plan) 1
#else
#define WP_LL_HAS_RELAYS(plan) 0
#endif
#include "programs/low_latency/ll_internode.h"
#if WP_LL_VARIANT_IS_dispatch
#include "programs/low_latency/low_latency_dispatch.c"
#else
#include "programs/low_latency/low_latency_combine.c"
#endif

#define WP_LL_STEPS(operation, warp, args, ...) return operation(warp, &(args)->operation)

#else

/* Constants of a variant of one node, for itself and for the machine (machine.h). */
#define WP_LL_IS_NEAR                  1
#define WP_LL_TOPK_IS_USUAL            1
#define WP_LL_HAS_SIGNALS(args)        0
#define WP_LL_HAS_EXPERT_SIGNALS(args) 0
#define WP_ROWS_ARE_ALIGNED
#define WP_ROWS_GO_IN_PARTS

#if WP_LL_VARIANT_IS_MASKS
#define WP_LL_HAS_MASKS(masks) 1
#else
#define WP_LL_HAS_MASKS(masks) 0
#endif

#if WP_LL_VARIANT_IS_PACKETS
#define WP_PACKETS_ARE_SHORT
#elif WP_LL_VARIANT_IS_TOLD
#define WP_PACKETS_ARE_LONG
#endif

#if WP_LL_VARIANT_IS_dispatch && !WP_LL_VARIANT_IS_SIGNALS
#define WP_LL_RANKS_ARE_NEAR 1
#endif

#if WP_LL_VARIANT_IS_dispatch && WP_LL_VARIANT_IS_PACKETS
#define WP_PLACEMENT_IS_EVEN 1
#endif

#if (WP_LL_VARIANT_IS_FP8 || WP_LL_VARIANT_IS_FP8_POWER) && WP_LL_VARIANT_IS_PACKETS
#define WP_PACKETS_ARE_QUANTISED
#endif

#if WP_LL_VARIANT_IS_combine && WP_LL_VARIANT_IS_PACKETS && WP_LL_VARIANT_IS_BY_EXPERT
#define WP_ROWS_ARE_MADE_NEAR
#endif

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

#include "programs/low_latency/ll_usual.h"

#define WP_LL_STEPS(operation, warp, args, ...)                                                    \
    const struct wp_ll_variant variant = WP_LL_VARIANT_OF(__VA_ARGS__);                            \
    struct wp_low_latency_##operation##_args fixed = (args)->operation;                            \
    wp_ll_fix_##operation(&fixed.ll, &(args)->operation.ll, variant);                              \
    return operation(warp, &fixed)

#endif

#define WP_LL_PROGRAM(name, operation, ...)                                                        \
    struct wp_##name##_args {                                                                      \
        struct wp_low_latency_##operation##_args operation;                                        \
    };                                                                                             \
    WP_PROGRAM(name, warp, args)                                                                   \
    {                                                                                              \
        WP_LL_STEPS(operation, warp, args, __VA_ARGS__);                                           \
    }
WP_LL_VARIANT(WP_LL_PROGRAM)
