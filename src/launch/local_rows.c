/* SPDX-License-Identifier: MIT */
#include "launch/local_rows.h"

/* Where there are fewer rows than warps, several share one: each takes whole words of scales. */
static void divide_rows(struct wp_quantise_args *args, struct weft__grid grid)
{
    enum { MAX_PARTS = 8, GROUPS_OF_WORD = 4 };
    const int64_t num_warps = (int64_t)grid.num_blocks * grid.num_warps;
    const int64_t most = num_warps / args->num_rows;
    const int64_t num_parts = most < 1 ? 1 : most > MAX_PARTS ? MAX_PARTS : most;
    const int64_t step = (int64_t)args->how.group_elements * GROUPS_OF_WORD;
    const int64_t num_steps = (args->num_elements + step - 1) / step;
    args->part_elements = (num_steps + num_parts - 1) / num_parts * step;
    args->num_parts =
        (int32_t)((args->num_elements + args->part_elements - 1) / args->part_elements);
}

weft_result weft__rows_launch(weft_comm *comm, struct wp_quantise_args *args, weft_stream *stream)
{
    const struct weft__work work = {.kind = WEFT__WORK_PULL_TENSOR};
    const struct weft__grid grid = weft__machine_of(comm)->choose_grid(comm, &work);
    WEFT__TRY(weft__status_check(&comm->status));
    if (args->num_rows == 0)
        return WEFT_OK;
    divide_rows(args, grid);
    const struct weft__program_run run = {WP_PROGRAM_quantise, grid, args, sizeof *args, 0, NULL};
    return weft__program_launch(comm, stream, &run);
}
