/* SPDX-License-Identifier: MIT */
/* combine: the ranks meet, and each sums the rows of its own tokens, where these are. */
#include "programs/ep/combine.h"

#include "programs/ep/own_sums.h"

WP_PROGRAM(combine, warp, args)
{
    const struct wp_operation op = wp_operation_begin(warp, &args->exchange, &args->message);
    if (op.sequence == WP_SEQUENCE_FAILED)
        return WP_STATUS_FAILED;
    wp_operation_send(&op);
    /* The work that needs no other rank is done while the messages are under way. */
    const struct wp_share share = wp_share_rows(wp_num_launch_warps(warp), args->routing.num_tokens,
                                                wp_units_taken(&args->exchange, op.sequence));
    const int32_t first = wp_first_unit(warp);
    int32_t num_routes = 0;
    if (first < share.num_units)
        num_routes = wp_find_sources(warp, args, wp_unit_part(&share, first).token);
    const enum wp_status status = wp_operation_meet(&op);
    if (status != WP_STATUS_OK)
        return wp_operation_end(&op, status);
    wp_admit_next(warp); /* all ranks have started */
    for (int32_t unit = first; unit < share.num_units;) {
        const struct wp_part part = wp_unit_part(&share, unit);
        const int32_t next = wp_take_unit(warp, &share);
        if (unit != first)
            num_routes = wp_find_sources(warp, args, part.token);
        wp_sum_part(&op, args, &share, part, num_routes);
        unit = wp_taken_unit(warp, next);
    }
    return wp_operation_finish(&op, WP_BLOCKS_AS_TOLD);
}
