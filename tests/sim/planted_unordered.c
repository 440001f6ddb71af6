/* SPDX-License-Identifier: MIT */
/* Accesses that nothing orders, for tests of what the checker says and of the weak memory. */
#include "planted.h"

enum { WRITE_LINE = __LINE__ + 3 };
WP_FN void write_word(uint64_t *word)
{
    *word = 1;
}

enum { READ_LINE = __LINE__ + 3 };
WP_FN uint64_t read_word(const uint64_t *word)
{
    return *word;
}

const int unordered_write_line = WRITE_LINE, unordered_read_line = READ_LINE;

/* Rank 0 writes what rank 1 reads. */
JOB_PROGRAM(unordered, warp, args)
{
    if (wp_lane_idx(warp) != 0)
        return WP_STATUS_OK;
    if (args->rank == 0)
        write_word(&args->other->slots[0][0]);
    else
        args->state->seen[0][0] = (int32_t)read_word(&args->own->slots[0][0]);
    return WP_STATUS_OK;
}

/* Rank 0 writes two words, the first one first, and releases neither before rank 1 has looked. */
JOB_PROGRAM(relaxed, warp, args)
{
    if (args->rank == 0 && wp_lane_idx(warp) == 0) {
        write_word(&args->other->slots[0][0]);
        write_word(&args->other->slots[1][0]);
    }
    for (int32_t i = 0; i < JOB_LOOKS; i++)
        job_look(warp, args, i);
    return WP_STATUS_OK;
}

/* Rank 0 writes to rank 1's memory, whatever became of it. */
JOB_PROGRAM(late_write, warp, args)
{
    if (args->rank == 0 && wp_lane_idx(warp) == 0)
        write_word(&args->other->slots[0][0]);
    return WP_STATUS_OK;
}
