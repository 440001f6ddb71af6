/* SPDX-License-Identifier: MIT */
/* Programs whose signals, waits and memory are wrong. */
#include "planted.h"

/* A signal that is sent before the data that it tells of. */
JOB_PROGRAM(planted_signal, warp, args)
{
    if (wp_lane_idx(warp) != 0)
        return WP_STATUS_OK;
    if (args->form == FORM_CORRECTED)
        job_write_slot(args->other->slots[args->sequence % 2], args->sequence);
    wp_signal(warp, 1 - args->rank, &args->other->signals[0], args->sequence);
    if (args->form == FORM_PLANTED)
        job_write_slot(args->other->slots[args->sequence % 2], args->sequence);
    if (job_wait(warp, args, &args->own->signals[0], args->sequence) != WP_STATUS_OK)
        return WP_STATUS_FAILED;
    job_check_slot(args, args->own->slots[args->sequence % 2], args->sequence);
    return WP_STATUS_OK;
}

/* Buffers used in turn, by a parity that each handle counts for itself although handles share the
 * buffers: two handles in a row use the same one, which the other rank may still be reading. */
JOB_PROGRAM(planted_parity, warp, args)
{
    if (wp_lane_idx(warp) != 0)
        return WP_STATUS_OK;
    const uint64_t handles_parity = (uint64_t)args->state->counts[args->handle]++ % 2;
    const uint64_t parity = args->form == FORM_PLANTED ? handles_parity : args->sequence % 2;
    job_write_slot(args->other->slots[parity], args->sequence);
    wp_signal(warp, 1 - args->rank, &args->other->signals[0], args->sequence);
    if (job_wait(warp, args, &args->own->signals[0], args->sequence) != WP_STATUS_OK)
        return WP_STATUS_FAILED;
    job_check_slot(args, args->own->slots[parity], args->sequence);
    return WP_STATUS_OK;
}

/* A signal of the same value in every operation: from the second on, the wait is over at once. */
JOB_PROGRAM(planted_epoch, warp, args)
{
    if (wp_lane_idx(warp) != 0)
        return WP_STATUS_OK;
    const uint64_t value = args->form == FORM_PLANTED ? 1 : args->sequence;
    job_write_slot(args->other->slots[args->sequence % 2], args->sequence);
    wp_signal(warp, 1 - args->rank, &args->other->signals[0], value);
    if (job_wait(warp, args, &args->own->signals[0], value) != WP_STATUS_OK)
        return WP_STATUS_FAILED;
    job_check_slot(args, args->own->slots[args->sequence % 2], args->sequence);
    return WP_STATUS_OK;
}

/* Two warps with a barrier each, between their own data on both ranks. With one counter for both
 * barriers, the first to come on one rank meets the first to come on the other, whichever it is. */
JOB_PROGRAM(planted_barrier, warp, args)
{
    const int32_t role = wp_warp_idx(warp);
    const int32_t counter = args->form == FORM_PLANTED ? 0 : role;
    if (wp_lane_idx(warp) != 0)
        return WP_STATUS_OK;
    job_write_slot(args->other->slots[role], args->sequence);
    const int32_t number = wp_add_relaxed(&args->state->counts[counter], 1) + 1;
    wp_signal(warp, 1 - args->rank, &args->other->signals[counter], (uint64_t)number);
    if (job_wait(warp, args, &args->own->signals[counter], (uint64_t)number) != WP_STATUS_OK)
        return WP_STATUS_FAILED;
    job_check_slot(args, args->own->slots[role], args->sequence);
    return WP_STATUS_OK;
}

/* A read of heap memory that nobody has written since it was allocated. */
JOB_PROGRAM(planted_unwritten, warp, args)
{
    if (wp_lane_idx(warp) != 0)
        return WP_STATUS_OK;
    if (args->form == FORM_CORRECTED)
        job_write_slot(args->unwritten->slots[0], args->sequence);
    args->state->seen[0][0] = (int32_t)args->unwritten->slots[0][0];
    return WP_STATUS_OK;
}

/* A write into heap memory that its owner has freed. */
JOB_PROGRAM(planted_freed, warp, args)
{
    if (wp_lane_idx(warp) != 0)
        return WP_STATUS_OK;
    struct job_area *area = args->form == FORM_PLANTED ? args->freed_by_other : args->other;
    job_write_slot(area->slots[0], args->sequence);
    return WP_STATUS_OK;
}

/* A signal that nobody waits for. */
JOB_PROGRAM(planted_unawaited, warp, args)
{
    if (wp_lane_idx(warp) != 0)
        return WP_STATUS_OK;
    wp_signal(warp, 1 - args->rank, &args->other->signals[0], args->sequence);
    if (args->form == FORM_PLANTED)
        wp_signal(warp, 1 - args->rank, &args->other->signals[1], args->sequence);
    return job_wait(warp, args, &args->own->signals[0], args->sequence);
}

/* One slot for all operations, which rank 0 writes without waiting until rank 1 has read it. */
WP_FN enum wp_status write_slot(struct wp_warp *warp, const struct job_args *args)
{
    job_write_slot(args->other->slots[0], args->sequence);
    wp_signal(warp, 1, &args->other->signals[0], args->sequence);
    if (args->form == FORM_PLANTED)
        return WP_STATUS_OK;
    return job_wait(warp, args, &args->own->signals[1], args->sequence);
}

WP_FN enum wp_status read_slot(struct wp_warp *warp, const struct job_args *args)
{
    if (job_wait(warp, args, &args->own->signals[0], args->sequence) != WP_STATUS_OK)
        return WP_STATUS_FAILED;
    job_check_slot(args, args->own->slots[0], args->sequence);
    if (args->form == FORM_CORRECTED)
        wp_signal(warp, 0, &args->other->signals[1], args->sequence);
    return WP_STATUS_OK;
}

JOB_PROGRAM(planted_overwrite, warp, args)
{
    if (wp_lane_idx(warp) != 0)
        return WP_STATUS_OK;
    return args->rank == 0 ? write_slot(warp, args) : read_slot(warp, args);
}

/* A lane that knows from another, by a ballot, that a signal has come. A ballot orders nothing, so
 * its own wait for less than that value may still see the older signal, before the second slot's
 * data. */
enum { FIRST_SLOT_IS_WRITTEN = 1, BOTH_SLOTS_ARE_WRITTEN = 2 };

WP_FN void write_both(struct wp_warp *warp, const struct job_args *args)
{
    job_write_slot(args->other->slots[0], args->sequence);
    wp_signal(warp, 1, &args->other->signals[0], FIRST_SLOT_IS_WRITTEN);
    job_write_slot(args->other->slots[1], args->sequence);
    wp_signal(warp, 1, &args->other->signals[0], BOTH_SLOTS_ARE_WRITTEN);
}

JOB_PROGRAM(planted_stale, warp, args)
{
    const int is_first_lane = wp_lane_idx(warp) == 0;
    if (args->rank == 0) {
        if (is_first_lane)
            write_both(warp, args);
        return WP_STATUS_OK;
    }
    enum wp_status status = WP_STATUS_OK;
    if (is_first_lane)
        status = job_wait(warp, args, &args->own->signals[0], BOTH_SLOTS_ARE_WRITTEN);
    if (wp_ballot(warp, status != WP_STATUS_OK) != 0)
        return WP_STATUS_FAILED;
    if (is_first_lane)
        return WP_STATUS_OK;
    status = job_wait(warp, args, &args->own->signals[0],
                      args->form == FORM_PLANTED ? FIRST_SLOT_IS_WRITTEN : BOTH_SLOTS_ARE_WRITTEN);
    if (status == WP_STATUS_OK)
        job_check_slot(args, args->own->slots[1], args->sequence);
    return status;
}

/* Two signals, of which the second is known from another word: then the wait for the first must see
 * it too. Without that word perhaps nobody sees it. */
JOB_PROGRAM(planted_known, warp, args)
{
    if (wp_lane_idx(warp) != 0)
        return WP_STATUS_OK;
    if (args->rank == 0) {
        write_both(warp, args);
        if (args->form == FORM_CORRECTED)
            wp_signal(warp, 1, &args->other->signals[1], args->sequence);
        return WP_STATUS_OK;
    }
    if (args->form == FORM_CORRECTED &&
        job_wait(warp, args, &args->own->signals[1], args->sequence) != WP_STATUS_OK)
        return WP_STATUS_FAILED;
    return job_wait(warp, args, &args->own->signals[0], FIRST_SLOT_IS_WRITTEN);
}

/* Tickets taken one by one, as if no other lane could take one in between. */
JOB_PROGRAM(planted_tickets, warp, args)
{
    (void)warp;
    int32_t *counter = &args->state->counts[0];
    const int32_t first = wp_add_relaxed(counter, args->form == FORM_PLANTED ? 1 : 2);
    const int32_t second = args->form == FORM_PLANTED ? wp_add_relaxed(counter, 1) : first + 1;
    if (second != first + 1)
        wp_add_relaxed(&args->state->num_wrong, 1);
    return WP_STATUS_OK;
}
