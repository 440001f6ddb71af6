/* SPDX-License-Identifier: MIT */
/* low_latency_release: ends the oldest result without an answer, or after one that let it stay. */
#include "programs/low_latency_release.h"

WP_PROGRAM(low_latency_release, warp, args)
{
    struct wp_ll_run run = wp_ll_begin(warp, &args->ll);
    if (run.op.sequence == WP_SEQUENCE_FAILED)
        return WP_STATUS_FAILED;
    struct wp_ll_numbers *numbers = &run.numbers;
    const uint64_t result = numbers->rows_answered + 1;
    if (result > numbers->rows_received || numbers->answers_sent != numbers->answers_received)
        return wp_ll_end(&run, wp_ll_fail(&run, numbers->rows_received, result));
    const struct wp_ll_room room = {result, 0};
    wp_ll_tell_room(&run, room);
    numbers->rows_answered = result;
    numbers->rows_ended = result;
    return wp_ll_end(&run, WP_STATUS_OK);
}
