/* SPDX-License-Identifier: MIT */
/* reduce_rows: sums the expanded rows of each row that dispatch has delivered, in the order of its
 * choices. */
#include "programs/ep/reduce_rows.h"

WP_FN void sum_part(struct wp_warp *warp, const struct wp_reduce_rows_args *args,
                    const struct wp_share *share, struct wp_part part)
{
    const struct wp_span span = wp_part_span(share, part.part, args->row_bytes);
    const uint64_t element_bytes = wp_dtype_bytes(args->dtype);
    const uint64_t first =
        (uint64_t)part.token * (args->row_bytes / element_bytes) + span.begin / element_bytes;
    if (span.bytes == 0)
        return;
    const int32_t num_rows =
        wp_choices_find(warp, &args->choices, part.token, args->rows, args->row_bytes, span.begin);
    const struct wp_mixed_sum sum = {num_rows, args->dtype, args->dtype, args->out_dtype,
                                     WP_READ_SOON};
    wp_row_sum_mixed(warp, args->out + first * wp_dtype_bytes(args->out_dtype),
                     wp_warp_pointers(warp), num_rows, sum, (int64_t)(span.bytes / element_bytes));
}

WP_FN void take_weights(struct wp_warp *warp, const struct wp_reduce_rows_args *args, int32_t row)
{
    const int32_t num_topk = args->choices.num_topk;
    for (int32_t k = wp_lane_idx(warp); k < num_topk; k += WP_WARP_SIZE) {
        const int32_t expanded = wp_choice_row(&args->choices, row, k);
        args->topk_weights[(int64_t)row * num_topk + k] =
            expanded < 0 ? 0.0f : args->row_weights[expanded];
    }
}

WP_PROGRAM(reduce_rows, warp, args)
{
    const struct wp_share share = wp_choices_share(warp, &args->choices);
    wp_admit_next(warp); /* it waits for nobody */
    for (int32_t unit = wp_first_unit(warp); unit < share.num_units; unit += share.num_warps) {
        const struct wp_part part = wp_unit_part(&share, unit);
        sum_part(warp, args, &share, part);
        if (part.part == 0 && args->row_weights != NULL)
            take_weights(warp, args, part.token);
    }
    return WP_STATUS_OK;
}
