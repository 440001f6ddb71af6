/* SPDX-License-Identifier: MIT */
/* The parts of combine that signals and packets share: rows that are answered by expert, and
 * weights that come with combine. */
#pragma once

#include "programs/low_latency/ll_protocol.h"
#include "programs/low_latency/ll_waits.h"

/*
 * Weights that come with combine, for callers who do not have them in dispatch. A rank that sums a
 * token's rows needs the token's weights, and the token's owner has them. So combine begins with
 * weights: the owner sends them to each rank that has rows of the token. They are a tagged row,
 * which tells by itself that it has come. A warp that answers the token waits for that row.
 *
 * Weights lie in the buffer of the answers' number, not in that of the result's, since a result may
 * be answered more than once. The owner sends those of number n over those of n - num_buffers. So
 * it must know that they have been read. With signals it has received the answers of n -
 * num_buffers, and an answer is signalled after the weights have been read. In packets the owner
 * must know that the rank has room for answers, as the rank itself must of the owner.
 */

WP_FN int wp_ll_weighs_late(const struct wp_ll_plan *plan)
{
    return !WP_LL_HAS_NODES(plan) && plan->weights_come_late;
}

/* A rank's weights for the answers `number`, which it sends. */
struct wp_ll_weights_sender {
    const struct wp_ll_run *run;
    const float *weights; /* [num_tokens][num_topk], NULL: 1 */
    float *memory;        /* of the warp or its part of the block's: [num_topk] */
    uint64_t number;
};

/* Warp-wide: loads the weights of a token. */
WP_FN void wp_ll_load_weights(const struct wp_ll_weights_sender *sender, int32_t token)
{
    struct wp_warp *warp = sender->run->op.warp;
    const int32_t num_topk = sender->run->ll->plan.num_topk;
    wp_warp_sync(warp); /* the memory has been read */
    for (int32_t k = wp_lane_idx(warp); k < num_topk; k += WP_WARP_SIZE)
        sender->memory[k] =
            sender->weights == NULL ? 1.0f : sender->weights[(int64_t)token * num_topk + k];
    wp_warp_sync(warp);
}

/* Warp-wide: sends to a rank the weights that have been loaded. */
WP_FN void wp_ll_send_weights(const struct wp_ll_weights_sender *sender, int32_t token,
                              int32_t rank)
{
    const struct wp_low_latency *ll = sender->run->ll;
    wp_tagged_send(sender->run->op.warp, rank,
                   wp_ll_late_weights(ll, rank, sender->number, ll->exchange.rank, token),
                   sender->memory, ll->plan.num_topk, sender->number);
}

/* Warp-wide, before a token of a source is answered: waits for its weights of the answers `number`,
 * and copies them to memory of the warp, where they are after a sync. WP_STATUS_ABSENT: with masks,
 * the source is missing. */
WP_FN enum wp_status wp_ll_take_weights(const struct wp_ll_run *run, uint64_t number,
                                        int32_t source, int32_t token, float *memory)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_low_latency *ll = run->ll;
    const char *weights = wp_ll_late_weights(ll, ll->exchange.rank, number, source, token);
    struct wp_ll_patience patience = wp_ll_patience_about(number, ll->exchange.num_ranks);
    struct wp_wait_site site = wp_ll_site(run, WP_PHASE_DATA, source);
    enum wp_status status;
    site.sequence = number; /* which the row carries */
    wp_warp_sync(warp);     /* those before have been used */
    do
        status = wp_tagged_take_relaxed(warp, weights, memory, ll->plan.num_topk, &site);
    while (wp_ll_warp_waits_on(run, source, status, &patience));
    return status;
}

/* ------------------------------------------------------------------ rows by expert */

/* The caller's row that has been packed as this one. */
WP_FN const char *wp_ll_packed_answer(const struct wp_low_latency_combine_args *args,
                                      int32_t packed)
{
    return args->rows + (uint64_t)(uint32_t)packed * args->row_stride_bytes;
}

/* Variants define this macro (low_latency/variant.c). */
#ifndef WP_LL_HAS_SIGNALS
#define WP_LL_HAS_SIGNALS(args) ((args)->signals.words != NULL)
#endif

WP_FN int wp_ll_has_signals(const struct wp_low_latency_combine_args *args)
{
    (void)args;
    return WP_LL_HAS_SIGNALS(args);
}

/* Waits until the caller's row that has been packed as this one is finished. Pairs with the release
 * of whoever finishes it. It is this rank's own work that is awaited, so nobody is missing. */
WP_FN enum wp_status wp_ll_await_row(const struct wp_ll_run *run,
                                     const struct wp_ll_row_signals *signals, int32_t packed)
{
    const int32_t expert = packed / signals->capacity;
    const int32_t word = packed % signals->capacity / signals->rows_per_word;
    struct wp_wait_site site = wp_operation_site(&run->op, WP_PHASE_EXPERT, run->op.exchange->rank);
    site.sequence = (uint64_t)(uint32_t)expert;
    return wp_wait_u32(run->op.warp,
                       signals->words + (int64_t)expert * signals->words_per_expert + word,
                       signals->at_least, &site);
}

/* Warp-wide: waits until the caller's rows for the choices of a row are finished. Lanes meet before
 * they read the rows. */
WP_FN enum wp_status wp_ll_await_answered(const struct wp_ll_run *run,
                                          const struct wp_low_latency_combine_args *args,
                                          const struct wp_ll_packed_choice *choices)
{
    struct wp_warp *warp = run->op.warp;
    enum wp_status status = WP_STATUS_OK;
    if (!wp_ll_has_signals(args))
        return status;
    for (int32_t k = wp_lane_idx(warp); k < args->ll.plan.num_topk && status == WP_STATUS_OK;
         k += WP_WARP_SIZE)
        if (choices[k].packed >= 0)
            status = wp_ll_await_row(run, &args->signals, choices[k].packed);
    return (enum wp_status)wp_max_u32(warp, (uint32_t)status);
}

/* Warp-wide: lists the caller's rows for the choices of a row, from their byte `begin` on, as the
 * warp's pointers, with their weights in `weights`, where late ones are before. `first` is the
 * lane's first choice. Returns the number of rows; -1: the row has no choice here. */
WP_FN int32_t wp_ll_find_answered(struct wp_warp *warp,
                                  const struct wp_low_latency_combine_args *args,
                                  const struct wp_ll_packed_choice *choices,
                                  struct wp_ll_packed_choice first, uint64_t begin, float *weights)
{
    const struct wp_ll_plan *plan = &args->ll.plan;
    struct wp_ll_packed_choice choice = first;
    int32_t num = 0;
    int is_here = 0;
    wp_warp_sync(warp); /* those before have been used, and the weights are there */
    for (int32_t i = 0; wp_ll_has_more_choices(plan, i); i += WP_WARP_SIZE) {
        const int32_t k = i + wp_lane_idx(warp);
        if (i > 0 && k < plan->num_topk)
            choice = choices[k];
        const int32_t packed = k < plan->num_topk ? choice.packed : WP_LL_NOT_HERE;
        is_here |= wp_ballot(warp, packed != WP_LL_NOT_HERE) != 0;
        if (wp_ll_weighs_late(plan)) {
            choice.weight = k < plan->num_topk ? weights[k] : 0.0f;
            wp_warp_sync(warp); /* all have loaded what is overwritten now, here or further up */
        }
        const int32_t place = wp_ll_list(warp, &num, packed >= 0);
        if (packed < 0)
            continue;
        wp_warp_pointers(warp)[place] = wp_ll_packed_answer(args, packed) + begin;
        weights[place] = choice.weight;
    }
    wp_warp_sync(warp);
    return is_here ? num : -1;
}
