/* SPDX-License-Identifier: MIT */
/*
 * low_latency_unmask: the ranks that are not in the given mask begin anew together, as if their weft_ll
 * had just been made; so it does not matter how far each of them was. Each block does it with the same
 * block of the others, in two steps, each told by the epoch in a word of its own:
 *
 *     stopped   nothing of this rank's earlier launches is under way
 *     clean     the words here that the others signal are zero
 *
 * A rank clears its words when all have stopped, since what they sent before could come later else, and
 * sends nothing before all are clean. Words of a rank that does not take part are left alone: it may
 * still signal them. Who does not come in time stays masked.
 */
#include "programs/low_latency_unmask.h"

enum step { STOPPED = WP_LL_ROWS, CLEAN = WP_LL_ANSWERS }; /* in the place of mails */

/* Two deadlines: these ranks may be in different steps of their callers. */
enum { PERIODS = 2 * WP_LL_PERIODS };

WP_FN int takes_part(const struct wp_ll_run *run, const int32_t *mask, int32_t rank)
{
    return rank == run->ll->exchange.rank || (mask[rank] == 0 && wp_ll_missing(run)[rank] == 0);
}

WP_FN enum wp_status await_step(const struct wp_ll_run *run,
                                const struct wp_low_latency_unmask_args *args, enum step step,
                                int32_t rank)
{
    const struct wp_low_latency *ll = run->ll;
    const struct wp_wait_site site = wp_ll_site(run, WP_PHASE_START, rank);
    const uint64_t *word = wp_ll_word(ll, ll->exchange.rank, WP_LL_RETURNED, (enum wp_ll_mail)step,
                                      rank, wp_block_idx(run->op.warp));
    struct wp_ll_patience patience = wp_ll_patience(PERIODS, ll->exchange.num_ranks);
    enum wp_status status;
    do {
        status = wp_wait(run->op.warp, word, args->epoch, &site);
    } while (status == WP_STATUS_ABSENT && wp_ll_goes_on_waiting(run, args->mask, rank, &patience));
    return status;
}

/* By all warps, which meet: tells those that take part of a step, and waits for it; those that do not
 * come are missing. */
WP_FN enum wp_status pass(const struct wp_ll_run *run,
                          const struct wp_low_latency_unmask_args *args, enum step step)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_low_latency *ll = run->ll;
    const enum wp_ll_mail mail = (enum wp_ll_mail)step;
    const int32_t own = ll->exchange.rank, block = wp_block_idx(warp);
    enum wp_status status = WP_STATUS_OK;
    wp_block_sync(warp);
    wp_fence_launches(warp); /* what has been cleared; a credit is behind loads alone */
    for (int32_t i = wp_lane_idx(warp); i < ll->exchange.num_ranks && wp_warp_idx(warp) == 0;
         i += WP_WARP_SIZE) {
        const int32_t rank = wp_rank_after(&ll->exchange, i);
        if (takes_part(run, args->mask, rank))
            wp_credit(warp, rank, wp_ll_word(ll, rank, WP_LL_RETURNED, mail, own, block),
                      args->epoch);
    }
    for (int32_t i = wp_lane_idx(warp);
         i < ll->exchange.num_ranks && wp_warp_idx(warp) == 0 && status != WP_STATUS_FAILED;
         i += WP_WARP_SIZE) {
        const int32_t rank = wp_rank_after(&ll->exchange, i);
        if (!takes_part(run, args->mask, rank))
            continue;
        status = await_step(run, args, step, rank);
        if (status == WP_STATUS_ABSENT)
            wp_ll_missing(run)[rank] = 1;
    }
    status = status == WP_STATUS_ABSENT ? WP_STATUS_OK : status;
    return (enum wp_status)wp_block_max_again(warp, (uint32_t)status);
}

/* By all warps: the words of this block, and by the last one the heads, of those that take part. */
WP_FN void clear(const struct wp_ll_run *run, const int32_t *mask)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_low_latency *ll = run->ll;
    const int32_t own = ll->exchange.rank, block = wp_block_idx(warp);
    const int has_heads = ll->plan.is_by_expert && block == ll->plan.num_blocks - 1;
    for (int32_t rank = wp_warp_idx(warp); rank < ll->exchange.num_ranks;
         rank += wp_num_warps(warp)) {
        if (wp_ballot(warp, takes_part(run, mask, rank)) == 0)
            continue;
        for (int32_t i = wp_lane_idx(warp); i < 2 * WP_LL_NUM_MAILS; i += WP_WARP_SIZE)
            wp_clear(wp_ll_word(ll, own, (enum wp_ll_words)(i / WP_LL_NUM_MAILS),
                                (enum wp_ll_mail)(i % WP_LL_NUM_MAILS), rank, block));
        for (int32_t half = 0; half < ll->plan.num_halves && has_heads; half++)
            wp_tagged_send(warp, own, wp_ll_head(ll, own, (uint64_t)half, rank), ll->expert_bases,
                           ll->plan.max_local_experts, 0);
    }
}

/* By the last block: the new mask is the given one, and who was missing for any block. */
WP_FN void renew_mask(const struct wp_ll_run *run, const int32_t *mask)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_low_latency *ll = run->ll;
    const struct wp_ll_masks *masks = &ll->masks;
    const int32_t num_ranks = ll->exchange.num_ranks;
    for (int32_t rank = wp_warp_idx(warp) * WP_WARP_SIZE + wp_lane_idx(warp); rank < num_ranks;
         rank += wp_num_warps(warp) * WP_WARP_SIZE) {
        int is_masked = mask[rank] != 0;
        for (int32_t block = 0; block < ll->plan.num_blocks; block++)
            is_masked |= masks->missing[(int64_t)block * num_ranks + rank] != 0;
        masks->mask[rank] = is_masked && rank != ll->exchange.rank;
        masks->verdicts[rank] = 0;
    }
}

WP_PROGRAM(low_latency_unmask, warp, args)
{
    struct wp_ll_run run = wp_ll_begin(warp, &args->ll);
    const struct wp_ll_numbers none = {0, 0, 0, 0, 0, 0};
    if (run.op.sequence == WP_SEQUENCE_FAILED)
        return WP_STATUS_FAILED;
    for (int32_t rank = wp_warp_idx(warp) * WP_WARP_SIZE + wp_lane_idx(warp);
         rank < args->ll.exchange.num_ranks; rank += wp_num_warps(warp) * WP_WARP_SIZE)
        wp_ll_missing(&run)[rank] = 0;
    enum wp_status status = pass(&run, args, STOPPED);
    if (status == WP_STATUS_OK) {
        clear(&run, args->mask);
        status = pass(&run, args, CLEAN);
    }
    if (status == WP_STATUS_OK && wp_is_last_block(warp, args->ll.masks.num_blocks_done))
        renew_mask(&run, args->mask);
    run.numbers = none;
    return wp_ll_end(&run, status);
}
