/* SPDX-License-Identifier: MIT */
/* Steps of both combines: they send late weights and sum answers. */
#pragma once

#include "programs/low_latency/protocol.h"
#include "programs/low_latency/waits.h"

/* ================== weights that come late */

/*
 * Weights that come with combine, for callers who do not have them in dispatch. A rank that sums a
 * token's rows needs the token's weights, and the token's owner has them. So combine begins with
 * weights: the owner sends them to each rank that has rows of the token. They are a tagged row,
 * which tells by itself that it has come. A warp that answers the token waits for that row.
 *
 * Weights lie in the half of the answers' number, not in that of the result's, since a result may be
 * answered more than once. The owner sends those of number n over those of n - num_halves. So it must
 * know that they have been read. With signals it has received the answers of n - num_halves, and an
 * answer is signalled after the weights have been read. In packets the owner must know that the rank
 * has room for answers, as the rank itself must of the owner.
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

/* Where the answers `number` wait for weights of a source. */
WP_FN struct wp_wait_site wp_ll_weights_site(const struct wp_ll_run *run, uint64_t number,
                                             int32_t source)
{
    struct wp_wait_site site = wp_ll_site(run, WP_PHASE_DATA, source);
    site.sequence = number; /* which the row carries */
    return site;
}

/* Warp-wide, before a token is answered: waits at the site for its weights, and copies them to
 * memory of the warp, where they are after a sync. */
WP_FN enum wp_status wp_ll_take_weights(const struct wp_ll_run *run,
                                        const struct wp_wait_site *site, int32_t token,
                                        float *memory)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_low_latency *ll = run->ll;
    wp_warp_sync(warp); /* those before have been used */
    return wp_tagged_take_relaxed(
        warp, wp_ll_late_weights(ll, ll->exchange.rank, site->sequence, site->rank, token), memory,
        ll->plan.num_topk, site);
}

/* ================== sums */

/* In memory of the warp: of the rows of its pointers. */
WP_FN float *wp_ll_weights(struct wp_warp *warp)
{
    return (float *)wp_warp_shared(warp);
}
WP_STATIC_ASSERT(WEFT_MAX_TOPK * sizeof(float) <= WP_LL_RANGES_OFFSET, "one for each choice");

struct wp_ll_summer {
    const struct wp_ll_run *run;
    const struct wp_low_latency_combine_args *args;
    uint64_t number;
    uint64_t result;
    struct wp_ll_tokens tokens; /* of this block, in the result */
    struct wp_ll_share share;   /* of these among its warps */
};

/* Whether the rank that answers a choice, if any does, has done so. */
WP_FN int wp_ll_has_come(const struct wp_ll_summer *summer, int32_t answering)
{
    return answering >= 0 && !wp_ll_is_missing(summer->run, answering);
}

/* Whether what one rank answers is summed before what another one does: those of a node together, where nodes have sums
 * of theirs. */
WP_FN int wp_ll_is_summed_before(const struct wp_low_latency *ll, int32_t rank, int32_t other)
{
    if (!wp_ll_has_node_sums(&ll->plan) || rank < 0)
        return rank < other;
    const int32_t node = ll->network.node_of_rank[rank];
    const int32_t other_node = ll->network.node_of_rank[other];
    return node != other_node ? node < other_node : rank < other;
}

/* Of a token's sums, how many come before that of choice k. */
WP_FN int32_t wp_ll_sums_before(const struct wp_ll_summer *summer, const int32_t *answering,
                                int32_t k)
{
    int32_t num_before = 0;
    for (int32_t other = 0; other < summer->args->ll.plan.num_topk; other++)
        num_before += wp_ll_is_summed_before(&summer->args->ll, answering[other], answering[k]) &&
                      wp_ll_has_come(summer, answering[other]);
    return num_before;
}

WP_FN int32_t wp_ll_place_of_token(const struct wp_ll_summer *summer, int32_t token)
{
    return wp_ll_place_of(&summer->args->ll.plan, wp_block_idx(summer->run->op.warp),
                          summer->tokens, token);
}

WP_FN const char *wp_ll_answer_of_choice(const struct wp_ll_summer *summer, int32_t token,
                                         int32_t k, int32_t answering)
{
    const struct wp_low_latency *ll = &summer->args->ll;
    if (wp_ll_stays(ll, answering))
        return wp_ll_row(ll, answering, summer->result, ll->exchange.rank,
                         wp_ll_answer_slots(ll, summer->result, token)[k]);
    const int32_t slot =
        WP_LL_HAS_NODES(&ll->plan)
            ? wp_ll_answer_slots(ll, summer->result, token)[k]
            : wp_ll_answer_slot(&ll->plan, answering, wp_ll_place_of_token(summer, token), k);
    return wp_ll_answer(ll, ll->exchange.rank, summer->number, slot);
}

/* Lists the token's answers in the order in which they are summed, with their weights; returns how
 * many there are. */
WP_FN int32_t wp_ll_find_answers(const struct wp_ll_summer *summer, int32_t token, uint64_t begin)
{
    struct wp_warp *warp = summer->run->op.warp;
    const struct wp_low_latency_combine_args *args = summer->args;
    const int32_t num_topk = args->ll.plan.num_topk;
    const int32_t *answering = wp_ll_answering(&args->ll, summer->result, token);
    int32_t num_answers = 0;
    wp_warp_sync(warp); /* those before have been used */
    for (int32_t i = 0; i < num_topk; i += WP_WARP_SIZE) {
        const int32_t k = i + wp_lane_idx(warp);
        const int answers = k < num_topk && wp_ll_has_come(summer, answering[k]);
        const int32_t listed = wp_ll_list(warp, &num_answers, answers);
        if (!answers)
            continue;
        const int32_t place =
            args->ll.plan.answers_are_rows ? listed : wp_ll_sums_before(summer, answering, k);
        wp_warp_pointers(warp)[place] =
            wp_ll_answer_of_choice(summer, token, k, answering[k]) + begin;
        if (args->topk_weights != NULL)
            wp_ll_weights(warp)[place] = args->topk_weights[(int64_t)token * num_topk + k];
    }
    wp_warp_sync(warp);
    return num_answers;
}

/* The part of a token that the warp sums, of which the answers have been found. */
struct wp_ll_summed_part {
    int32_t unit;
    int32_t token;
    int32_t num_answers;
    struct wp_ll_span span;
};

WP_FN struct wp_ll_summed_part wp_ll_find_part(const struct wp_ll_summer *summer, int32_t unit)
{
    const struct wp_ll_plan *plan = &summer->args->ll.plan;
    const struct wp_part part = wp_ll_unit_part(&summer->share, unit);
    struct wp_ll_summed_part found = {unit, summer->tokens.begin + part.token, 0,
                                      wp_ll_span(plan, &summer->share, part.part)};
    const struct wp_ll_elements elements = wp_ll_elements_of(plan, found.span);
    if (unit < summer->share.num_units && found.span.bytes > 0)
        found.num_answers =
            wp_ll_find_answers(summer, found.token, wp_ll_answer_bytes(plan, elements.first));
    return found;
}

/* ------------------------------------------------------------------ sums that are rounded as answers */

/* Memory of the warp's own. */
WP_FN char *wp_ll_own_sum(const struct wp_ll_run *run)
{
    return run->ll->sums +
           (uint64_t)wp_launch_warp_idx(run->op.warp) * wp_ll_sum_bytes(&run->ll->plan);
}

/* The sum of answers, or parts of them, as one. */
WP_FN void wp_ll_sum_to_answer(const struct wp_ll_run *run, char *dst, const void *const *answers,
                               int32_t num_answers, int64_t num_elements)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_ll_plan *plan = &run->ll->plan;
    const struct wp_weighted_sum sum = {plan->answer_dtype, plan->answer_dtype, WP_READ_SOON};
    const void **made = wp_warp_pointers(warp) + WEFT_MAX_TOPK; /* behind those of answers */
    char *unrounded = wp_ll_own_sum(run);
    if (!wp_ll_answers_are_logs(plan)) {
        wp_row_weighted_sum(warp, dst, answers, NULL, num_answers, sum, num_elements);
        return;
    }
    wp_row_sync(warp); /* the sum before has been read */
    wp_row_log_sum(warp, unrounded, answers, NULL, num_answers, plan->dtype, num_elements);
    if (wp_lane_idx(warp) == 0)
        made[0] = unrounded;
    wp_row_sync(warp); /* the sum is there */
    wp_row_log_encode(warp, dst, made, NULL, 1, plan->dtype, num_elements);
}

/* With sums of nodes: the answers to a token from ranks of this node, which have been listed, become
 * their sum. Partners have made the sums of the other nodes. That of one answer is the answer itself,
 * but for logarithms. */
WP_FN void wp_ll_sum_own_node(const struct wp_ll_summer *summer, int32_t token,
                              int64_t num_elements)
{
    struct wp_warp *warp = summer->run->op.warp;
    const struct wp_low_latency *ll = summer->run->ll;
    const int32_t *answering = wp_ll_answering(ll, summer->result, token);
    const void **answers = wp_warp_pointers(warp);
    int32_t first = 0, num = 0;
    for (int32_t k = 0; k < ll->plan.num_topk; k++) {
        if (!wp_ll_has_come(summer, answering[k]))
            continue;
        const int32_t node = ll->network.node_of_rank[answering[k]];
        first += node < ll->network.nodes.node;
        num += node == ll->network.nodes.node;
    }
    if (num == 0 || (num == 1 && !wp_ll_answers_are_logs(&ll->plan)))
        return;
    char *sum = wp_ll_own_sum(summer->run) +
                wp_ll_align((uint64_t)ll->plan.hidden << ll->plan.element_bytes_log2);
    wp_row_sync(warp); /* the sum before has been read */
    wp_ll_sum_to_answer(summer->run, sum, answers + first, num, num_elements);
    wp_row_sync(warp); /* the sum is there, and the pointers have been used */
    for (int32_t i = wp_lane_idx(warp); i < num; i += WP_WARP_SIZE)
        answers[first + i] = i == 0 ? sum : NULL;
    wp_warp_sync(warp);
}

/* ------------------------------------------------------------------ what comes back */

WP_FN void wp_ll_sum_part(const struct wp_ll_summer *summer, const struct wp_ll_summed_part *part)
{
    struct wp_warp *warp = summer->run->op.warp;
    const struct wp_low_latency_combine_args *args = summer->args;
    const struct wp_ll_plan *plan = &args->ll.plan;
    const uint64_t row_bytes = (uint64_t)plan->hidden << plan->element_bytes_log2;
    const float *weights = args->topk_weights == NULL ? NULL : wp_ll_weights(warp);
    char *out = args->out + (uint64_t)part->token * row_bytes + part->span.begin;
    const struct wp_ll_elements elements = wp_ll_elements_of(plan, part->span);
    const struct wp_weighted_sum sum = {plan->answer_dtype, plan->dtype, plan->reuse};
    if (wp_ll_has_node_sums(plan))
        wp_ll_sum_own_node(summer, part->token, elements.num);
    if (wp_ll_answers_are_logs(plan))
        wp_row_log_sum(warp, out, wp_warp_pointers(warp), weights, part->num_answers, plan->dtype,
                       elements.num);
    else
        wp_row_weighted_sum(warp, out, wp_warp_pointers(warp), weights, part->num_answers, sum,
                            elements.num);
}

/* The first part has been found. */
WP_FN void wp_ll_sum_tokens(const struct wp_ll_summer *summer, struct wp_ll_summed_part part)
{
    const int32_t num_warps = wp_num_warps(summer->run->op.warp);
    while (part.unit < summer->share.num_units) {
        if (part.span.bytes > 0)
            wp_ll_sum_part(summer, &part);
        if (part.unit + num_warps >= summer->share.num_units)
            return;
        part = wp_ll_find_part(summer, part.unit + num_warps);
    }
}

/* Where answers lie is known before they come; with masks, only when it is known whose do not. */
WP_FN enum wp_status wp_ll_await_and_sum(const struct wp_ll_summer *summer)
{
    struct wp_warp *warp = summer->run->op.warp;
    const int has_masks = wp_ll_has_masks(&summer->args->ll.masks);
    struct wp_ll_summed_part part = {wp_warp_idx(warp), 0, 0, {0, 0}};
    if (!has_masks)
        part = wp_ll_find_part(summer, part.unit);
    const enum wp_status status =
        wp_ll_await_block(summer->run, WP_LL_ARRIVED, WP_LL_ANSWERS, summer->number);
    if (status != WP_STATUS_OK)
        return status;
    wp_admit_next(warp); /* all ranks have started */
    wp_warp_sync(warp);  /* each lane has waited for some ranks */
    if (wp_ll_tells_missing(summer->run))
        wp_ll_tell_missing(summer->run, summer->args->missing_ranks);
    if (has_masks)
        part = wp_ll_find_part(summer, part.unit);
    wp_ll_sum_tokens(summer, part);
    return status;
}
