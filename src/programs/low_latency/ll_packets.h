/* SPDX-License-Identifier: MIT */
/*
 * Rows and answers in packets (machine/packets.h). Few rows take less time than the signal that
 * would tell of them.
 *
 * A token's row is cut into parts. Each warp sends some parts of this rank's tokens and receives
 * some parts of other ranks' tokens. So no warp waits for another warp of its launch. The packets
 * of a row are the bytes of its slot. A rank sends each target one more word: how many rows come,
 * or that answers come.
 *
 * The packets of number n lie in buffer n % num_buffers. They are sent when the target has credited
 * number n - num_buffers. A rank gives credit as its next launch begins, when all blocks of the
 * launch before have ended: in the words WP_LL_CREDIT of the first block. It gives credit for rows
 * along with the count of rows, too. A rank that has received this credit does not load those words
 * in its next launch.
 */
#pragma once

#include "programs/low_latency/ll_waits.h"
#include "programs/reciprocal.h"

/* ================== ranks that a warp goes on without */

/*
 * Masked ranks, in packets. Each warp waits for packets itself, so each goes by what it knows: the
 * ranks that were masked when the launch began, and those that it has masked since. So one warp may
 * receive its part of a row, while another warp waits for its part in vain.
 */

/* Warp-wide: also leaves out the ranks that other warps have masked by now. */
WP_FN void wp_ll_look_at_masks(struct wp_ll_run *run)
{
    struct wp_warp *warp = run->op.warp;
    const int32_t lane = wp_lane_idx(warp);
    const int is_masked =
        lane < run->ll->exchange.num_ranks && wp_ll_is_masked(&run->ll->masks, lane);
    run->masked |= wp_ll_find_masked(warp, run->ll, is_masked);
}

/*
 * missing_ranks must be correct when the launch ends, although no warp waits for another. So the
 * leader warp of the first block writes that no rank is missing as the launch begins, and the
 * masked ranks when it has received. A warp that masks a rank writes that, too. Stores of one warp
 * to a word are in order, so the last value says that the rank is missing. The one exception: a
 * rank masked after the last check, while the first store is still in flight.
 */

/* Warp-wide: goes on without those ranks. It masks them, and writes so. */
WP_FN void wp_ll_leave_out(struct wp_ll_run *run, uint32_t ranks)
{
    const uint32_t new_ones = ranks & ~run->masked;
    if (!wp_ll_has_masks(&run->ll->masks) || new_ones == 0)
        return;
    for (int32_t rank = wp_lane_idx(run->op.warp); rank < run->ll->exchange.num_ranks;
         rank += WP_WARP_SIZE) {
        if (!(new_ones >> rank & 1u))
            continue;
        wp_ll_mask_out(&run->ll->masks, rank);
        if (run->missing_ranks != NULL)
            wp_store_relaxed(&run->missing_ranks[rank], WP_LL_MASKED);
    }
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

/* Warp-wide, after a wait for packets whose status all lanes have. Returns 1 if it was a period in
 * vain, and the warp must wait again. Then it has announced the wait, and left out the ranks that
 * are missing by now. It is inlined: as a called function, with copies of what the warp knows, it
 * made dispatch of one token on 2 H200 take 12 us instead of 5 (2026-11-28). */
WP_FN int wp_ll_waits_again(struct wp_ll_run *run, struct wp_ll_packet_wait *wait,
                            enum wp_status status)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_low_latency *ll = run->ll;
    uint32_t given_up = 0;
    if (!wp_ll_has_masks(&ll->masks) || status != WP_STATUS_ABSENT ||
        wp_ballot(warp, wait->progress.missing != 0) == 0)
        return 0;
    wp_ll_send_waits(run, ll->masks.mask); /* before it looks at each of many, which takes time */
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
    return 1;
}

/* ------------------------------------------------------------------ waits for words */

/* Warp-wide: each lane waits for a word, if it has one and its rank is not left out. It leaves out
 * the ranks that are missing. All lanes return the same status. */
WP_FN enum wp_status wp_ll_await_lanes(struct wp_ll_run *run, struct wp_ll_wait *wait,
                                       uint64_t number)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_low_latency *ll = run->ll;
    if (wait->told.word != NULL && wp_ll_leaves_out(run, wait->site.rank))
        wait->told.word = NULL;
    const enum wp_status found = wp_ll_await_words(
        run, ll->masks.mask, wait, wp_ll_patience_about(number, ll->exchange.num_ranks));
    const enum wp_status status = (enum wp_status)wp_max_u32(warp, (uint32_t)found);
    if (wp_ll_has_masks(&ll->masks) && status == WP_STATUS_ABSENT)
        wp_ll_leave_out(
            run, wp_or_u32(warp, found == WP_STATUS_ABSENT ? 1u << (uint32_t)wait->site.rank : 0));
    return wp_ll_unless_absent(status);
}

/* ================== packets of rows and of answers */

/* ------------------------------------------------------------------ parts */

/* A work item: a part of a token's row. */
struct wp_ll_unit {
    int32_t token;
    int32_t part; /* from parts.num on what a row has besides elements */
    int32_t rank; /* that it goes to or comes from; WP_NO_RANK: any number of them */
};

/* Work item i of those for all ranks together. */
WP_FN struct wp_ll_unit wp_ll_part_of(struct wp_ll_parts parts, int32_t i)
{
    const int32_t token = (int32_t)wp_divide((uint32_t)i, parts.units_reciprocal);
    const struct wp_ll_unit unit = {token, i - token * parts.num_units, WP_NO_RANK};
    return unit;
}

/* Work item i of those for each rank. */
WP_FN struct wp_ll_unit wp_ll_unit_of(const struct wp_low_latency *ll, struct wp_ll_parts parts,
                                      int32_t i)
{
    const int32_t row = (int32_t)wp_divide((uint32_t)i, parts.ranks_reciprocal);
    struct wp_ll_unit unit = wp_ll_part_of(parts, row);
    unit.rank = i - row * ll->exchange.num_ranks;
    return unit;
}

/* The work items of a warp: every step-th from `first` on. A step of 0: it has none. */
struct wp_ll_turns {
    int32_t first, step;
};

/* Few tokens: each warp sends, and then receives. Many tokens: the first blocks receive while the
 * others send. Else all blocks would receive at the end, while the links are idle. */
WP_FN int32_t wp_ll_num_receiving_blocks(struct wp_warp *warp, const struct wp_low_latency *ll)
{
    return ll->num_receivers > 0 ? ll->num_receivers : wp_num_blocks(warp);
}

/* The work items that the warp sends or receives. Items go round the blocks first, so that few
 * tokens use many SMs. Warps that only hear have none. */
WP_FN struct wp_ll_turns wp_ll_turns_to(enum wp_ll_phase phase, struct wp_warp *warp,
                                        const struct wp_low_latency *ll)
{
    const int sends = phase == WP_LL_SEND;
    const int32_t num_blocks =
        sends ? wp_num_blocks(warp) - ll->num_receivers : wp_ll_num_receiving_blocks(warp, ll);
    const int32_t block = wp_block_idx(warp) - (sends ? ll->num_receivers : 0);
    const int32_t num_workers = wp_num_warps(warp) - ll->num_receiver_warps;
    const struct wp_ll_turns none = {INT32_MAX, 0};
    const struct wp_ll_turns turns = {block + wp_warp_idx(warp) * num_blocks,
                                      num_blocks * num_workers};
    const int works = ll->num_receiver_warps == 0 || wp_warp_idx(warp) < num_workers;
    return block >= 0 && block < num_blocks && works ? turns : none;
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
WP_FN struct wp_packets wp_ll_packets_of(const struct wp_low_latency *ll,
                                         enum wp_ll_payload payload, uint64_t number)
{
    const int are_rows = payload == WP_LL_ROWS;
    const uint64_t buffer_bytes =
        are_rows ? ll->offsets.row_packets_buffer : ll->offsets.answer_packets_buffer;
    const uint64_t offset = are_rows ? ll->offsets.row_packets : ll->offsets.answer_packets;
    const uint64_t begin =
        wp_ll_buffer(&ll->plan, number) == 0 ? offset : offset + 2 * buffer_bytes;
    const struct wp_packets packets = {ll->exchange.rank,
                                       ll->exchange.num_ranks,
                                       ll->areas != NULL ? ll->areas : ll->near_areas,
                                       begin,
                                       begin + buffer_bytes,
                                       number,
                                       ll->exchange.mailbox_offset,
                                       wp_ll_period_ms(&ll->masks)};
    return packets;
}

/* The slot of a byte of a source's row. */
WP_FN uint64_t wp_ll_row_packet(const struct wp_low_latency *ll, int32_t source, int32_t row,
                                uint64_t byte)
{
    return (wp_ll_slot_offset(wp_ll_token_idx(ll, 0, source, row), ll->plan.slot.bytes) + byte) /
           WP_PACKET_BYTES;
}

/* The slot of the answer of a rank, or of a part of it. */
WP_FN uint64_t wp_ll_answer_packet(const struct wp_low_latency *ll, int32_t answering,
                                   int32_t token, struct wp_ll_elements elements)
{
    return (wp_ll_slot_offset(wp_ll_token_idx(ll, 0, answering, token), ll->plan.answer_bytes) +
            wp_ll_answer_bytes(&ll->plan, elements.first)) /
           WP_PACKET_BYTES;
}

/* ------------------------------------------------------------------ words */

/* The word by which a rank tells how many rows it sends, or that it has answered. */
WP_FN uint64_t *wp_ll_comes_word(const struct wp_low_latency *ll, int32_t owner,
                                 enum wp_ll_payload payload, uint64_t number, int32_t source)
{
    const uint32_t idx =
        (uint32_t)payload * (uint32_t)(ll->plan.num_buffers * ll->exchange.num_ranks) +
        wp_ll_rank_of_buffer(ll, number, source);
    return (uint64_t *)(void *)(wp_ll_area(ll, owner) + ll->offsets.comes) + idx;
}

/* The word for rows: how many come, and the credit of the source as a difference to `number`, at
 * most the number of results. Each value from wp_ll_comes(number, i, 0) on says that there is no
 * row i, and each from wp_ll_comes(number, WP_LL_MOST_ROWS, 0) on that the word is of this number
 * or a later one. */
enum {
    WP_LL_BEHIND_BITS = 4,
    WP_LL_COUNT_BITS = 16,
    WP_LL_MOST_ROWS = UINT16_MAX /* WEFT_LL_MAX_TOKENS */
};
WP_FN uint64_t wp_ll_comes(uint64_t number, int32_t num_rows, uint32_t num_behind)
{
    return number << (WP_LL_COUNT_BITS + WP_LL_BEHIND_BITS) |
           (uint32_t)(WP_LL_MOST_ROWS - num_rows) << WP_LL_BEHIND_BITS | num_behind;
}

/* ------------------------------------------------------------------ credit */

/* All warps call this as a launch begins. It gives credit for what this rank has received. It also
 * writes that no rank is missing, with masks, if the launch writes missing_ranks. */
WP_FN void wp_ll_send_taken(struct wp_ll_run *run, int32_t *missing_ranks)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_low_latency *ll = run->ll;
    const int32_t own = ll->exchange.rank;
    run->missing_ranks = missing_ranks;
    if (wp_block_idx(warp) != 0 || !wp_ll_is_leader_warp(warp))
        return;
    for (int32_t rank = wp_lane_idx(warp); rank < ll->exchange.num_ranks; rank += WP_WARP_SIZE) {
        if (wp_ll_has_masks(&ll->masks) && missing_ranks != NULL)
            wp_store_relaxed(&missing_ranks[rank], WP_LL_THERE);
        if (wp_ll_leaves_out(run, rank))
            continue;
        wp_credit(warp, rank, wp_ll_word(ll, rank, WP_LL_CREDIT, WP_LL_ROWS, own, 0),
                  run->numbers.rows_received);
        wp_credit(warp, rank, wp_ll_word(ll, rank, WP_LL_CREDIT, WP_LL_ANSWERS, own, 0),
                  run->numbers.answers_received);
    }
}

/* Warp-wide: waits until a rank has given the credit that `number` needs, or is left out. */
WP_FN enum wp_status wp_ll_await_credit(struct wp_ll_run *run, enum wp_ll_payload payload,
                                        int32_t rank, uint64_t number)
{
    const struct wp_low_latency *ll = run->ll;
    struct wp_ll_wait wait = {{wp_ll_word(ll, ll->exchange.rank, WP_LL_CREDIT, payload, rank, 0),
                               wp_ll_number_before(run, number)},
                              wp_ll_site(run, WP_PHASE_FINISH, rank),
                              NULL,
                              0};
    return wp_ll_await_lanes(run, &wait, number);
}

/* The credit for rows that came with a number. One word keeps that of the last even and of the last
 * odd number, 16 bits each, which begin here. */
WP_FN uint32_t wp_ll_taken_shift(uint64_t number)
{
    return 16 * ((uint32_t)number % 2);
}

/* One lane calls this: the only one that receives the rank's word for rows in this launch. It keeps
 * the credit. Returns the number of rows. */
WP_FN int32_t wp_ll_note_received(const struct wp_low_latency *ll, int32_t rank, uint64_t number,
                                  uint64_t word)
{
    const uint32_t shift = wp_ll_taken_shift(number);
    const uint32_t num_behind = (uint32_t)word & ((1u << WP_LL_BEHIND_BITS) - 1);
    const uint32_t taken = (uint32_t)(word >> (WP_LL_COUNT_BITS + WP_LL_BEHIND_BITS)) - num_behind;
    const uint32_t before = (uint32_t)wp_load_relaxed(&ll->rows_taken[rank]);
    const uint32_t after = (before & ~((uint32_t)UINT16_MAX << shift)) | (taken & UINT16_MAX)
                                                                             << shift;
    wp_add_relaxed(&ll->rows_taken[rank], (int32_t)(after - before));
    return WP_LL_MOST_ROWS - (int32_t)((uint32_t)word >> WP_LL_BEHIND_BITS & WP_LL_MOST_ROWS);
}

/* ------------------------------------------------------------------ the end */

/* Each warp calls this when it has received. It writes which ranks are masked. */
WP_FN enum wp_status wp_ll_end_committed(const struct wp_ll_run *run, enum wp_status status)
{
    struct wp_warp *warp = run->op.warp;
    const int tells = run->missing_ranks != NULL && wp_block_idx(warp) == 0 &&
                      wp_ll_is_leader_warp(warp) && wp_ll_has_masks(&run->ll->masks);
    for (int32_t rank = wp_lane_idx(warp); tells && rank < run->ll->exchange.num_ranks;
         rank += WP_WARP_SIZE)
        if (wp_ll_is_masked(&run->ll->masks, rank))
            wp_store_relaxed(&run->missing_ranks[rank], WP_LL_MASKED);
    wp_operation_note(&run->op, status);
    return status;
}

/* ------------------------------------------------------------------ who has come */

/* A lane's wait for the word of a rank of `number`, if there is a rank. It adds the time to
 * waits_ns, if that is not NULL. */
WP_FN struct wp_ll_wait wp_ll_wait_to_receive(const struct wp_ll_run *run,
                                              enum wp_ll_payload payload, int32_t rank,
                                              uint64_t number, int64_t *waits_ns)
{
    const struct wp_low_latency *ll = run->ll;
    struct wp_ll_wait wait = {{NULL, wp_ll_comes(number, WP_LL_MOST_ROWS, 0)},
                              wp_ll_site(run, WP_PHASE_DATA, rank),
                              NULL,
                              0};
    if (rank != WP_NO_RANK)
        wait.told.word = wp_ll_comes_word(ll, ll->exchange.rank, payload, number, rank);
    if (rank != WP_NO_RANK && waits_ns != NULL)
        wait.waited_ns = waits_ns + rank;
    return wait;
}

/* The leader warp waits for the words of all ranks. All ranks have started then, so the next launch
 * may come: among 4 H200 a combine of one token by rank takes 4.0 us, not 4.2 (2026-11-27). Without
 * masks each lane waits by itself: in the other loop combine of few tokens spills (sm_90). */
WP_FN enum wp_status wp_ll_receive_all(struct wp_ll_run *run, enum wp_ll_payload payload,
                                       uint64_t number, int64_t *waits_ns)
{
    struct wp_warp *warp = run->op.warp;
    const int32_t num_ranks = run->ll->exchange.num_ranks, lane = wp_lane_idx(warp);
    const int has_masks = wp_ll_has_masks(&run->ll->masks);
    enum wp_status status = WP_STATUS_OK;
    if (!wp_ll_is_leader_warp(warp))
        return status;
    for (int32_t first = 0; has_masks && first < num_ranks && status == WP_STATUS_OK;
         first += WP_WARP_SIZE) {
        const int32_t rank = first + lane < num_ranks ? first + lane : WP_NO_RANK;
        struct wp_ll_wait wait = wp_ll_wait_to_receive(run, payload, rank, number, waits_ns);
        status = wp_ll_await_lanes(run, &wait, number);
    }
    for (int32_t rank = lane; !has_masks && rank < num_ranks && status == WP_STATUS_OK;
         rank += WP_WARP_SIZE) {
        struct wp_ll_wait wait = wp_ll_wait_to_receive(run, payload, rank, number, waits_ns);
        status = wp_ll_await_once(run, &wait);
    }
    status = (enum wp_status)wp_max_u32(warp, (uint32_t)status);
    if (status == WP_STATUS_OK)
        wp_admit_next(warp);
    return status;
}
