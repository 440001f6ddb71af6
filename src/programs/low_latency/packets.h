/* SPDX-License-Identifier: MIT */
/*
 * Rows and answers in packets (machine/packets.h). Few rows take less time than the signal that would
 * tell of them.
 *
 * A token's row is cut into parts. Each warp sends some parts of this rank's tokens and receives some
 * parts of other ranks' tokens. So no warp waits for another warp of its launch. The packets of a row
 * are the bytes of its slot. A rank sends each target one more word: how many rows come.
 *
 * Few tokens: each warp computes by itself where its part goes (routes_few.h). By rank, a warp that
 * waits for a packet also looks at the count: perhaps there is no such row. Many tokens: ranks send
 * each other the metadata of each token while rows are under way (routes_many.h).
 *
 * The packets of number n lie in half n % num_halves. They are sent when the target has credited number
 * n - num_halves. A rank gives credit as its next launch begins, when all blocks of the launch before
 * have ended: in the words WP_LL_ROOM of the first block. It gives credit for rows along with the count
 * of rows, too. A rank that has received this credit does not load those words in its next launch.
 */
#pragma once

#include "programs/low_latency/launch.h"
#include "programs/reciprocal.h"

/* ================== ranks that a warp goes on without */

/*
 * Masked ranks, in packets. Each warp waits for packets itself, so each goes by what it knows: the ranks
 * that were masked when the launch began, and those that it has masked since. So one warp may receive
 * its part of a row, while another warp waits for its part in vain.
 */

/* Warp-wide: also leaves out the ranks that other warps have masked by now. */
WP_FN void wp_ll_look_at_masks(struct wp_ll_run *run)
{
    struct wp_warp *warp = run->op.warp;
    run->masked |= wp_ll_find_masked(warp, run->ll, wp_ll_load_masked(run->ll, wp_lane_idx(warp)));
}

/* Removes the masked ranks from some ranks. */
WP_FN uint32_t wp_ll_without_masked(const struct wp_ll_run *run, uint32_t ranks)
{
    return wp_ll_has_masks(&run->ll->masks) ? ranks & ~run->masked : ranks;
}

/* ------------------------------------------------------------------ what the caller is told */

/* missing_ranks must be correct when the launch ends, although no warp waits for another. So one warp of
 * the first block writes that no rank is missing as the launch begins, and the masked ranks when it has
 * received. A warp that masks a rank writes that, too. Stores of one warp to a word are in order, so the
 * last value says that the rank is missing. The one exception: a rank masked after the last check, while
 * the first store is still in flight.
 *
 * Returns 1 in the warp of the first block that writes. */
WP_FN int wp_ll_tells_missing_ranks(const struct wp_ll_run *run)
{
    struct wp_warp *warp = run->op.warp;
    return wp_ll_has_masks(&run->ll->masks) && run->missing_ranks != NULL &&
           wp_block_idx(warp) == 0 && wp_ll_is_leader_warp(warp);
}

/* All warps call this as a launch begins that writes missing_ranks. */
WP_FN void wp_ll_begin_missing(struct wp_ll_run *run, int32_t *missing_ranks)
{
    struct wp_warp *warp = run->op.warp;
    run->missing_ranks = missing_ranks;
    if (wp_ll_tells_missing_ranks(run))
        for (int32_t rank = wp_lane_idx(warp); rank < run->ll->exchange.num_ranks;
             rank += WP_WARP_SIZE)
            wp_store_relaxed(&missing_ranks[rank], WP_LL_THERE);
}

/* All warps call this when they have received. */
WP_FN void wp_ll_end_missing(const struct wp_ll_run *run)
{
    struct wp_warp *warp = run->op.warp;
    if (wp_ll_tells_missing_ranks(run))
        for (int32_t rank = wp_lane_idx(warp); rank < run->ll->exchange.num_ranks;
             rank += WP_WARP_SIZE)
            if (wp_ll_is_masked(&run->ll->masks, rank))
                wp_store_relaxed(&run->missing_ranks[rank], WP_LL_MASKED);
}

/* One lane calls this. It masks the rank, and writes so. */
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

/* A wait for packets of several ranks, in periods. */
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

/* Warp-wide, after a period in vain: announces the wait, and leaves out the ranks that are missing by
 * now. It is inlined: as a called function, with copies of what the warp knows, it made dispatch of one
 * token on 2 H200 take 12 us instead of 5 (2026-11-28). */
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

/* Warp-wide, after a wait for packets whose status all lanes have. Returns 1 if the warp must wait again.
 * It may have left out some of the ranks. */
WP_FN int wp_ll_waits_again(struct wp_ll_run *run, struct wp_ll_packet_wait *wait,
                            enum wp_status status)
{
    if (!wp_ll_has_masks(&run->ll->masks) || status != WP_STATUS_ABSENT ||
        wp_ballot(run->op.warp, wait->progress.missing != 0) == 0)
        return 0;
    wp_ll_pass_period(run, wait);
    return 1;
}

/* An absent rank is not an error. */
WP_FN enum wp_status wp_ll_unless_absent(enum wp_status status)
{
    return status == WP_STATUS_ABSENT ? WP_STATUS_OK : status;
}

/* ------------------------------------------------------------------ waits for words */

/* A wait of one lane for a word. */
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

/* The result of such waits. */
struct wp_ll_heard {
    enum wp_status status; /* of all lanes */
    uint64_t word;
};

/* Warp-wide: goes on waiting after each lane has waited for a period and has `found` this. It leaves out
 * the ranks that are missing. */
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

/* Warp-wide: each lane that has a rank waits for a word of it. It leaves out the ranks that are missing. */
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

/* A work item: a part of a row of a rank. */
struct wp_ll_unit {
    int32_t token;
    int32_t part; /* of few tokens, from row_parts.num on the rest */
    int32_t rank;
};

/* Work item i of those for all ranks. */
WP_FN struct wp_ll_unit wp_ll_unit_of(const struct wp_low_latency *ll, struct wp_ll_parts parts,
                                      int32_t i)
{
    const int32_t row = (int32_t)wp_divide((uint32_t)i, parts.ranks_reciprocal);
    const int32_t token = (int32_t)wp_divide((uint32_t)row, parts.units_reciprocal);
    const struct wp_ll_unit unit = {token, row - token * parts.num_units,
                                    i - row * ll->exchange.num_ranks};
    return unit;
}

/* The work items of a warp: every step-th from `first` on. */
struct wp_ll_turns {
    int32_t first, step;
};

/* The work items of a warp, among the warps of some blocks. Items go round the blocks first, so that few
 * tokens use many SMs. */
WP_FN struct wp_ll_turns wp_ll_turns_of(struct wp_warp *warp, int32_t first_block,
                                        int32_t num_blocks)
{
    const int32_t block = wp_block_idx(warp) - first_block;
    const struct wp_ll_turns none = {INT32_MAX, 0};
    const struct wp_ll_turns turns = {block + wp_warp_idx(warp) * num_blocks,
                                      num_blocks * wp_num_warps(warp)};
    return block >= 0 && block < num_blocks ? turns : none;
}

/* Few tokens: each warp sends, and then receives. Many tokens: the first blocks receive while the others
 * send. Else all blocks would receive at the end, while the links are idle. */
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

/* Where each rank has the packets of a number, and their escape words. */
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

/* The index of a rank's row, or token, in the packets of a half. */
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

/* The word by which a rank tells how many rows it sends, or that it has answered. */
WP_FN uint64_t *wp_ll_comes_word(const struct wp_low_latency *ll, int32_t owner,
                                 enum wp_ll_mail mail, uint64_t number, int32_t source)
{
    const uint32_t idx = (uint32_t)mail * (uint32_t)(ll->plan.num_halves * ll->exchange.num_ranks) +
                         wp_ll_rank_of_half(ll, number, source);
    return (uint64_t *)(void *)(wp_ll_area(ll, owner) + ll->offsets.comes) + idx;
}

/* The least value of that word for this number. */
enum { WP_LL_BEHIND_BITS = 4, WP_LL_COUNT_BITS = 16 /* WEFT__LL_MAX_TOKENS */ };
WP_FN uint64_t wp_ll_comes_at_least(uint64_t number)
{
    return number << (WP_LL_COUNT_BITS + WP_LL_BEHIND_BITS);
}

/* The word for rows: how many come, and the credit of the source as a difference to `number`, at most
 * the number of results. Each value from wp_ll_comes(number, i, 0) on says that there is no row i. */
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

/* In a table of a half: the entry of a token of this rank for a rank. */
WP_FN uint32_t wp_ll_token_idx(const struct wp_low_latency *ll, uint64_t number, int32_t rank,
                               int32_t token)
{
    return wp_ll_rank_of_half(ll, number, rank) * (uint32_t)ll->plan.max_tokens + (uint32_t)token;
}

/* ------------------------------------------------------------------ room */

/* All warps call this as a launch begins. It gives credit for what this rank has received. */
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

/* Warp-wide: waits until a rank has given the credit that `number` needs, or is left out. */
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

/* The credit for rows that came with a number. One word keeps that of the last even and of the last odd
 * number, 16 bits each, which begin here. */
WP_FN uint32_t wp_ll_taken_shift(uint64_t number)
{
    return 16 * ((uint32_t)number % 2);
}

/* One lane calls this: the only one that receives the rank's count in this launch. */
WP_FN void wp_ll_note_heard_taken(const struct wp_low_latency *ll, int32_t rank, uint64_t number,
                                  uint64_t taken)
{
    const uint32_t shift = wp_ll_taken_shift(number);
    const uint32_t before = (uint32_t)wp_load_relaxed(&ll->rows_taken[rank]);
    const uint32_t after =
        (before & ~((uint32_t)UINT16_MAX << shift)) | ((uint32_t)taken & UINT16_MAX) << shift;
    wp_add_relaxed(&ll->rows_taken[rank], (int32_t)(after - before));
}

/* Whether the slots for `number` are known to be free. Only credit that an earlier launch received
 * counts. Credit that another block of this launch receives is not ordered before this block's stores. */
WP_FN int wp_ll_is_known_to_have_room(const struct wp_ll_run *run, int32_t taken, uint64_t number)
{
    const uint32_t known = (uint32_t)taken >> wp_ll_taken_shift(number - 1);
    return (int16_t)((uint32_t)wp_ll_number_before(run, number) - known) <= 0;
}

/* ------------------------------------------------------------------ the end, in advance */

/* All warps call this when they have sent. It commits early what the block remembers of the launch, while
 * packets are under way. So no warp waits for another at the end. If the launch fails, nothing that is
 * remembered counts any more. A status other than WP_STATUS_OK says that the launch has ended. */
WP_FN enum wp_status wp_ll_commit_early(const struct wp_ll_run *run, enum wp_status status)
{
    status = wp_block_status(run->op.warp, status); /* all have read what was remembered before */
    if (status != WP_STATUS_OK)
        return wp_operation_end(&run->op, status);
    wp_operation_advance(&run->op);
    wp_ll_remember_run(run);
    return status;
}

/* Each warp calls this when it has received. */
WP_FN enum wp_status wp_ll_end_committed(const struct wp_ll_run *run, enum wp_status status)
{
    wp_ll_end_missing(run);
    wp_operation_note(&run->op, status);
    return status;
}

/* ------------------------------------------------------------------ who has come */

/* Warp-wide, with masks: each lane that has a rank waits for its word of `number`. It leaves out the ranks
 * that are missing. */
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

/* One lane calls this. It waits for a rank's word of `number`, and adds the time to waits_ns, if that is
 * not NULL. */
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

/* The leader warp waits for the words of all ranks. All ranks have started then, so the next launch may
 * come: among 4 H200 a combine of one token by rank takes 4.0 us, not 4.2 (2026-11-27). */
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
