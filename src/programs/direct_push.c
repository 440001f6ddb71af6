/* SPDX-License-Identifier: MIT */
/*
 * direct_push: every rank writes rows of its input to the places that the others have told it:
 * all-gather, all-to-all and broadcast. A row that goes to all is read once.
 */
#include "programs/direct_push.h"

/* Where `rank` wants this rank's row. */
WEFT_FN char *place_at(const struct weft_exchange *exchange, int32_t rank)
{
    return weft_place_address(exchange, rank,
                              weft_exchange_message(exchange, rank)->to_you.array_offset);
}

/* NULL where the row is at its place already: in this rank's output, in place. */
WEFT_FN const void *destination(const struct weft_direct_push_args *args, int32_t rank,
                                struct weft_span span)
{
    const struct weft_exchange *exchange = &args->direct.area.exchange;
    const char *src = args->in + args->sent[rank].offset;
    const char *dst = place_at(exchange, rank);
    return rank == exchange->rank && dst == src ? NULL : dst + span.begin;
}

WEFT_FN void push_span(struct weft_warp *warp, const struct weft_direct_push_args *args,
                       int32_t first_rank, int32_t num_dsts, struct weft_span span)
{
    const int32_t num_ranks = args->direct.area.exchange.num_ranks;
    const void **dsts = weft_warp_pointers(warp);
    weft_warp_sync(warp); /* the previous pointers have been used */
    for (int32_t i = weft_lane_idx(warp); i < num_dsts; i += WEFT_WARP_SIZE)
        dsts[i] = destination(args, (first_rank + i) % num_ranks, span);
    weft_warp_sync(warp);
    weft_row_copy(warp, dsts, num_dsts, args->in + args->sent[first_rank].offset + span.begin,
                  span.bytes);
}

/* Each chunk goes to the ranks in turn, each rank beginning with the next one, to spread the load. */
WEFT_FN void push_unit(struct weft_warp *warp, const struct weft_direct_push_args *args,
                       const struct weft_share *share, struct weft_part part)
{
    const struct weft_exchange *exchange = &args->direct.area.exchange;
    const int32_t num_ranks = exchange->num_ranks;
    const int to_all = args->rows == WEFT_PUSH_ONE_ROW_TO_ALL;
    const int32_t chunk = to_all ? part.token : part.token / num_ranks;
    const int32_t first_rank = (exchange->rank + 1 + part.token) % num_ranks;
    const struct weft_span span = weft_direct_span(
        &args->direct, share, args->sent[first_rank].bytes, (uint64_t)chunk, part.part);
    if (span.bytes > 0)
        push_span(warp, args, first_rank, to_all ? num_ranks : 1, span);
}

/* Every block checks before it writes. */
WEFT_FN enum weft_status check_rows(struct weft_warp *warp,
                                    const struct weft_direct_push_args *args)
{
    const struct weft_exchange *exchange = &args->direct.area.exchange;
    enum weft_status status = WEFT_STATUS_OK;
    for (int32_t rank = 0; rank < exchange->num_ranks && status == WEFT_STATUS_OK; rank++) {
        const uint64_t expected = weft_exchange_message(exchange, rank)->to_you.num_bytes;
        if (expected == args->sent[rank].bytes)
            continue;
        const struct weft_failure failure = {
            WEFT_FAILURE_MISMATCH,
            {WEFT_PHASE_START, rank, weft_exchange_sequence(exchange), exchange->mailbox_offset},
            WEFT_CALL_NUM_BYTES,
            args->sent[rank].bytes,
            expected};
        status = weft_fail(warp, &failure);
        weft_exchange_note(warp, exchange, status);
    }
    return status;
}

WEFT_PROGRAM(direct_push, warp, args)
{
    enum weft_status status = weft_direct_start(warp, &args->direct, args->received);
    if (status == WEFT_STATUS_OK)
        status = check_rows(warp, args);
    if (status != WEFT_STATUS_OK)
        return status;
    const int32_t num_rows =
        args->rows == WEFT_PUSH_ONE_ROW_TO_ALL ? 1 : args->direct.area.exchange.num_ranks;
    const struct weft_share share =
        weft_direct_share(warp, &args->direct, args->longest_row_bytes, num_rows);
    for (int32_t unit = weft_first_unit(warp); unit < share.num_units;) {
        const int32_t next = weft_take_unit(warp, &share);
        push_unit(warp, args, &share, weft_unit_part(&share, unit));
        unit = weft_taken_unit(warp, next);
    }
    return weft_direct_finish(warp, &args->direct);
}
