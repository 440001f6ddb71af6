/* SPDX-License-Identifier: MIT */
/* Constants that a variant knows at compile time, for itself and for the machine (machine.h).
 * low_latency/variant.c includes this file before all others. */
#pragma once

#define WP_LL_STEPS_ONLY
#define WP_LL_IS_NEAR       1
#define WP_LL_TOPK_IS_USUAL 1
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

#if WP_LL_VARIANT_IS_FP8 && WP_LL_VARIANT_IS_PACKETS
#define WP_PACKETS_ARE_QUANTISED
#endif

#if WP_LL_VARIANT_IS_combine && WP_LL_VARIANT_IS_PACKETS && WP_LL_VARIANT_IS_BY_EXPERT
#define WP_ROWS_ARE_MADE_NEAR
#endif
