/* SPDX-License-Identifier: MIT */
/* What programs of the usual forms know when they are compiled (wp_ll_is_usual), for themselves and for the machine
 * (machine.h). They include it before all else. */
#pragma once

#define WP_LL_STEPS_ONLY
#define WP_LL_IS_NEAR       1
#define WP_LL_TOPK_IS_USUAL 1
#define WP_ROWS_ARE_ALIGNED
#define WP_ROWS_GO_IN_PARTS
