/* SPDX-License-Identifier: MIT */
/*
 * Ranks that low latency goes on without. A rank whose word does not come in time is masked: from then
 * on it is neither sent to nor awaited. Each rank masks for itself. What two ranks have between them is
 * theirs alone, words and slots, so that nobody else is harmed when one of them masks the other, or is
 * late and writes long after it has been masked.
 *
 * Who waits in vain is late for those who do not, and must not be taken for missing itself. So whoever
 * waits long says so: a wait goes in periods, and after each one in vain the rank raises its word on all
 * others, WP_LL_WAITS. A rank is missing when it has said nothing, neither what is awaited nor that it
 * waits, for a deadline. Ranks that wait for each other in a circle, as after different calls, would
 * excuse each other for ever; so there are as many periods for each rank as a first word has, and no
 * more. And who has stopped to begin anew (low_latency_unmask.c) sends nothing more to those who have not,
 * which it may have masked, and may be waiting for one that waits for them: that it waits is no news.
 *
 * Within a launch the mask only grows. With signals a block goes by what one of its warps has found, when it waited for all,
 * and keeps that near: so nobody is told of what a warp has left out. Who is masked meanwhile still gets what the block sends,
 * which harms nobody. In packets each warp goes by what it knows itself (low_latency/packet_masks.h).
 */
#pragma once

#include "programs/block.h"

struct wp_ll_masks { /* of this rank */
    uint32_t
        absent_after_ms; /* the deadline; 0: who is missing fails the launch, and there are no masks */
    int32_t *mask;       /* [num_ranks] nonzero: masked */
    /* [num_blocks][num_ranks] whom a block goes on without: of low_latency_unmask.c, and where its memory has no room */
    int32_t *missing;
    int32_t *verdicts;         /* [num_ranks] of heads: number << 1, and whether it is there */
    uint32_t *num_blocks_done; /* that wait for nobody any more; zero between launches */
};

/* How long a wait goes on in vain, in periods. */
enum { WP_LL_PERIODS = 4 /* of a deadline */, WP_LL_PERIODS_OF_FIRST = 12 };

struct wp_ll_patience {
    int32_t num_silent;  /* in a row, without a word of the awaited rank; */
    int32_t most_silent; /* then it is missing */
    int32_t num_left;    /* whatever it says */
    uint64_t heard; /* its word at the end of the last period: what it said before is no news */
};

#define WP_LL_HEARD_NOTHING UINT64_MAX /* at first */

/* The awaited rank may wait for another one as long as for a first word, whatever is awaited of itself. */
WP_FN struct wp_ll_patience wp_ll_patience(int32_t most_silent, int32_t num_ranks)
{
    const struct wp_ll_patience patience = {0, most_silent, WP_LL_PERIODS_OF_FIRST * num_ranks,
                                            WP_LL_HEARD_NOTHING};
    return patience;
}

/* Ranks make their first launches at different times. */
WP_FN struct wp_ll_patience wp_ll_patience_about(uint64_t number, int32_t num_ranks)
{
    return wp_ll_patience(number == 1 ? WP_LL_PERIODS_OF_FIRST : WP_LL_PERIODS, num_ranks);
}

/* Variants define this macro (low_latency/hints.h). */
#ifndef WP_LL_HAS_MASKS
#define WP_LL_HAS_MASKS(masks) ((masks)->absent_after_ms > 0)
#endif

WP_FN int wp_ll_has_masks(const struct wp_ll_masks *masks)
{
    (void)masks; /* some need not look */
    return WP_LL_HAS_MASKS(masks);
}

/* 0 without masks. */
WP_FN uint32_t wp_ll_period_ms(const struct wp_ll_masks *masks)
{
    return wp_ll_has_masks(masks) ? (masks->absent_after_ms + WP_LL_PERIODS - 1) / WP_LL_PERIODS
                                  : 0;
}

WP_FN int wp_ll_is_masked(const struct wp_ll_masks *masks, int32_t rank)
{
    return wp_ll_has_masks(masks) && wp_load_relaxed(&masks->mask[rank]) != 0;
}

/* What missing_ranks tells of a rank. */
enum wp_ll_missing { WP_LL_THERE, WP_LL_MASKED };

WP_FN void wp_ll_mask_out(const struct wp_ll_masks *masks, int32_t rank)
{
    wp_compare_swap_relaxed(&masks->mask[rank], 0, 1);
}

/* Blocks must use the same heads, since these tell where rows are packed: the first that has taken the
 * head of a rank, or has given up, decides for all. */
WP_FN int wp_ll_decide_presence(const struct wp_ll_masks *masks, int32_t rank, uint64_t number,
                                int is_there)
{
    const uint32_t which = (uint32_t)number << 1;
    const uint32_t own = which | (uint32_t)is_there;
    uint32_t before = (which - 2) | 1; /* mostly: it was there the last time */
    for (;;) {
        const uint32_t seen = (uint32_t)wp_compare_swap_relaxed(&masks->verdicts[rank],
                                                                (int32_t)before, (int32_t)own);
        if (seen == before)
            return is_there;
        if ((seen & ~1u) == which)
            return (int)(seen & 1u);
        before = seen;
    }
}
