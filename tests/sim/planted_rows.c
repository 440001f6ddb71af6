/* SPDX-License-Identifier: MIT */
/* Row operations that are taken for done when they have returned: a warp sync does not end them, only
 * a block sync or a signal of each lane does. */
#include "planted.h"

enum { COPY_LINE = __LINE__ + 9 };

/* Slot 0 of this rank to `dst`. The pointers can be used again as soon as all lanes have returned. */
WEFT_FN void copy_slot(struct weft_warp *warp, const struct job_args *args, uint64_t *dst)
{
    const void **dsts = weft_warp_pointers(warp);
    if (weft_lane_idx(warp) == 0)
        dsts[0] = dst;
    weft_warp_sync(warp);
    weft_row_copy(warp, dsts, 1, args->own->slots[0], sizeof args->own->slots[0]);
    weft_warp_sync(warp);
    if (weft_lane_idx(warp) == 0)
        dsts[0] = NULL;
}

const int row_copy_line = COPY_LINE;

WEFT_FN void sync_as(struct weft_warp *warp, enum form form)
{
    if (form == FORM_PLANTED)
        weft_warp_sync(warp);
    else
        weft_block_sync(warp);
}

/* What was written is read. */
WEFT_PROGRAM(planted_row_read, warp, args)
{
    copy_slot(warp, args, args->own->slots[1]);
    sync_as(warp, args->form);
    job_check_slot(args, args->own->slots[1], 0);
    return WEFT_STATUS_OK;
}

/* Two rows become one, which is written over the second and to another place, and read there. */
WEFT_PROGRAM(planted_row_reduce, warp, args)
{
    uint64_t *first = args->own->slots[0], *second = args->own->slots[1];
    uint64_t *copy = args->unwritten->slots[0];
    const struct weft_reduction sum = {WEFT_INT64, WEFT_REDUCTION_SUM};
    const void **pointers = weft_warp_pointers(warp);
    if (weft_lane_idx(warp) == 0) {
        job_write_slot(first, args->sequence);
        job_write_slot(second, 2 * args->sequence);
        pointers[0] = first;
        pointers[1] = NULL;
        pointers[2] = second; /* read as the last row, written as the first */
        pointers[3] = copy;
    }
    weft_warp_sync(warp);
    weft_row_reduce(warp, pointers + 2, 2, pointers, 3, sum, JOB_SLOT_WORDS);
    sync_as(warp, args->form);
    job_check_slot(args, second, 3 * args->sequence);
    job_check_slot(args, copy, 3 * args->sequence);
    weft_warp_sync(warp);
    return WEFT_STATUS_OK;
}

/* Two rows of bf16 become one of fp32, twice as long, and that with a third one bf16 again. Their words are
 * different: 1, 2, 3 and 4. */
WEFT_PROGRAM(planted_row_sum, warp, args)
{
    enum { NUM_ELEMENTS = 4 * JOB_SLOT_WORDS }; /* of bf16, in a slot */
    static const uint64_t once[JOB_SLOT_WORDS] = {0x3f803f803f803f80, 0x4000400040004000,
                                                  0x4040404040404040, 0x4080408040804080};
    static const uint64_t thrice[JOB_SLOT_WORDS] = {0x4040404040404040, 0x40c040c040c040c0,
                                                    0x4110411041104110, 0x4140414041404140};
    uint64_t *src = args->own->slots[0], *dst = args->own->slots[1];
    const struct weft_mixed_sum to_fp32 = {3, WEFT_BF16, WEFT_FP32, WEFT_FP32, WEFT_READ_SOON};
    const struct weft_mixed_sum to_bf16 = {1, WEFT_BF16, WEFT_FP32, WEFT_BF16, WEFT_READ_SOON};
    const void **pointers = weft_warp_pointers(warp);
    if (weft_lane_idx(warp) == 0) {
        for (int32_t i = 0; i < JOB_SLOT_WORDS; i++)
            src[i] = once[i];
        pointers[0] = src;
        pointers[1] = NULL;
        pointers[2] = src;
        pointers[3] = args->unwritten->slots; /* both */
    }
    weft_warp_sync(warp);
    weft_row_sum_mixed(warp, args->unwritten->slots, pointers, 3, to_fp32, NUM_ELEMENTS);
    sync_as(warp, args->form);
    weft_row_sum_mixed(warp, dst, pointers + 2, 2, to_bf16, NUM_ELEMENTS);
    weft_block_sync(warp);
    for (int32_t i = 0; i < JOB_SLOT_WORDS; i++) {
        if (dst[i] != thrice[i])
            weft_add_relaxed(&args->state->num_wrong, 1);
    }
    weft_warp_sync(warp);
    return WEFT_STATUS_OK;
}

/* What is read is overwritten. */
WEFT_PROGRAM(planted_row_source, warp, args)
{
    copy_slot(warp, args, args->own->slots[1]);
    sync_as(warp, args->form);
    if (weft_lane_idx(warp) == 0)
        job_write_slot(args->own->slots[0], args->sequence);
    return WEFT_STATUS_OK;
}

/* What was written is told of, but not by all lanes that may have written it. */
WEFT_PROGRAM(planted_row_signal, warp, args)
{
    const int32_t lane = weft_lane_idx(warp);
    const int32_t num_signals = args->form == FORM_PLANTED ? 1 : WEFT_WARP_SIZE;
    copy_slot(warp, args, args->other->slots[1]);
    if (lane < num_signals)
        weft_signal(warp, 1 - args->rank, &args->other->signals[lane], args->sequence);
    for (int32_t i = 0; i < num_signals && lane == 0; i++) {
        if (job_wait(warp, args, &args->own->signals[i], args->sequence) != WEFT_STATUS_OK)
            return WEFT_STATUS_FAILED;
    }
    if (lane == 0)
        job_check_slot(args, args->own->slots[1], 0);
    return WEFT_STATUS_OK;
}

/* Rank 0 copies a row to rank 1, which looks whether it has come, and whether a word has that rank 0
 * wrote after the warp sync. */
WEFT_PROGRAM(late_rows, warp, args)
{
    if (args->rank == 0) {
        if (weft_lane_idx(warp) == 0)
            job_write_slot(args->own->slots[0], 1);
        weft_warp_sync(warp);
        copy_slot(warp, args, args->other->slots[0]);
        if (weft_lane_idx(warp) == 0)
            args->other->slots[1][0] = 1;
    }
    for (int32_t i = 0; i < JOB_LOOKS; i++)
        job_look(warp, args, i);
    return WEFT_STATUS_OK;
}
