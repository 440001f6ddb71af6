/* SPDX-License-Identifier: MIT */
/*
 * Ranks that low latency goes on without. A rank whose word does not come in time is masked: from then
 * on it is neither sent to nor awaited. Each rank masks for itself. What two ranks have between them is
 * theirs alone, words and slots, so that nobody else is harmed when one of them masks the other, or is
 * late and writes long after it has been masked.
 *
 * Who waits in vain is late for those who do not, and must not be taken for missing itself. So deadlines
 * differ: that of rows is longer by a quarter than that of room, since others may have waited for room
 * before they send, and that of answers by another quarter; that of the first numbers is longer than that of weft_ll_unmask, which they follow, and
 * falls from there so that each is longer than what may be left of the one before.
 *
 * Within a launch the mask only grows. Who sends looks whenever it writes, and again before it tells, when
 * the block has met: so nobody is told of what a warp has left out. Who receives uses what one warp has
 * found for all of its block.
 */
#ifndef WEFT_PROGRAMS_LOW_LATENCY_MASKS_H
#define WEFT_PROGRAMS_LOW_LATENCY_MASKS_H

#include "programs/block.h"

struct wp_ll_masks { /* of this rank */
    uint32_t
        absent_after_ms; /* of every wait; 0: who is missing fails the launch, and there are no masks */
    int32_t *mask;       /* [num_ranks] nonzero: masked */
    int32_t *missing;          /* [num_blocks][num_ranks] the block goes on without it */
    int32_t *verdicts;         /* [num_ranks] of heads: number << 1, and whether it is there */
    uint32_t *num_blocks_done; /* zero between launches */
};

/* The deadline of waits about a number. */
WP_FN uint32_t wp_ll_patience_ms(const struct wp_ll_masks *masks, uint64_t number)
{
    const uint32_t ms = masks->absent_after_ms;
    return number >= 3 ? ms : number == 2 ? ms + ms / 2 : 3 * ms;
}

WP_FN int wp_ll_has_masks(const struct wp_ll_masks *masks)
{
    return masks->absent_after_ms > 0;
}

WP_FN int wp_ll_is_masked(const struct wp_ll_masks *masks, int32_t rank)
{
    return wp_ll_has_masks(masks) && wp_load_relaxed(&masks->mask[rank]) != 0;
}

WP_FN void wp_ll_mask_out(const struct wp_ll_masks *masks, int32_t rank)
{
    wp_compare_swap_relaxed(&masks->mask[rank], 0, 1);
}

/* Blocks must use the same heads, since these tell where rows are packed: the first that has taken the
 * head of a rank, or has given up, decides for all. */
WP_FN int wp_ll_decide_presence(const struct wp_ll_masks *masks, int32_t rank, uint64_t number,
                                int is_there)
{
    int32_t *verdict = &masks->verdicts[rank];
    const uint32_t which = (uint32_t)number << 1;
    const uint32_t before = (uint32_t)wp_load_relaxed(verdict);
    const uint32_t own = which | (uint32_t)is_there;
    uint32_t standing = before;
    if ((before & ~1u) != which) {
        const uint32_t seen =
            (uint32_t)wp_compare_swap_relaxed(verdict, (int32_t)before, (int32_t)own);
        standing = seen == before ? own : seen;
    }
    return (int)(standing & 1u);
}

#endif
