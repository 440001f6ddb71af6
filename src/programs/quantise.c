/* SPDX-License-Identifier: MIT */
/* quantise: rows inside this rank's memory to rows with scales, or back. */
#include "programs/quantise.h"

#include "programs/block.h"

/* A part of a row. */
struct wp_scaled_part {
    const char *src;
    char *dst;
    char *scales;
    int64_t num_elements;
};

WP_FN struct wp_scaled_part find_part(const struct wp_quantise_args *args, int64_t unit)
{
    const struct wp_quantisation how = args->how;
    const uint64_t row = (uint64_t)(unit / args->num_parts);
    const int64_t first = unit % args->num_parts * args->part_elements;
    const int64_t rest = first < args->num_elements ? args->num_elements - first : 0;
    const struct wp_scaled_part part = {
        args->src + row * args->src_stride_bytes + wp_elements_bytes(how.src_dtype, first),
        args->dst + row * args->dst_stride_bytes + wp_elements_bytes(how.dst_dtype, first),
        args->scales + row * args->scales_stride_bytes +
            wp_scale_offset(how, first / how.group_elements),
        rest < args->part_elements ? rest : args->part_elements};
    return part;
}

/* As row operations take them: a row, and its scales. */
WP_FN const void **put_pointers(struct wp_warp *warp, const void *row, const void *scales)
{
    const void **pointers = wp_warp_pointers(warp);
    wp_warp_sync(warp); /* the previous ones have been used */
    if (wp_lane_idx(warp) == 0) {
        pointers[0] = row;
        pointers[1] = scales;
    }
    wp_warp_sync(warp);
    return pointers;
}

WP_FN void quantise_part(struct wp_warp *warp, struct wp_quantisation how,
                         struct wp_scaled_part part)
{
    const void **dsts = put_pointers(warp, part.dst, part.scales);
    const struct wp_quantised_rows to = {dsts, dsts + 1, 0, 1};
    wp_row_quantise(warp, to, part.src, how, part.num_elements);
}

WP_PROGRAM(quantise, warp, args)
{
    const int64_t num_units = args->num_rows * args->num_parts;
    const int32_t num_warps = wp_num_launch_warps(warp);
    wp_admit_next(warp); /* it waits for nobody */
    for (int64_t unit = wp_launch_warp_idx(warp); unit < num_units; unit += num_warps) {
        const struct wp_scaled_part part = find_part(args, unit);
        if (args->direction == WP_QUANTISE)
            quantise_part(warp, args->how, part);
        else
            wp_row_dequantise(warp, part.dst, part.src, part.scales, args->how, part.num_elements);
    }
    return WP_STATUS_OK;
}
