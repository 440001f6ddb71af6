/* SPDX-License-Identifier: MIT */
/* Row operations that are taken for done when they have returned: a warp sync does not end them,
 * only a block sync or a signal of each lane does. */
#include "planted.h"

enum { COPY_LINE = __LINE__ + 9 };

/* Slot 0 of this rank to `dst`. The pointers can be used again once all lanes have returned. */
WP_FN void copy_slot(struct wp_warp *warp, const struct job_args *args, uint64_t *dst)
{
    const void **dsts = wp_warp_pointers(warp);
    if (wp_lane_idx(warp) == 0)
        dsts[0] = dst;
    wp_warp_sync(warp);
    wp_row_copy(warp, dsts, 1, args->own->slots[0], sizeof args->own->slots[0]);
    wp_warp_sync(warp);
    if (wp_lane_idx(warp) == 0)
        dsts[0] = NULL;
}

const int row_copy_line = COPY_LINE;

WP_FN void sync_as(struct wp_warp *warp, enum form form)
{
    if (form == FORM_PLANTED)
        wp_warp_sync(warp);
    else
        wp_block_sync(warp);
}

/* What was written is read. */
JOB_PROGRAM(planted_row_read, warp, args)
{
    copy_slot(warp, args, args->own->slots[1]);
    sync_as(warp, args->form);
    job_check_slot(args, args->own->slots[1], 0);
    return WP_STATUS_OK;
}

/* Two rows become one, which is written over the second and to another place, and read there. */
JOB_PROGRAM(planted_row_reduce, warp, args)
{
    uint64_t *first = args->own->slots[0], *second = args->own->slots[1];
    uint64_t *copy = args->unwritten->slots[0];
    const struct wp_reduction sum = {WEFT_INT64, WP_REDUCTION_SUM, 0};
    const void **pointers = wp_warp_pointers(warp);
    if (wp_lane_idx(warp) == 0) {
        job_write_slot(first, args->sequence);
        job_write_slot(second, 2 * args->sequence);
        pointers[0] = first;
        pointers[1] = NULL;
        pointers[2] = second; /* read as the last row, written as the first */
        pointers[3] = copy;
    }
    wp_warp_sync(warp);
    wp_row_reduce(warp, pointers + 2, 2, pointers, 3, sum, JOB_SLOT_WORDS);
    sync_as(warp, args->form);
    job_check_slot(args, second, 3 * args->sequence);
    job_check_slot(args, copy, 3 * args->sequence);
    wp_warp_sync(warp);
    return WP_STATUS_OK;
}

enum { NUM_ELEMENTS = 4 * JOB_SLOT_WORDS }; /* of bf16, in a slot */

/* A row of bf16 whose words are different, 1, 2, 3 and 4; and three times that. */
static const uint64_t once[JOB_SLOT_WORDS] = {0x3f803f803f803f80, 0x4000400040004000,
                                              0x4040404040404040, 0x4080408040804080};
static const uint64_t thrice[JOB_SLOT_WORDS] = {0x4040404040404040, 0x40c040c040c040c0,
                                                0x4110411041104110, 0x4140414041404140};

WP_FN void check_thrice(const struct job_args *args, const uint64_t *slot)
{
    for (int32_t i = 0; i < JOB_SLOT_WORDS; i++) {
        if (slot[i] != thrice[i])
            wp_add_relaxed(&args->state->num_wrong, 1);
    }
}

/* Two rows of bf16 become one of fp32, twice as long, and that with a third one bf16 again. */
JOB_PROGRAM(planted_row_sum, warp, args)
{
    uint64_t *src = args->own->slots[0], *dst = args->own->slots[1];
    const struct wp_mixed_sum to_fp32 = {3, WEFT_BF16, WEFT_FP32, WEFT_FP32, WP_READ_SOON};
    const struct wp_mixed_sum to_bf16 = {1, WEFT_BF16, WEFT_FP32, WEFT_BF16, WP_READ_SOON};
    const void **pointers = wp_warp_pointers(warp);
    if (wp_lane_idx(warp) == 0) {
        for (int32_t i = 0; i < JOB_SLOT_WORDS; i++)
            src[i] = once[i];
        pointers[0] = src;
        pointers[1] = NULL;
        pointers[2] = src;
        pointers[3] = args->unwritten->slots; /* both */
    }
    wp_warp_sync(warp);
    wp_row_sum_mixed(warp, args->unwritten->slots, pointers, 3, to_fp32, NUM_ELEMENTS);
    sync_as(warp, args->form);
    wp_row_sum_mixed(warp, dst, pointers + 2, 2, to_bf16, NUM_ELEMENTS);
    wp_block_sync(warp);
    check_thrice(args, dst);
    wp_warp_sync(warp);
    return WP_STATUS_OK;
}

/* Twice a row, and the row. The weights can be used again at once. */
JOB_PROGRAM(planted_row_weighted, warp, args)
{
    uint64_t *src = args->own->slots[0], *dst = args->own->slots[1];
    const struct wp_weighted_sum sum = {WEFT_BF16, WEFT_BF16, WP_READ_LATER};
    const void **pointers = wp_warp_pointers(warp);
    float *weights = (float *)wp_warp_shared(warp);
    if (wp_lane_idx(warp) == 0) {
        for (int32_t i = 0; i < JOB_SLOT_WORDS; i++)
            src[i] = once[i];
        for (int32_t i = 0; i < 3; i++) {
            pointers[i] = i == 1 ? NULL : src;
            weights[i] = (float)(2 - i / 2);
        }
    }
    wp_warp_sync(warp);
    wp_row_weighted_sum(warp, dst, pointers, weights, 3, sum, NUM_ELEMENTS);
    wp_warp_sync(warp);
    if (wp_lane_idx(warp) == 0)
        weights[0] = 0;
    sync_as(warp, args->form);
    check_thrice(args, dst);
    wp_warp_sync(warp);
    return WP_STATUS_OK;
}

/* The same row as FP8 with a scale for each word, and back. */
JOB_PROGRAM(planted_row_quantise, warp, args)
{
    enum { GROUP = 4, SCALES_OFFSET = NUM_ELEMENTS };
    uint64_t *src = args->own->slots[0], *dst = args->own->slots[1];
    char *narrow = (char *)args->unwritten->slots; /* two of them */
    const struct wp_quantisation there = {WEFT_BF16, WEFT_FP8_E4M3, WP_SCALE_FP32, GROUP, 0};
    const struct wp_quantisation back = {WEFT_FP8_E4M3, WEFT_BF16, WP_SCALE_FP32, GROUP, 0};
    const void **pointers = wp_warp_pointers(warp);
    if (wp_lane_idx(warp) == 0) {
        for (int32_t i = 0; i < JOB_SLOT_WORDS; i++)
            src[i] = thrice[i];
        pointers[0] = NULL;
        pointers[1] = narrow;
    }
    wp_warp_sync(warp);
    const struct wp_quantised_rows to = {pointers, pointers, SCALES_OFFSET, 2};
    wp_row_quantise(warp, to, src, there, NUM_ELEMENTS);
    sync_as(warp, args->form);
    wp_row_dequantise(warp, dst, narrow, narrow + SCALES_OFFSET, back, NUM_ELEMENTS);
    wp_block_sync(warp);
    check_thrice(args, dst);
    wp_warp_sync(warp);
    return WP_STATUS_OK;
}

/* What is read is overwritten. */
JOB_PROGRAM(planted_row_source, warp, args)
{
    copy_slot(warp, args, args->own->slots[1]);
    sync_as(warp, args->form);
    if (wp_lane_idx(warp) == 0)
        job_write_slot(args->own->slots[0], args->sequence);
    return WP_STATUS_OK;
}

/* What was written is told of, but not by all lanes that may have written it. */
JOB_PROGRAM(planted_row_signal, warp, args)
{
    const int32_t lane = wp_lane_idx(warp);
    const int32_t num_signals = args->form == FORM_PLANTED ? 1 : WP_WARP_SIZE;
    copy_slot(warp, args, args->other->slots[1]);
    if (lane < num_signals)
        wp_signal(warp, 1 - args->rank, &args->other->signals[lane], args->sequence);
    for (int32_t i = 0; i < num_signals && lane == 0; i++) {
        if (job_wait(warp, args, &args->own->signals[i], args->sequence) != WP_STATUS_OK)
            return WP_STATUS_FAILED;
    }
    if (lane == 0)
        job_check_slot(args, args->own->slots[1], 0);
    return WP_STATUS_OK;
}

/* Rank 0 copies a row to rank 1, which looks whether it has come, and whether a word has that rank
 * 0 wrote after the warp sync. */
JOB_PROGRAM(late_rows, warp, args)
{
    if (args->rank == 0) {
        if (wp_lane_idx(warp) == 0)
            job_write_slot(args->own->slots[0], 1);
        wp_warp_sync(warp);
        copy_slot(warp, args, args->other->slots[0]);
        if (wp_lane_idx(warp) == 0)
            args->other->slots[1][0] = 1;
    }
    for (int32_t i = 0; i < JOB_LOOKS; i++)
        job_look(warp, args, i);
    return WP_STATUS_OK;
}
