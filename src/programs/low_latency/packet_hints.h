/* SPDX-License-Identifier: MIT */
/* What programs of the usual forms know that dispatch few tokens in packets. They include it before all else. */
#pragma once

#ifndef WP_LL_HAS_MASKS /* those with masks say so */
#define WP_LL_HAS_MASKS(masks) 0
#endif
#define WP_LL_RANKS_ARE_NEAR 1
#define WP_PLACEMENT_IS_EVEN 1
#define WP_PACKETS_ARE_SHORT
#define WP_ROWS_ARE_MADE_NEAR

#include "programs/low_latency/hints.h"
