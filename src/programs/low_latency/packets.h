/* SPDX-License-Identifier: MIT */
/*
 * Low latency whose rows and answers go in packets (machine/packets.h): a signal that tells of rows takes longer than they
 * do.
 *
 * A token's row is cut into parts, of which each warp has some: it sends those of tokens of this rank's, and takes those of
 * other ranks' tokens. So no warp waits for another one of its launch. The packets of a row are the bytes of its slot. In a
 * word a rank tells every other how many rows come.
 *
 * Of few tokens each warp finds out by itself where its part goes (low_latency/routes_few.h), and by rank whoever awaits a
 * packet looks at that word, too. Of many, ranks tell each other
 * of each token (low_latency/routes_many.h) while rows are on their way.
 *
 * The packets of number n lie in half n % num_halves, and are sent when the target has taken those of n - num_halves. That
 * it has taken what it has received, each rank tells as its next launch begins, when all blocks of the one before have
 * ended: in the words WP_LL_ROOM of the first block. Of rows it tells so along with their number, too. Whoever has heard
 * that need not look at those words in its next launch, which would take a load more.
 */
#pragma once

#include "programs/low_latency/waits.h"
#include "programs/reciprocal.h"

/* ================== ranks that a warp goes on without */

/*
 * Ranks that low latency in packets goes on without (low_latency/plan.h). Each warp waits for packets itself, so each goes by
 * what it knows: who was masked when the launch began, and whom it has masked since. What has come of a rank by then is taken,
 * and no more: so of a row or an answer that comes in parts, one warp may have taken its part while another one waits in vain.
 */

/* Warp-wide: leaves out those, too, whom other warps have masked by now. */
WP_FN void wp_ll_look_at_masks(struct wp_ll_run *run)
{
    struct wp_warp *warp = run->op.warp;
    run->masked |= wp_ll_find_masked(warp, run->ll, wp_ll_load_masked(run->ll, wp_lane_idx(warp)));
}

/* Of some ranks. */
WP_FN uint32_t wp_ll_without_masked(const struct wp_ll_run *run, uint32_t ranks)
{
    return wp_ll_has_masks(&run->ll->masks) ? ranks & ~run->masked : ranks;
}

/* ------------------------------------------------------------------ what the caller is told */

/* What the caller is told must be so at the end, whoever finds out, and no warp waits for another one. So one warp of the first
 * block says as the launch begins that nobody is missing, and, when it has received, who is masked by then; and who masks a
 * rank says so behind that. Stores of one warp to a word are in order; so what is told last is that the rank is missing, unless
 * the first store, by then as old as the launch, had not reached memory when a rank is masked behind the last look.
 *
 * The warp that does so. */
WP_FN int wp_ll_tells_missing_ranks(const struct wp_ll_run *run)
{
    struct wp_warp *warp = run->op.warp;
    return wp_ll_has_masks(&run->ll->masks) && run->missing_ranks != NULL &&
           wp_block_idx(warp) == 0 && wp_ll_is_leader_warp(warp);
}

/* By all warps, as a launch begins in which this is told. */
WP_FN void wp_ll_begin_missing(struct wp_ll_run *run, int32_t *missing_ranks)
{
    struct wp_warp *warp = run->op.warp;
    run->missing_ranks = missing_ranks;
    if (wp_ll_tells_missing_ranks(run))
        for (int32_t rank = wp_lane_idx(warp); rank < run->ll->exchange.num_ranks;
             rank += WP_WARP_SIZE)
            wp_store_relaxed(&missing_ranks[rank], WP_LL_THERE);
}

/* By all warps, when they have received. */
WP_FN void wp_ll_end_missing(const struct wp_ll_run *run)
{
    struct wp_warp *warp = run->op.warp;
    if (wp_ll_tells_missing_ranks(run))
        for (int32_t rank = wp_lane_idx(warp); rank < run->ll->exchange.num_ranks;
             rank += WP_WARP_SIZE)
            if (wp_ll_is_masked(&run->ll->masks, rank))
                wp_store_relaxed(&run->missing_ranks[rank], WP_LL_MASKED);
}

/* By a lane: masks the rank, and says so. */
WP_FN void wp_ll_miss(const struct wp_ll_run *run, int32_t rank)
{
    wp_ll_mask_out(&run->ll->masks, rank);
    if (run->missing_ranks != NULL)
        wp_store_relaxed(&run->missing_ranks[rank], WP_LL_MASKED);
}

/* Warp-wide: goes on without those ranks. */
WP_FN void wp_ll_leave_out(struct wp_ll_run *run, uint32_t ranks)
{
    const uint32_t new_ones = ranks & ~run->masked; /* of the others has been told */
    for (int32_t rank = wp_lane_idx(run->op.warp); rank < run->ll->exchange.num_ranks;
         rank += WP_WARP_SIZE)
        if (new_ones >> rank & 1u)
            wp_ll_miss(run, rank);
    run->masked |= new_ones;
}

/* ------------------------------------------------------------------ waits for packets */

/* In periods, of several ranks together. */
struct wp_ll_packet_wait {
    struct wp_packet_progress progress;
    uint64_t number;     /* of the rows, or answers */
    int32_t num_periods; /* in vain; then there is: */
    struct wp_ll_patience patience[WP_LL_NEAR_RANKS];
};

WP_FN void wp_ll_begin_packet_wait(struct wp_ll_packet_wait *wait, uint64_t number)
{
    const struct wp_packet_progress none = {0, 0};
    wait->progress = none;
    wait->number = number;
    wait->num_periods = 0;
}

/* Warp-wide, after a period in vain: tells the others that it waits, and goes on without those that are missing by now. It is
 * inlined: as a called function, with copies of what the warp knows, dispatch of one token on 2 H200 took 12 us in place of 5
 * (2026-11-28). */
WP_FN void wp_ll_pass_period(struct wp_ll_run *run, struct wp_ll_packet_wait *wait)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_low_latency *ll = run->ll;
    uint32_t given_up = 0;
    wp_ll_tell_waits(run, ll->masks.mask); /* before it looks at each of many, which takes time */
    for (int32_t rank = 0; rank < ll->exchange.num_ranks; rank++) {
        int goes_on = 0;
        if (wait->num_periods == 0)
            wait->patience[rank] = wp_ll_patience_about(wait->number, ll->exchange.num_ranks);
        if (wp_ballot(warp, wait->progress.missing >> rank & 1u) == 0)
            continue;
        if (wp_lane_idx(warp) == 0)
            goes_on = wp_ll_goes_on_waiting(run, rank, &wait->patience[rank]) &&
                      !wp_ll_is_masked(&ll->masks, rank);
        if (wp_ballot(warp, goes_on) == 0)
            given_up |= 1u << rank;
    }
    wait->num_periods++;
    wait->progress.missing = 0;
    wp_ll_leave_out(run, given_up);
}

/* Warp-wide, when packets have been waited for, with a status that all lanes have: whether to wait again. Some of their ranks may
 * be left out from now on. */
WP_FN int wp_ll_waits_again(struct wp_ll_run *run, struct wp_ll_packet_wait *wait,
                            enum wp_status status)
{
    if (!wp_ll_has_masks(&run->ll->masks) || status != WP_STATUS_ABSENT ||
        wp_ballot(run->op.warp, wait->progress.missing != 0) == 0)
        return 0;
    wp_ll_pass_period(run, wait);
    return 1;
}

/* ------------------------------------------------------------------ waits for words */

/* Of a lane. It may want to know how long that took. */
struct wp_ll_word_wait {
    int32_t rank; /* WP_NO_RANK: nothing */
    const uint64_t *word;
    uint64_t at_least;
    enum wp_phase phase;
    int64_t *waited_ns;
};

WP_FN struct wp_ll_wait wp_ll_wait_of(const struct wp_ll_run *run, const struct wp_ll_word_wait *of)
{
    const int is_awaited = of->rank != WP_NO_RANK && !wp_ll_leaves_out(run, of->rank);
    const struct wp_ll_wait wait = {{is_awaited ? of->word : NULL, of->at_least},
                                    wp_ll_site(run, of->phase, of->rank),
                                    of->waited_ns,
                                    0,
                                    0};
    return wait;
}

/* What a lane has found. */
struct wp_ll_heard {
    enum wp_status status; /* of all lanes */
    uint64_t word;
};

/* Warp-wide, when each lane has waited for a period, and has found this: goes on; ranks that are missing are left out. */
WP_FN enum wp_status wp_ll_await_in_periods(struct wp_ll_run *run, struct wp_ll_wait *wait,
                                            uint64_t number, enum wp_status found)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_low_latency *ll = run->ll;
    uint32_t given_up = 0;
    found = wp_ll_await_words_on(run, ll->masks.mask, wait,
                                 wp_ll_patience_about(number, ll->exchange.num_ranks), found);
    for (int32_t rank = 0; rank < ll->exchange.num_ranks; rank++)
        if (wp_ballot(warp, found == WP_STATUS_ABSENT && wait->site.rank == rank) != 0)
            given_up |= 1u << rank;
    wp_ll_leave_out(run, given_up);
    return wp_max_u32(warp, found == WP_STATUS_FAILED) ? WP_STATUS_FAILED : WP_STATUS_OK;
}

/* Warp-wide: each lane waits for a word of its rank, if it has one; those that are missing are left out. */
WP_FN struct wp_ll_heard wp_ll_await_words_of(struct wp_ll_run *run, struct wp_ll_word_wait of,
                                              uint64_t number)
{
    struct wp_ll_wait wait = wp_ll_wait_of(run, &of);
    struct wp_ll_heard heard = {WP_STATUS_OK, 0};
    const enum wp_status found =
        wait.told.word != NULL ? wp_ll_await_once(run, &wait) : WP_STATUS_OK;
    heard.status = (enum wp_status)wp_max_u32(run->op.warp, (uint32_t)found);
    if (heard.status == WP_STATUS_ABSENT)
        heard.status = wp_ll_await_in_periods(run, &wait, number, found);
    heard.word = wait.seen;
    return heard;
}

/* ================== packets of rows and of answers */

/* ------------------------------------------------------------------ parts */

/* Of a row of a rank. */
struct wp_ll_unit {
    int32_t token;
    int32_t part; /* of few tokens, from row_parts.num on the rest */
    int32_t rank;
};

/* Unit i of those for all ranks. */
WP_FN struct wp_ll_unit wp_ll_unit_of(const struct wp_low_latency *ll, struct wp_ll_parts parts,
                                      int32_t i)
{
    const int32_t row = (int32_t)wp_divide((uint32_t)i, parts.ranks_reciprocal);
    const int32_t token = (int32_t)wp_divide((uint32_t)row, parts.units_reciprocal);
    const struct wp_ll_unit unit = {token, row - token * parts.num_units,
                                    i - row * ll->exchange.num_ranks};
    return unit;
}

/* Units that a warp has: every step-th from `first` on. */
struct wp_ll_turns {
    int32_t first, step;
};

/* Of the warps of some blocks. Units are dealt out to the blocks first, so that those of few tokens have many SMs. */
WP_FN struct wp_ll_turns wp_ll_turns_of(struct wp_warp *warp, int32_t first_block,
                                        int32_t num_blocks)
{
    const int32_t block = wp_block_idx(warp) - first_block;
    const struct wp_ll_turns none = {INT32_MAX, 0};
    const struct wp_ll_turns turns = {block + wp_warp_idx(warp) * num_blocks,
                                      num_blocks * wp_num_warps(warp)};
    return block >= 0 && block < num_blocks ? turns : none;
}

/* Of few tokens each warp sends, and then receives. Of many the first blocks receive, while the others send: else all would
 * receive at the end, when the links have nothing to do. */
WP_FN int wp_ll_receives(struct wp_warp *warp, const struct wp_low_latency *ll)
{
    return ll->num_receivers == 0 || wp_block_idx(warp) < ll->num_receivers;
}

WP_FN int32_t wp_ll_num_receiving_blocks(struct wp_warp *warp, const struct wp_low_latency *ll)
{
    return ll->num_receivers > 0 ? ll->num_receivers : wp_num_blocks(warp);
}

WP_FN struct wp_ll_turns wp_ll_turns_to_receive(struct wp_warp *warp,
                                                const struct wp_low_latency *ll)
{
    return wp_ll_turns_of(warp, 0, wp_ll_num_receiving_blocks(warp, ll));
}

WP_FN struct wp_ll_turns wp_ll_turns_to_send(struct wp_warp *warp, const struct wp_low_latency *ll)
{
    return wp_ll_turns_of(warp, ll->num_receivers, wp_num_blocks(warp) - ll->num_receivers);
}

WP_FN struct wp_ll_elements wp_ll_part_elements(const struct wp_ll_plan *plan,
                                                struct wp_ll_parts parts, int32_t part)
{
    const int32_t first = part * parts.elements, num_left = (int32_t)plan->hidden - first;
    const struct wp_ll_elements elements = {first,
                                            num_left < parts.elements ? num_left : parts.elements};
    return elements;
}

/* ------------------------------------------------------------------ packets */

/* Where each rank has those of a number: a half of them, and the half's escape words. */
WP_FN struct wp_packets wp_ll_packets_of(const struct wp_low_latency *ll, uint64_t number,
                                         uint64_t offset, uint64_t half_bytes)
{
    const uint64_t begin = wp_ll_half(&ll->plan, number) == 0 ? offset : offset + 2 * half_bytes;
    const struct wp_packets packets = {ll->exchange.rank,
                                       ll->exchange.num_ranks,
                                       ll->areas != NULL ? ll->areas : ll->near_areas,
                                       begin,
                                       begin + half_bytes,
                                       number,
                                       ll->exchange.mailbox_offset,
                                       wp_ll_period_ms(&ll->masks)};
    return packets;
}

WP_FN struct wp_packets wp_ll_row_packets(const struct wp_low_latency *ll, uint64_t number)
{
    return wp_ll_packets_of(ll, number, ll->offsets.row_packets, ll->offsets.row_packets_half);
}

WP_FN struct wp_packets wp_ll_answer_packets(const struct wp_low_latency *ll, uint64_t number)
{
    return wp_ll_packets_of(ll, number, ll->offsets.answer_packets,
                            ll->offsets.answer_packets_half);
}

/* Of a rank's rows, or tokens, in the packets of a half. */
WP_FN uint32_t wp_ll_row_of_rank(const struct wp_low_latency *ll, int32_t rank, int32_t row)
{
    return (uint32_t)rank * (uint32_t)ll->plan.max_tokens + (uint32_t)row;
}

/* The slot of a byte of a source's row. */
WP_FN uint64_t wp_ll_row_packet(const struct wp_low_latency *ll, int32_t source, int32_t row,
                                uint64_t byte)
{
    return (wp_ll_slot_offset(wp_ll_row_of_rank(ll, source, row), ll->plan.slot.bytes) + byte) /
           WP_PACKET_BYTES;
}

/* The slot of the answer of a rank, or of a part of it. */
WP_FN uint64_t wp_ll_answer_packet(const struct wp_low_latency *ll, int32_t answering,
                                   int32_t token, struct wp_ll_elements elements)
{
    return (wp_ll_slot_offset(wp_ll_row_of_rank(ll, answering, token), ll->plan.answer_bytes) +
            wp_ll_answer_bytes(&ll->plan, elements.first)) /
           WP_PACKET_BYTES;
}

/* ------------------------------------------------------------------ words */

/* By which a rank tells how many rows it sends, or that it has answered. */
WP_FN uint64_t *wp_ll_comes_word(const struct wp_low_latency *ll, int32_t owner,
                                 enum wp_ll_mail mail, uint64_t number, int32_t source)
{
    const uint32_t idx = (uint32_t)mail * (uint32_t)(ll->plan.num_halves * ll->exchange.num_ranks) +
                         wp_ll_rank_of_half(ll, number, source);
    return (uint64_t *)(void *)(wp_ll_area(ll, owner) + ll->offsets.comes) + idx;
}

/* What it says at least, of this number. */
enum { WP_LL_BEHIND_BITS = 4, WP_LL_COUNT_BITS = 16 /* WEFT__LL_MAX_TOKENS */ };
WP_FN uint64_t wp_ll_comes_at_least(uint64_t number)
{
    return number << (WP_LL_COUNT_BITS + WP_LL_BEHIND_BITS);
}

/* Of rows it says how many come, and how many numbers behind that is which the source has taken, of which there are as many
 * as results, at most. From wp_ll_comes(number, i, 0) on it says that there is no row i. */
WP_FN uint64_t wp_ll_comes(uint64_t number, int32_t num_rows, uint32_t num_behind)
{
    return wp_ll_comes_at_least(number) | (uint32_t)(UINT16_MAX - num_rows) << WP_LL_BEHIND_BITS |
           num_behind;
}

WP_FN int32_t wp_ll_num_coming(uint64_t word)
{
    return UINT16_MAX - (int32_t)((uint32_t)word >> WP_LL_BEHIND_BITS & UINT16_MAX);
}

WP_FN uint64_t wp_ll_heard_taken(uint64_t word)
{
    return (word >> (WP_LL_COUNT_BITS + WP_LL_BEHIND_BITS)) -
           (word & ((1u << WP_LL_BEHIND_BITS) - 1));
}

/* In a table of a half: a token of this rank, for a rank. */
WP_FN uint32_t wp_ll_token_idx(const struct wp_low_latency *ll, uint64_t number, int32_t rank,
                               int32_t token)
{
    return wp_ll_rank_of_half(ll, number, rank) * (uint32_t)ll->plan.max_tokens + (uint32_t)token;
}

/* ------------------------------------------------------------------ room */

/* By all warps, as a launch begins: what this rank has taken. */
WP_FN void wp_ll_tell_taken(const struct wp_ll_run *run)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_low_latency *ll = run->ll;
    const int32_t own = ll->exchange.rank;
    if (wp_block_idx(warp) != 0 || !wp_ll_is_leader_warp(warp))
        return;
    for (int32_t rank = wp_lane_idx(warp); rank < ll->exchange.num_ranks; rank += WP_WARP_SIZE) {
        if (wp_ll_leaves_out(run, rank))
            continue;
        wp_credit(warp, rank, wp_ll_word(ll, rank, WP_LL_ROOM, WP_LL_ROWS, own, 0),
                  run->numbers.rows_received);
        wp_credit(warp, rank, wp_ll_word(ll, rank, WP_LL_ROOM, WP_LL_ANSWERS, own, 0),
                  run->numbers.answers_received);
    }
}

/* Warp-wide: until a rank has taken what must make room for `number`, or is left out. */
WP_FN enum wp_status wp_ll_await_taken(struct wp_ll_run *run, enum wp_ll_mail mail, int32_t rank,
                                       uint64_t number)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_low_latency *ll = run->ll;
    const struct wp_wait_site site = wp_ll_site(run, WP_PHASE_FINISH, rank);
    const struct wp_ll_word_wait wait = {
        rank, wp_ll_word(ll, ll->exchange.rank, WP_LL_ROOM, mail, rank, 0),
        wp_ll_number_before(run, number), WP_PHASE_FINISH, NULL};
    if (wp_ll_has_masks(&ll->masks))
        return wp_ll_await_words_of(run, wait, number).status;
    const enum wp_status status = wp_wait(warp, wait.word, wait.at_least, &site);
    return (enum wp_status)wp_max_u32(warp, (uint32_t)status);
}

/* Which number of rows a rank has taken, as this one has heard along with a number: in a word, of even and of odd numbers 16
 * bits each, which begin here. */
WP_FN uint32_t wp_ll_taken_shift(uint64_t number)
{
    return 16 * ((uint32_t)number % 2);
}

/* By a lane. No other hears of the rank in this launch. */
WP_FN void wp_ll_note_heard_taken(const struct wp_low_latency *ll, int32_t rank, uint64_t number,
                                  uint64_t taken)
{
    const uint32_t shift = wp_ll_taken_shift(number);
    const uint32_t before = (uint32_t)wp_load_relaxed(&ll->rows_taken[rank]);
    const uint32_t after =
        (before & ~((uint32_t)UINT16_MAX << shift)) | ((uint32_t)taken & UINT16_MAX) << shift;
    wp_add_relaxed(&ll->rows_taken[rank], (int32_t)(after - before));
}

/* Whether such a word says that there is room for `number`. What counts has been heard along with the number before, by an
 * earlier launch: what another block of this one hears meanwhile is not ordered before what this one sends. */
WP_FN int wp_ll_is_known_to_have_room(const struct wp_ll_run *run, int32_t taken, uint64_t number)
{
    const uint32_t known = (uint32_t)taken >> wp_ll_taken_shift(number - 1);
    return (int16_t)((uint32_t)wp_ll_number_before(run, number) - known) <= 0;
}

/* ------------------------------------------------------------------ the end, in advance */

/* By all warps, when they have sent: what the block remembers of the launch, while packets are under way, as it is if all
 * goes well; then no warp need wait for another one at the end. If it does not, nothing that is remembered counts any more.
 * With a status other than WP_STATUS_OK the launch has ended. */
WP_FN enum wp_status wp_ll_foresee_end(const struct wp_ll_run *run, enum wp_status status)
{
    status = wp_block_status(run->op.warp, status); /* all have read what was remembered before */
    if (status != WP_STATUS_OK)
        return wp_operation_end(&run->op, status);
    wp_operation_advance(&run->op);
    wp_ll_remember_run(run);
    return status;
}

/* By each warp, when it has received. */
WP_FN enum wp_status wp_ll_end_foreseen(const struct wp_ll_run *run, enum wp_status status)
{
    wp_ll_end_missing(run);
    wp_operation_note(&run->op, status);
    return status;
}

/* ------------------------------------------------------------------ who has come */

/* With masks, warp-wide: each lane waits for a word of `number` of its rank, if it has one; those that are missing are left
 * out. */
WP_FN struct wp_ll_heard wp_ll_hear_if_there(struct wp_ll_run *run, enum wp_ll_mail mail,
                                             int32_t rank, uint64_t number, int64_t *waits_ns)
{
    const struct wp_low_latency *ll = run->ll;
    struct wp_ll_word_wait wait = {rank, NULL, wp_ll_comes_at_least(number), WP_PHASE_DATA, NULL};
    if (rank != WP_NO_RANK)
        wait.word = wp_ll_comes_word(ll, ll->exchange.rank, mail, number, rank);
    if (rank != WP_NO_RANK && waits_ns != NULL)
        wait.waited_ns = waits_ns + rank;
    return wp_ll_await_words_of(run, wait, number);
}

/* By a lane: hears a rank's word of `number`, and adds to what is known of the waits for each, if anybody wants to know. */
WP_FN enum wp_status wp_ll_hear(const struct wp_ll_run *run, enum wp_ll_mail mail, int32_t rank,
                                uint64_t number, uint64_t *word, int64_t *waits_ns)
{
    const struct wp_low_latency *ll = run->ll;
    const struct wp_wait_site site = wp_ll_site(run, WP_PHASE_DATA, rank);
    int64_t *waited_ns = waits_ns == NULL ? NULL : waits_ns + rank;
    const uint64_t begin_ns = wp_ll_begin_waiting(run, waited_ns);
    const enum wp_status status =
        wp_wait_value(run->op.warp, wp_ll_comes_word(ll, ll->exchange.rank, mail, number, rank),
                      wp_ll_comes_at_least(number), &site, word);
    wp_ll_end_waiting(run, waited_ns, begin_ns);
    return status;
}

/* By the warp that speaks for its block: hears all ranks. They have started then, so the next launch may come: among 4 H200 a
 * combine of one token by rank takes 4.0 us, not 4.2 (2026-11-27). */
WP_FN enum wp_status wp_ll_hear_all(struct wp_ll_run *run, enum wp_ll_mail mail, uint64_t number,
                                    int64_t *waits_ns)
{
    struct wp_warp *warp = run->op.warp;
    const int32_t num_ranks = run->ll->exchange.num_ranks, lane = wp_lane_idx(warp);
    const int has_masks = wp_ll_has_masks(&run->ll->masks);
    enum wp_status status = WP_STATUS_OK;
    if (!wp_ll_is_leader_warp(warp))
        return status;
    for (int32_t first = 0; has_masks && first < num_ranks && status == WP_STATUS_OK;
         first += WP_WARP_SIZE)
        status =
            wp_ll_hear_if_there(run, mail, first + lane < num_ranks ? first + lane : WP_NO_RANK,
                                number, waits_ns)
                .status;
    for (int32_t rank = lane; !has_masks && rank < num_ranks && status == WP_STATUS_OK;
         rank += WP_WARP_SIZE) {
        uint64_t word;
        status = wp_ll_hear(run, mail, rank, number, &word, waits_ns);
    }
    status = (enum wp_status)wp_max_u32(warp, (uint32_t)status);
    if (status == WP_STATUS_OK)
        wp_admit_next(warp);
    return status;
}
