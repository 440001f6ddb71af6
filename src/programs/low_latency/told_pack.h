/* SPDX-License-Identifier: MIT */
/*
 * What sources tell (low_latency/told.h), as it is heard, and where parts of rows go by it. By expert whoever has heard how
 * many choices of all sources each expert here has, and what is told of a token, knows where the token's row is packed before
 * that is there.
 */
#pragma once

#include "programs/low_latency/packet_heads.h"

struct wp_ll_hearer {
    struct wp_ll_taker taker; /* without bases */
    uint32_t *counts;         /* by expert, in memory of the block: [num_ranks][wp_ll_num_pairs] */
};

WP_FN struct wp_ll_hearer wp_ll_hearer_of(struct wp_ll_run *run,
                                          const struct wp_low_latency_dispatch_args *args,
                                          uint64_t number)
{
    char *memory = (char *)wp_block_shared(run->op.warp) + WP_BLOCK_WORDS_BYTES;
    const struct wp_ll_hearer hearer = {{run, args, NULL, number}, (uint32_t *)(void *)memory};
    return hearer;
}

/* ------------------------------------------------------------------ what sources tell */

WP_FN uint32_t *wp_ll_counts_of(const struct wp_ll_hearer *hearer, int32_t source)
{
    return hearer->counts + (ptrdiff_t)source * wp_ll_num_pairs(&hearer->taker.args->ll.plan);
}

/* Warp-wide: a tagged row from a source. With masks WP_STATUS_ABSENT: it has not come within a period. */
WP_FN enum wp_status wp_ll_take_told(const struct wp_ll_hearer *hearer, int32_t source,
                                     const void *row, uint32_t *words, int32_t num_words)
{
    const struct wp_ll_run *run = hearer->taker.run;
    struct wp_wait_site site = wp_ll_site(run, WP_PHASE_DATA, source);
    site.sequence = hearer->taker.number; /* which it carries */
    const enum wp_status status =
        wp_tagged_take_relaxed(run->op.warp, row, words, num_words, &site);
    wp_warp_sync(run->op.warp);
    return status;
}

/* Warp-wide. */
WP_FN enum wp_status wp_ll_hear_counts(const struct wp_ll_hearer *hearer, int32_t source)
{
    const struct wp_ll_run *run = hearer->taker.run;
    const struct wp_low_latency *ll = run->ll;
    const struct wp_ll_head_words counts = {wp_ll_counts_of(hearer, source),
                                            wp_ll_num_pairs(&ll->plan)};
    if (wp_ll_has_masks(&ll->masks))
        return wp_ll_unless_absent(wp_ll_take_packet_head(&hearer->taker, source, counts));
    int64_t *waited_ns = wp_lane_idx(run->op.warp) == 0 ? wp_ll_waited_ns(run, source) : NULL;
    const uint64_t begin_ns = wp_ll_begin_waiting(run, waited_ns);
    const enum wp_status status = wp_ll_take_told(
        hearer, source, wp_ll_head(ll, ll->exchange.rank, hearer->taker.number, source),
        wp_ll_counts_of(hearer, source), wp_ll_num_pairs(&ll->plan));
    wp_ll_end_waiting(run, waited_ns, begin_ns);
    return status;
}

/* By all warps of a block, which meet afterwards. */
WP_FN enum wp_status wp_ll_hear_all_counts(const struct wp_ll_hearer *hearer)
{
    struct wp_warp *warp = hearer->taker.run->op.warp;
    const int32_t num_ranks = hearer->taker.args->ll.exchange.num_ranks;
    enum wp_status status = WP_STATUS_OK;
    for (int32_t source = wp_ll_first_heard(warp); source < num_ranks && status == WP_STATUS_OK;
         source += wp_num_warps(warp))
        status = wp_ll_hear_counts(hearer, source);
    return status;
}

/* By all warps of a block that have met: tells the caller of experts. */
WP_FN void wp_ll_tell_experts(const struct wp_ll_hearer *hearer)
{
    const struct wp_ll_taker *taker = &hearer->taker;
    struct wp_warp *warp = taker->run->op.warp;
    const struct wp_low_latency *ll = &taker->args->ll;
    const int32_t num_threads = wp_ll_num_threads(warp);
    /* Whose last warps have heard: these are awake. */
    for (int32_t expert = num_threads - 1 - wp_ll_thread_idx(warp); expert < ll->num_local_experts;
         expert += num_threads) {
        int32_t first = 0;
        for (int32_t rank = 0; rank < ll->exchange.num_ranks; rank++) {
            const int32_t num_rows =
                (int32_t)wp_ll_pair_count(wp_ll_counts_of(hearer, rank), expert);
            wp_ll_tell_expert(taker, expert, rank, first, num_rows);
            first += num_rows;
        }
        wp_ll_tell_expert_total(taker, expert, first);
    }
}

/* In memory of the warp: what a source tells of a token. */
WP_FN uint32_t *wp_ll_told_memory(struct wp_warp *warp)
{
    return (uint32_t *)wp_warp_shared(warp);
}

/* Warp-wide: takes so many words of it. WP_STATUS_ABSENT: the source is missing. */
WP_FN enum wp_status wp_ll_hear_token(const struct wp_ll_hearer *hearer, struct wp_ll_unit unit,
                                      int32_t num_words)
{
    const struct wp_low_latency *ll = &hearer->taker.args->ll;
    struct wp_ll_run *run = hearer->taker.run;
    struct wp_warp *warp = run->op.warp;
    struct wp_ll_packet_wait wait;
    enum wp_status status;
    wp_ll_begin_packet_wait(&wait, hearer->taker.number);
    do {
        wp_warp_sync(warp); /* what was there has been read */
        status = wp_ll_take_told(
            hearer, unit.rank,
            wp_ll_told(ll, ll->exchange.rank, hearer->taker.number, unit.rank, unit.token),
            wp_ll_told_memory(warp), num_words);
        wait.progress.missing = 1u << unit.rank;
    } while (wp_ll_waits_again(run, &wait, status) && !wp_ll_leaves_out(run, unit.rank));
    return status;
}

/* ------------------------------------------------------------------ where rows are packed */

/* The packed row of a source's choice. */
WP_FN int32_t wp_ll_packed_choice(const struct wp_ll_hearer *hearer, int32_t source,
                                  uint32_t choice)
{
    const int32_t expert = (int32_t)(choice & UINT16_MAX);
    int32_t position = (int32_t)(choice >> 16);
    if (choice == WP_LL_TOLD_NOT_HERE)
        return WP_LL_NOT_HERE;
    for (int32_t before = 0; before < source; before++)
        position += (int32_t)wp_ll_pair_count(wp_ll_counts_of(hearer, before), expert);
    return wp_ll_packed_at(&hearer->taker.args->ll.plan, expert, position);
}

/* What of a row. */
enum wp_ll_packed_what { WP_LL_ELEMENTS, WP_LL_SCALES };

/* Where it has the unit's elements, or the row's scales. */
WP_FN char *wp_ll_packed_to(const struct wp_ll_hearer *hearer, struct wp_ll_unit unit,
                            int32_t packed, enum wp_ll_packed_what what)
{
    const struct wp_low_latency_dispatch_args *args = hearer->taker.args;
    const struct wp_ll_plan *plan = &args->ll.plan;
    const int32_t first = wp_ll_part_elements(plan, plan->taken_parts, unit.part).first;
    return what == WP_LL_SCALES ? wp_ll_packed_scales(&hearer->taker, packed)
                                : args->rows + (uint64_t)(uint32_t)packed * plan->row_bytes +
                                      ((uint64_t)first << plan->sent_element_bytes_log2);
}

/* Warp-wide, when the token's choices have been heard: where the unit is packed, as the warp's pointers. Returns how many
 * places there are. */
WP_FN int32_t wp_ll_find_packed_places(const struct wp_ll_hearer *hearer, struct wp_ll_unit unit,
                                       enum wp_ll_packed_what what)
{
    struct wp_warp *warp = hearer->taker.run->op.warp;
    const int32_t num_topk = hearer->taker.args->ll.plan.num_topk;
    const uint32_t *choices = wp_ll_told_memory(warp) + 1;
    int32_t num = 0; /* those before had been used when the token was heard of */
    for (int32_t i = 0; i < num_topk; i += WP_WARP_SIZE) {
        const int32_t k = i + wp_lane_idx(warp);
        const int32_t packed =
            k < num_topk ? wp_ll_packed_choice(hearer, unit.rank, choices[k]) : WP_LL_NOT_HERE;
        const int32_t place = wp_ll_list(warp, &num, packed >= 0);
        if (packed >= 0)
            wp_warp_pointers(warp)[place] = wp_ll_packed_to(hearer, unit, packed, what);
    }
    wp_warp_sync(warp);
    return num;
}

/* Words of a row's scales, from `first` on, to so many places. */
WP_FN void wp_ll_pack_scale_words(const struct wp_ll_hearer *hearer, uint64_t first,
                                  int32_t num_places, const uint32_t *words)
{
    enum { MOST = WP_LL_PART_BYTES / sizeof(uint32_t) };
    struct wp_warp *warp = hearer->taker.run->op.warp;
    const struct wp_ll_scales *to = &hearer->taker.args->scales;
    const void **dsts = wp_warp_pointers(warp);
    for (int32_t i = wp_lane_idx(warp); i < MOST && (int32_t)first + i < to->num_words;
         i += WP_WARP_SIZE)
        for (int32_t j = 0; j < num_places; j++)
            ((uint32_t *)(uintptr_t)dsts[j])[((int32_t)first + i) * to->word_stride] = words[i];
}

/* ------------------------------------------------------------------ what is kept of choices */

/* Of choice k, as it has been told. */
WP_FN float wp_ll_told_weight(struct wp_warp *warp, const struct wp_ll_plan *plan, int32_t k)
{
    float weight;
    memcpy(&weight, wp_ll_told_memory(warp) + 1 + plan->num_topk + k, sizeof weight);
    return weight;
}

/* By expert: what combine and the caller need of a source's token. */
WP_FN void wp_ll_keep_packed(const struct wp_ll_hearer *hearer, struct wp_ll_unit unit)
{
    const struct wp_low_latency_dispatch_args *args = hearer->taker.args;
    struct wp_warp *warp = hearer->taker.run->op.warp;
    const uint32_t *choices = wp_ll_told_memory(warp) + 1;
    struct wp_ll_packed_choice *kept =
        wp_ll_packed_choices(&args->ll, hearer->taker.number, unit.rank, unit.token);
    for (int32_t k = wp_lane_idx(warp); k < args->ll.plan.num_topk; k += WP_WARP_SIZE) {
        const struct wp_ll_packed_choice choice = {
            wp_ll_packed_choice(hearer, unit.rank, choices[k]),
            wp_ll_told_weight(warp, &args->ll.plan, k)};
        kept[k] = choice;
        if (choice.packed >= 0 && args->src_tokens != NULL)
            args->src_tokens[choice.packed] = unit.token;
    }
}

/* By rank: what is in the row's slot behind elements and scales. */
WP_FN void wp_ll_keep_in_slot(const struct wp_ll_hearer *hearer, struct wp_ll_unit unit, char *slot)
{
    struct wp_warp *warp = hearer->taker.run->op.warp;
    const struct wp_ll_plan *plan = &hearer->taker.args->ll.plan;
    const uint32_t *choices = wp_ll_told_memory(warp) + 1;
    int32_t *experts = (int32_t *)(void *)(slot + plan->slot.experts_offset);
    float *weights = (float *)(void *)(slot + plan->slot.weights_offset);
    for (int32_t k = wp_lane_idx(warp); k < plan->num_topk; k += WP_WARP_SIZE) {
        experts[k] = (int32_t)choices[k];
        weights[k] = wp_ll_told_weight(warp, plan, k);
    }
    if (wp_lane_idx(warp) == 0) {
        *(int32_t *)(void *)(slot + plan->slot.token_offset) = unit.token;
        *(int32_t *)(void *)(slot + plan->slot.answer_offset) = unit.token;
    }
}
