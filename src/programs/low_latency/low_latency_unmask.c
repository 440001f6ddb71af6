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
 * sends nothing before all are clean. So does it with packets. Words of a rank that does not take part are left alone: it may
 * still signal them. Who does not come in time stays masked.
 */
#include "programs/low_latency/packets.h"
#include "programs/low_latency/protocol.h"

/* Two deadlines: these ranks may be in different steps of their callers. */
enum { PERIODS = 2 * WP_LL_PERIODS };

/* The ranks that a block goes on without, as the last one learns: [num_ranks]. */
WP_FN int32_t *missing_of(const struct wp_low_latency *ll, int32_t block)
{
    return ll->masks.missing + (int64_t)block * ll->exchange.num_ranks;
}

WP_FN int32_t *missing(const struct wp_ll_run *run)
{
    return missing_of(run->ll, wp_block_idx(run->op.warp));
}

WP_FN int takes_part(const struct wp_ll_run *run, const int32_t *mask, int32_t rank)
{
    return rank == run->ll->exchange.rank || (mask[rank] == 0 && missing(run)[rank] == 0);
}

/* By all lanes, alike. */
WP_FN int warp_takes_part(const struct wp_ll_run *run, const int32_t *mask, int32_t rank)
{
    return wp_ballot(run->op.warp, takes_part(run, mask, rank)) != 0;
}

/* Warp-wide: tells a rank of another node, behind all that has been put to it. Its word is added what it
 * does not know yet. */
WP_FN void tell_remotely(const struct wp_ll_run *run, const struct wp_low_latency_unmask_args *args,
                         enum wp_ll_mail step, int32_t rank)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_low_latency *ll = run->ll;
    const int32_t block = wp_block_idx(warp);
    uint64_t *told = wp_ll_told_epoch(ll, step, rank, block);
    const struct wp_access signal = {WP_ACCESS_SIGNAL,
                                     rank,
                                     0,
                                     0,
                                     0,
                                     ll->network.place +
                                         wp_ll_network_returned(ll, step, ll->exchange.rank, block),
                                     args->epoch - *told,
                                     WP_ACCESS_MAY_BE_LOST,
                                     WP_ACCESS_AT_ONCE,
                                     0};
    wp_remote_post(warp, &signal);
    wp_warp_sync(warp); /* all lanes have read it */
    if (wp_lane_idx(warp) == 0)
        *told = args->epoch;
}

/* Warp-wide: tells those that take part. */
WP_FN void tell(const struct wp_ll_run *run, const struct wp_low_latency_unmask_args *args,
                enum wp_ll_mail step)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_low_latency *ll = run->ll;
    const int32_t own = ll->exchange.rank, block = wp_block_idx(warp);
    for (int32_t i = wp_lane_idx(warp); i < ll->exchange.num_ranks; i += WP_WARP_SIZE) {
        const int32_t rank = wp_rank_after(&ll->exchange, i);
        if (!wp_ll_is_remote(ll, rank) && takes_part(run, args->mask, rank))
            wp_credit(warp, rank, wp_ll_word(ll, rank, WP_LL_RETURNED, step, own, block),
                      args->epoch);
    }
    for (int32_t i = 0; i < ll->network.num_remote; i++)
        if (warp_takes_part(run, args->mask, ll->network.ranks[i]))
            tell_remotely(run, args, step, ll->network.ranks[i]);
}

/* Warp-wide: waits for those that take part; those that do not come are missing. */
WP_FN enum wp_status await_others(const struct wp_ll_run *run,
                                  const struct wp_low_latency_unmask_args *args,
                                  enum wp_ll_mail step)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_exchange *exchange = &run->ll->exchange;
    const struct wp_ll_patience patience = wp_ll_patience(PERIODS, exchange->num_ranks);
    enum wp_status status = WP_STATUS_OK;
    for (int32_t first = 0; first < exchange->num_ranks; first += WP_WARP_SIZE) {
        const int32_t i = first + wp_lane_idx(warp);
        int32_t rank = i < exchange->num_ranks && status == WP_STATUS_OK
                           ? wp_rank_after(exchange, i)
                           : WP_NO_RANK;
        if (rank != WP_NO_RANK && !takes_part(run, args->mask, rank))
            rank = WP_NO_RANK;
        struct wp_ll_wait wait = {wp_ll_told_by(run, WP_LL_RETURNED, step, rank, args->epoch),
                                  wp_ll_site(run, WP_PHASE_START, rank), NULL, 0, 0};
        const enum wp_status found = wp_ll_await_words(run, args->mask, &wait, patience);
        if (found == WP_STATUS_ABSENT)
            missing(run)[rank] = 1;
        else if (found == WP_STATUS_FAILED)
            status = found;
    }
    return (enum wp_status)wp_max_u32(warp, (uint32_t)status);
}

/* By all warps, which meet. */
WP_FN enum wp_status pass(const struct wp_ll_run *run,
                          const struct wp_low_latency_unmask_args *args, enum wp_ll_mail step)
{
    struct wp_warp *warp = run->op.warp;
    enum wp_status status = WP_STATUS_OK;
    wp_block_sync(warp);
    wp_fence_launches(warp); /* what has been cleared; a credit is behind loads alone */
    if (wp_ll_is_leader_warp(warp)) {
        tell(run, args, step);
        status = await_others(run, args, step);
    }
    return wp_block_status(warp, status);
}

/* Warp-wide, if weights come late: those of a rank's tokens in a half. */
WP_FN void clear_weights(struct wp_warp *warp, const struct wp_low_latency *ll, uint64_t half,
                         int32_t rank)
{
    const int32_t own = ll->exchange.rank, num_topk = ll->plan.num_topk;
    uint32_t *words = (uint32_t *)wp_warp_shared(warp);
    for (int32_t k = wp_lane_idx(warp); k < num_topk; k += WP_WARP_SIZE)
        words[k] = 0;
    wp_warp_sync(warp);
    for (int32_t token = 0; token < ll->plan.max_tokens; token++)
        wp_tagged_send(warp, own, wp_ll_late_weights(ll, own, half, rank, token), words, num_topk,
                       0);
    wp_warp_sync(warp); /* they have been read */
}

/* Warp-wide: the words of this block that a rank of this node signals, and by the last one the heads. */
WP_FN void clear_local(const struct wp_ll_run *run, int32_t rank)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_low_latency *ll = run->ll;
    const int32_t own = ll->exchange.rank, block = wp_block_idx(warp);
    const int has_heads =
        ll->plan.is_by_expert && block == ll->plan.num_blocks - 1 && !wp_ll_has_packets(&ll->plan);
    for (int32_t i = wp_lane_idx(warp); i < 2 * WP_LL_NUM_MAILS; i += WP_WARP_SIZE)
        wp_clear(wp_ll_word(ll, own, (enum wp_ll_words)(i / WP_LL_NUM_MAILS),
                            (enum wp_ll_mail)(i % WP_LL_NUM_MAILS), rank, block));
    const int has_weights = ll->plan.weights_come_late && block == ll->plan.num_blocks - 1;
    for (int32_t half = 0; half < ll->plan.num_halves && has_weights; half++)
        clear_weights(warp, ll, (uint64_t)half, rank);
    for (int32_t half = 0; half < ll->plan.num_halves && has_heads; half++)
        wp_tagged_send(warp, own, wp_ll_head(ll, own, (uint64_t)half, rank), ll->expert_bases,
                       ll->plan.max_local_experts, 0);
}

/* Warp-wide: what a rank has told of its rows in a half. What the rows have besides their number does not count. */
WP_FN void clear_told(struct wp_warp *warp, const struct wp_low_latency *ll, uint64_t half,
                      int32_t rank)
{
    const struct wp_ll_plan *plan = &ll->plan;
    const int32_t own = ll->exchange.rank;
    const int is_told = wp_ll_is_told(plan);
    uint32_t *words = (uint32_t *)wp_warp_shared(warp);
    for (uint32_t i = (uint32_t)wp_lane_idx(warp); i < WP_WARP_SHARED_BYTES / sizeof *words;
         i += WP_WARP_SIZE)
        words[i] = 0;
    wp_warp_sync(warp);
    if (plan->is_by_expert && is_told)
        wp_tagged_send(warp, own, wp_ll_head(ll, own, half, rank), ll->expert_bases,
                       wp_ll_num_pairs(plan), 0);
    if (plan->is_by_expert && !is_told)
        wp_tagged_send(warp, own, wp_ll_head(ll, own, half, rank), words,
                       wp_ll_num_chosen_words(plan), 0);
    for (int32_t token = 0; is_told && token < plan->max_tokens; token++)
        wp_tagged_send(warp, own, wp_ll_told(ll, own, half, rank, token), words,
                       wp_ll_num_told_words(plan), 0);
    wp_warp_sync(warp); /* they have been read */
    if (wp_lane_idx(warp) == 0) {
        wp_clear(wp_ll_comes_word(ll, own, WP_LL_ROWS, half, rank));
        wp_clear(wp_ll_comes_word(ll, own, WP_LL_ANSWERS, half, rank));
    }
}

/* Warp-wide: the block's share of the packets of a rank, those of some tokens. */
WP_FN void clear_packets(struct wp_warp *warp, const struct wp_low_latency *ll, int32_t rank)
{
    const struct wp_ll_plan *plan = &ll->plan;
    const struct wp_ll_elements all = {0, 0};
    const int32_t block = wp_block_idx(warp), num_blocks = wp_num_blocks(warp);
    const int32_t first = (int32_t)((int64_t)plan->max_tokens * block / num_blocks);
    const int32_t end = (int32_t)((int64_t)plan->max_tokens * (block + 1) / num_blocks);
    const uint64_t num_tokens = (uint64_t)(end - first);
    for (uint64_t half = 0; half < (uint64_t)plan->num_halves; half++) {
        const struct wp_packets rows = wp_ll_row_packets(ll, half);
        const struct wp_packets answers = wp_ll_answer_packets(ll, half);
        wp_packets_clear(warp, &rows, wp_ll_row_packet(ll, rank, first, 0),
                         num_tokens * plan->slot.bytes / WP_PACKET_BYTES);
        wp_packets_clear(warp, &answers, wp_ll_answer_packet(ll, rank, first, all),
                         num_tokens * plan->answer_bytes / WP_PACKET_BYTES);
        if (block == num_blocks - 1)
            clear_told(warp, ll, half, rank);
    }
    if (block == num_blocks - 1 && wp_lane_idx(warp) == 0)
        wp_store_relaxed(&ll->rows_taken[rank], 0);
}

/* One lane: the same of a rank of another node, and what is remembered of its words. */
WP_FN void clear_remote(const struct wp_low_latency *ll, int32_t rank, int32_t block)
{
    for (int32_t i = 0; i < WP_LL_NUM_MAILS; i++) {
        const enum wp_ll_mail mail = (enum wp_ll_mail)i;
        wp_clear(wp_ll_own_word(ll, wp_ll_network_room(ll, mail, rank, block)));
        for (int32_t half = 0; half < ll->plan.num_halves; half++) {
            wp_clear(
                wp_ll_own_word(ll, wp_ll_network_arrived(ll, mail, (uint64_t)half, rank, block)));
            *wp_ll_taken(ll, mail, (uint64_t)half, rank, block) = 0;
        }
    }
    for (int32_t half = 0; half < ll->plan.num_halves; half++)
        if (block == ll->plan.num_blocks - 1)
            wp_clear(wp_ll_own_word(ll, wp_ll_network_head_word(ll, (uint64_t)half, rank)));
}

/* By all warps: what those that take part have told. */
WP_FN void clear(const struct wp_ll_run *run, const int32_t *mask)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_low_latency *ll = run->ll;
    for (int32_t rank = wp_warp_idx(warp); rank < ll->exchange.num_ranks;
         rank += wp_num_warps(warp)) {
        if (!warp_takes_part(run, mask, rank))
            continue;
        if (wp_ll_has_packets(&ll->plan))
            clear_packets(warp, ll, rank);
        if (!wp_ll_is_remote(ll, rank))
            clear_local(run, rank);
        else if (wp_lane_idx(warp) == 0)
            clear_remote(ll, rank, wp_block_idx(warp));
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
            is_masked |= missing_of(ll, block)[rank] != 0;
        masks->mask[rank] = is_masked && rank != ll->exchange.rank;
        masks->verdicts[rank] = 0;
    }
}

WP_PROGRAM(low_latency_unmask, warp, args)
{
    struct wp_ll_run run = wp_ll_begin(warp, &args->ll);
    const struct wp_ll_numbers none_since = {0, 0, 0, 0, 0, 0, args->epoch};
    if (run.op.sequence == WP_SEQUENCE_FAILED)
        return WP_STATUS_FAILED;
    /* By the warp that has begun with them, where they are the same. */
    for (int32_t rank = wp_lane_idx(warp);
         rank < args->ll.exchange.num_ranks && wp_ll_is_leader_warp(warp); rank += WP_WARP_SIZE)
        missing(&run)[rank] = 0;
    run.numbers = none_since;
    enum wp_status status = pass(&run, args, WP_LL_STOPPED);
    if (status == WP_STATUS_OK) {
        clear(&run, args->mask);
        status = pass(&run, args, WP_LL_CLEAN);
    }
    if (status == WP_STATUS_OK && wp_is_last_block(warp, args->ll.masks.num_blocks_done))
        renew_mask(&run, args->mask);
    return wp_ll_end(&run, status);
}
