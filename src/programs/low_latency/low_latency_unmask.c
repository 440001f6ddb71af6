/* SPDX-License-Identifier: MIT */
/*
 * low_latency_unmask: the ranks that the given mask does not mask begin anew together, as if their
 * weft_ll had just been made. So it does not matter how far each of them was. Each block does it
 * with the same block of the others, in two steps, each signalled by the epoch in a word of its
 * own:
 *
 *     stopped   nothing of this rank's earlier launches is under way
 *     clean     the words here that the others signal are zero, and packets are empty
 *
 * A rank clears when all have stopped: before that, earlier payload could still come. It sends
 * nothing before all are clean. Words of a rank that does not take part are left alone: it may
 * still signal them. A rank that does not come in time stays masked.
 */
#include "programs/low_latency/ll_nodes.h"

#include "programs/low_latency/ll_packets.h"
#include "programs/low_latency/ll_protocol.h"

/* Two deadlines: these ranks may be in different steps of their callers. */
enum { PERIODS = 2 * WP_LL_PERIODS };

/* [num_ranks] The ranks that a block goes on without. The last block reads those of all. */
WP_FN int32_t *missing_of(const struct wp_low_latency *ll, int32_t block)
{
    return ll->masks.missing + (int64_t)block * ll->exchange.num_ranks;
}

WP_FN int takes_part(const struct wp_ll_run *run, const int32_t *mask, int32_t rank)
{
    const int32_t *missing = missing_of(run->ll, wp_block_idx(run->op.warp));
    return rank == run->ll->exchange.rank || (mask[rank] == 0 && missing[rank] == 0);
}

/* All lanes get the same answer. */
WP_FN int warp_takes_part(const struct wp_ll_run *run, const int32_t *mask, int32_t rank)
{
    return wp_ballot(run->op.warp, takes_part(run, mask, rank)) != 0;
}

/* Warp-wide: signals a rank of another node, behind all that has been put to it. It adds to the
 * rank's word what that lacks. */
WP_FN void send_remotely(const struct wp_ll_run *run, const struct wp_low_latency_unmask_args *args,
                         enum wp_ll_payload step, int32_t rank)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_low_latency *ll = run->ll;
    const int32_t own = ll->exchange.rank, block = wp_block_idx(warp);
    uint64_t *told = ll->network.told_epochs + wp_ll_block_word(ll, (uint64_t)step, rank, block);
    const uint64_t word = wp_ll_network_word(ll, WP_LL_RETURNED, step, 0, own, block);
    const struct wp_ll_put signal = {rank, 0, 0, 0, args->epoch - *told};
    wp_ll_post(warp, ll, WP_ACCESS_SIGNAL, &signal, word, WP_ACCESS_AT_ONCE);
    wp_warp_sync(warp); /* all lanes have read it */
    if (wp_lane_idx(warp) == 0)
        *told = args->epoch;
}

/* Warp-wide: signals the ranks that take part. */
WP_FN void tell(const struct wp_ll_run *run, const struct wp_low_latency_unmask_args *args,
                enum wp_ll_payload step)
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
            send_remotely(run, args, step, ll->network.ranks[i]);
}

/* Warp-wide: waits for the ranks that take part. Those that do not come are missing. */
WP_FN enum wp_status await_others(const struct wp_ll_run *run,
                                  const struct wp_low_latency_unmask_args *args,
                                  enum wp_ll_payload step)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_exchange *exchange = &run->ll->exchange;
    struct wp_ll_patience patience = wp_ll_patience_about(1, exchange->num_ranks);
    enum wp_status status = WP_STATUS_OK;
    patience.most_silent = PERIODS;
    for (int32_t first = 0; first < exchange->num_ranks; first += WP_WARP_SIZE) {
        const int32_t i = first + wp_lane_idx(warp);
        int32_t rank = i < exchange->num_ranks && status == WP_STATUS_OK
                           ? wp_rank_after(exchange, i)
                           : WP_NO_RANK;
        if (rank != WP_NO_RANK && !takes_part(run, args->mask, rank))
            rank = WP_NO_RANK;
        struct wp_ll_wait wait = {wp_ll_told_by(run, WP_LL_RETURNED, step, rank, args->epoch),
                                  wp_ll_site(run, WP_PHASE_START, rank), NULL, 0};
        const enum wp_status found = wp_ll_await_words(run, args->mask, &wait, patience);
        if (found == WP_STATUS_ABSENT)
            missing_of(run->ll, wp_block_idx(warp))[rank] = 1;
        else if (found == WP_STATUS_FAILED)
            status = found;
    }
    return (enum wp_status)wp_max_u32(warp, (uint32_t)status);
}

/* All warps call this. They meet. */
WP_FN enum wp_status pass(const struct wp_ll_run *run,
                          const struct wp_low_latency_unmask_args *args, enum wp_ll_payload step)
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

/* Warp-wide: what a rank of this node has sent in a buffer, except rows and answers. Memory of the
 * warp is zero. Tagged rows get number 0; what they have besides does not count. */
WP_FN void clear_buffer(struct wp_warp *warp, const struct wp_low_latency *ll, uint64_t buffer,
                        int32_t rank)
{
    const struct wp_ll_plan *plan = &ll->plan;
    const int32_t own = ll->exchange.rank;
    const int has_packets = wp_ll_has_packets(plan), is_told = plan->is_told;
    const void *zeros = wp_warp_shared(warp);
    if (plan->is_by_expert) /* that of few tokens fits memory of the warp */
        wp_tagged_send(warp, own, wp_ll_head(ll, own, buffer, rank),
                       has_packets && !is_told ? zeros : ll->expert_bases,
                       wp_ll_num_head_words(plan), 0);
    for (int32_t token = 0; token < plan->max_tokens; token++) {
        if (plan->weights_come_late)
            wp_tagged_send(warp, own, wp_ll_late_weights(ll, own, buffer, rank, token), zeros,
                           plan->num_topk, 0);
        if (is_told)
            wp_tagged_send(warp, own, wp_ll_told(ll, own, buffer, rank, token), zeros,
                           wp_ll_num_told_words(plan), 0);
    }
    if (has_packets && wp_lane_idx(warp) == 0) {
        wp_clear(wp_ll_comes_word(ll, own, WP_LL_ROWS, buffer, rank));
        wp_clear(wp_ll_comes_word(ll, own, WP_LL_ANSWERS, buffer, rank));
    }
}

/* Warp-wide: what a rank of this node has sent to this block; all blocks share the packets, by
 * tokens. The last block also clears what is not of a block. */
WP_FN void clear_local(struct wp_warp *warp, const struct wp_low_latency *ll, int32_t rank)
{
    const struct wp_ll_plan *plan = &ll->plan;
    const struct wp_ll_elements all = {0, 0};
    const int32_t block = wp_block_idx(warp), num_blocks = wp_num_blocks(warp);
    const int32_t first = (int32_t)((int64_t)plan->max_tokens * block / num_blocks);
    const int32_t end = (int32_t)((int64_t)plan->max_tokens * (block + 1) / num_blocks);
    const uint64_t num_tokens = (uint64_t)(end - first);
    const int has_packets = wp_ll_has_packets(plan);
    for (int32_t i = wp_lane_idx(warp); i < 2 * WP_LL_NUM_PAYLOADS; i += WP_WARP_SIZE)
        wp_clear(wp_ll_word(ll, ll->exchange.rank, (enum wp_ll_words)(i / WP_LL_NUM_PAYLOADS),
                            (enum wp_ll_payload)(i % WP_LL_NUM_PAYLOADS), rank, block));
    for (uint64_t buffer = 0; buffer < (uint64_t)plan->num_buffers; buffer++) {
        const struct wp_packets rows = wp_ll_packets_of(ll, WP_LL_ROWS, buffer);
        const struct wp_packets answers = wp_ll_packets_of(ll, WP_LL_ANSWERS, buffer);
        if (has_packets) {
            wp_packets_clear(warp, &rows, wp_ll_row_packet(ll, rank, first, 0),
                             num_tokens * plan->slot.bytes / WP_PACKET_BYTES);
            wp_packets_clear(warp, &answers, wp_ll_answer_packet(ll, rank, first, all),
                             num_tokens * plan->answer_bytes / WP_PACKET_BYTES);
        }
        if (block == num_blocks - 1)
            clear_buffer(warp, ll, buffer, rank);
    }
    if (has_packets && block == num_blocks - 1 && wp_lane_idx(warp) == 0)
        wp_store_relaxed(&ll->rows_taken[rank], 0);
}

/* One lane: the same for a rank of another node, and what is remembered of its words. */
WP_FN void clear_remote(const struct wp_low_latency *ll, int32_t rank, int32_t block)
{
    for (int32_t i = 0; i < WP_LL_NUM_PAYLOADS; i++) {
        const enum wp_ll_payload payload = (enum wp_ll_payload)i;
        wp_clear(wp_ll_own_word(ll, wp_ll_network_word(ll, WP_LL_CREDIT, payload, 0, rank, block)));
        for (uint64_t buffer = 0; buffer < (uint64_t)ll->plan.num_buffers; buffer++) {
            wp_clear(wp_ll_own_word(
                ll, wp_ll_network_word(ll, WP_LL_ARRIVED, payload, buffer, rank, block)));
            *wp_ll_taken(ll, payload, buffer, rank, block) = 0;
        }
    }
    for (uint64_t buffer = 0; buffer < (uint64_t)ll->plan.num_buffers; buffer++)
        if (block == ll->plan.num_blocks - 1)
            wp_clear(wp_ll_own_word(ll, wp_ll_network_head_word(ll, buffer, rank)));
}

/* All warps call this. It clears what the ranks that take part have sent. */
WP_FN void clear(const struct wp_ll_run *run, const int32_t *mask)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_low_latency *ll = run->ll;
    uint32_t *words = (uint32_t *)wp_warp_shared(warp);
    for (uint32_t i = (uint32_t)wp_lane_idx(warp); i < WP_WARP_SHARED_BYTES / sizeof *words;
         i += WP_WARP_SIZE)
        words[i] = 0;
    wp_warp_sync(warp);
    for (int32_t rank = wp_warp_idx(warp); rank < ll->exchange.num_ranks;
         rank += wp_num_warps(warp)) {
        if (!warp_takes_part(run, mask, rank))
            continue;
        if (!wp_ll_is_remote(ll, rank))
            clear_local(warp, ll, rank);
        else if (wp_lane_idx(warp) == 0)
            clear_remote(ll, rank, wp_block_idx(warp));
    }
}

/* The last block calls this. The new mask is the given one, and the ranks that any block missed. */
WP_FN void renew_mask(const struct wp_ll_run *run, const int32_t *mask)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_low_latency *ll = run->ll;
    for (int32_t rank = wp_ll_thread_idx(warp); rank < ll->exchange.num_ranks;
         rank += wp_ll_num_threads(warp)) {
        int is_masked = mask[rank] != 0;
        for (int32_t block = 0; block < ll->plan.num_blocks; block++)
            is_masked |= missing_of(ll, block)[rank] != 0;
        ll->masks.mask[rank] = is_masked && rank != ll->exchange.rank;
        ll->masks.verdicts[rank] = 0;
    }
}

WP_PROGRAM(low_latency_unmask, warp, args)
{
    struct wp_ll_run run = wp_ll_begin(warp, &args->ll);
    const struct wp_ll_numbers none_since = {0, 0, 0, 0, 0, 0, args->epoch};
    if (run.op.sequence == WP_SEQUENCE_FAILED)
        return WP_STATUS_FAILED;
    /* The warp that begins with the missing ranks clears them, where they are the same memory. */
    for (int32_t rank = wp_lane_idx(warp);
         rank < args->ll.exchange.num_ranks && wp_ll_is_leader_warp(warp); rank += WP_WARP_SIZE)
        missing_of(&args->ll, wp_block_idx(warp))[rank] = 0;
    run.numbers = none_since;
    enum wp_status status = pass(&run, args, WP_LL_STOPPED);
    if (status == WP_STATUS_OK) {
        clear(&run, args->mask);
        status = pass(&run, args, WP_LL_CLEAN);
    }
    if (status == WP_STATUS_OK && wp_is_last_block(warp, args->ll.masks.num_blocks_done))
        renew_mask(&run, args->mask);
    return wp_ll_end(&run, wp_block_status(warp, status));
}
