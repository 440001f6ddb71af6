/* SPDX-License-Identifier: MIT */
/* What plans are put together of: plans.c has the rest. */
#pragma once

#include "coll/coll.h"

enum {
    WEFT__REDUCE_WHAT_COMES =
        WP_STEP_RECEIVE | WP_STEP_FROM_SLOTS | WP_STEP_FROM_IN | WP_STEP_REDUCE
};

void weft__plan_add_step(struct wp_plan *plan, struct wp_step step);
void weft__plan_add_peer(struct wp_plan *plan, int32_t rank, int32_t in_idx, int32_t out_idx);

/* tree_plans.c: of two ranks at least. */
void weft__plan_tree(const struct weft__coll_call *call, struct wp_plan *plan);
