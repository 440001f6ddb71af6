/* SPDX-License-Identifier: MIT */
#include "planted_puts.h"

WEFT_FN int32_t own_node(const struct put_args *args)
{
    return args->rank / args->ranks_per_node;
}

WEFT_FN int32_t rank_on(const struct put_args *args, int32_t node)
{
    return node * args->ranks_per_node + args->rank % args->ranks_per_node;
}

WEFT_FN uint64_t offset_of(const struct put_args *args, const void *place)
{
    return args->area_offset + (uint64_t)((const char *)place - (const char *)args->area);
}

/* All lanes wait, so that each has acquired what it reads. Waits name the rank that it is up to in the end, also
 * those for a signal of this rank. */
WEFT_FN enum weft_status await(struct weft_warp *warp, const struct put_args *args, int32_t node,
                               const uint64_t *word, uint64_t at_least)
{
    const struct weft_wait_site site = {WEFT_PHASE_DATA, rank_on(args, node),
                                        (uint64_t)args->launch + 1, 1};
    return weft_ballot(warp, weft_wait(warp, word, at_least, &site) != WEFT_STATUS_OK) != 0
               ? WEFT_STATUS_FAILED
               : WEFT_STATUS_OK;
}

WEFT_FN void copy(struct weft_warp *warp, void *dst, const void *src)
{
    const void **pointers = weft_warp_pointers(warp);
    weft_warp_sync(warp); /* the last copy's have been read */
    if (weft_lane_idx(warp) == 0)
        pointers[0] = dst;
    weft_warp_sync(warp);
    weft_row_copy(warp, pointers, 1, src, PUT_ROW_BYTES);
}

/* Row by row, and each with every node in turn: so nobody waits for a rank that waits for it. */
WEFT_FN enum weft_status for_all(struct weft_warp *warp, const struct put_args *args,
                                 enum weft_status (*handle)(struct weft_warp *warp,
                                                            const struct put_args *args,
                                                            int32_t node, int32_t row))
{
    const int32_t begin = args->launch * PUT_ROWS, end = begin + PUT_ROWS;
    enum weft_status status = WEFT_STATUS_OK;
    for (int32_t row = begin; row < end; row++) {
        for (int32_t node = 0; node < args->num_nodes && status == WEFT_STATUS_OK; node++) {
            if (node != own_node(args))
                status = handle(warp, args, node, row);
        }
    }
    return status;
}

/* Whether one word counts the rows of all slots. */
WEFT_FN int are_counted(const struct put_args *args)
{
    return args->form == PUTS_COUNTED || args->form == PUTS_ALL_COUNTED;
}

/* ---------------------------------------------------------------- the sender */

WEFT_FN void put_row(struct weft_warp *warp, const struct put_args *args, int32_t node, int32_t row)
{
    struct put_area *area = args->area;
    const int32_t slot = row % PUT_SLOTS, own = own_node(args);
    const int32_t word = are_counted(args) ? 0 : slot;
    const int32_t source = args->form == PUTS_SLOT_REUSED ? row : slot;
    const struct weft_access put = {.operation = WEFT_ACCESS_PUT_SIGNAL,
                                    .rank = rank_on(args, node),
                                    .add = 1,
                                    .source = offset_of(args, area->sources[node][source]),
                                    .target = offset_of(args, area->slots[own][slot]),
                                    .num_bytes = PUT_ROW_BYTES,
                                    .word = offset_of(args, &area->arrived[own][word])};
    weft_remote_post(warp, &put);
}

WEFT_FN void stage_row(struct weft_warp *warp, const struct put_args *args, int32_t node,
                       int32_t row)
{
    const int32_t source = args->form == PUTS_SLOT_REUSED ? row : row % PUT_SLOTS;
    copy(warp, args->area->sources[node][source], args->rows + (int64_t)row * PUT_ROW_BYTES);
}

WEFT_FN enum weft_status send_row(struct weft_warp *warp, const struct put_args *args, int32_t node,
                                  int32_t row)
{
    const uint64_t *credits = &args->area->credits[node][row % PUT_SLOTS];
    enum weft_status status = WEFT_STATUS_OK;
    if (args->form == PUTS_SOURCE_REUSED)
        stage_row(warp, args, node, row);
    if (args->form != PUTS_SLOT_REUSED)
        status = await(warp, args, node, credits, (uint64_t)(row / PUT_SLOTS));
    if (status != WEFT_STATUS_OK)
        return status;
    if (args->form != PUTS_SOURCE_REUSED)
        stage_row(warp, args, node, row);
    put_row(warp, args, node, row);
    return WEFT_STATUS_OK;
}

/* Waits for all that has been sent: nothing is under way any more. */
WEFT_FN enum weft_status await_credits(struct weft_warp *warp, const struct put_args *args)
{
    const int32_t num_rows = (args->launch + 1) * PUT_ROWS;
    enum weft_status status = WEFT_STATUS_OK;
    for (int32_t node = 0; node < args->num_nodes; node++) {
        for (int32_t slot = 0; slot < PUT_SLOTS && node != own_node(args); slot++) {
            const int32_t num_uses = (num_rows - slot + PUT_SLOTS - 1) / PUT_SLOTS;
            if (status == WEFT_STATUS_OK)
                status =
                    await(warp, args, node, &args->area->credits[node][slot], (uint64_t)num_uses);
        }
    }
    return status;
}

/* ---------------------------------------------------------------- the receiver */

WEFT_FN enum weft_status await_row(struct weft_warp *warp, const struct put_args *args,
                                   int32_t node, int32_t row)
{
    const uint64_t *arrived = args->area->arrived[node];
    const int32_t end = (args->launch + 1) * PUT_ROWS;
    const int32_t num_sent = row + PUT_SLOTS < end ? row + PUT_SLOTS : end;
    if (args->form == PUTS_NOT_AWAITED)
        return WEFT_STATUS_OK;
    if (args->form == PUTS_ALL_COUNTED)
        return await(warp, args, node, &arrived[0], (uint64_t)num_sent);
    if (args->form == PUTS_COUNTED)
        return await(warp, args, node, &arrived[0], (uint64_t)row + 1);
    return await(warp, args, node, &arrived[row % PUT_SLOTS], (uint64_t)(row / PUT_SLOTS) + 1);
}

WEFT_FN void tell_taken(struct weft_warp *warp, const struct put_args *args, int32_t node,
                        int32_t row)
{
    if (weft_lane_idx(warp) == 0)
        weft_signal(warp, args->rank, &args->area->taken[node], (uint64_t)row + 1);
}

WEFT_FN enum weft_status take_row(struct weft_warp *warp, const struct put_args *args, int32_t node,
                                  int32_t row)
{
    unsigned char *received = args->received + ((int64_t)node * PUT_MAX_ROWS + row) * PUT_ROW_BYTES;
    const enum weft_status status = await_row(warp, args, node, row);
    if (status != WEFT_STATUS_OK)
        return status;
    if (args->form == PUTS_CREDIT_FIRST)
        tell_taken(warp, args, node, row);
    copy(warp, received, args->area->slots[node][row % PUT_SLOTS]);
    if (args->form == PUTS_ROW_NOT_ENDED)
        weft_warp_sync(warp);
    else
        weft_row_sync(warp);
    if (args->form != PUTS_CREDIT_FIRST)
        tell_taken(warp, args, node, row);
    return WEFT_STATUS_OK;
}

/* Says that the row was read, once the receiver has told so. */
WEFT_FN enum weft_status give_credit(struct weft_warp *warp, const struct put_args *args,
                                     int32_t node, int32_t row)
{
    const uint64_t *credits = &args->area->credits[own_node(args)][row % PUT_SLOTS];
    const struct weft_access put = {.operation = WEFT_ACCESS_PUT_SIGNAL,
                                    .rank = rank_on(args, node),
                                    .add = 1,
                                    .word = offset_of(args, credits)};
    const enum weft_status status =
        await(warp, args, node, &args->area->taken[node], (uint64_t)row + 1);
    if (status == WEFT_STATUS_OK)
        weft_remote_post(warp, &put);
    return status;
}

/* ---------------------------------------------------------------- mistakes */

/* One more put, which nobody may ask for. */
WEFT_FN void put_wrongly(struct weft_warp *warp, const struct put_args *args)
{
    const uint64_t word = offset_of(args, args->area->unused);
    const int32_t other = rank_on(args, (own_node(args) + 1) % args->num_nodes);
    struct weft_access put = {.operation = WEFT_ACCESS_PUT_SIGNAL,
                              .rank = other,
                              .add = 1,
                              .source = word,
                              .target = word + sizeof(uint64_t),
                              .num_bytes = sizeof(uint64_t),
                              .word = word};
    if (args->form == PUTS_TO_OWN_NODE)
        put.rank = args->rank;
    if (args->form == PUTS_TO_NOBODY)
        put.rank = args->num_nodes * args->ranks_per_node;
    if (args->form == PUTS_UNALIGNED)
        put.word += 4;
    if (args->form == PUTS_FROM_OUTSIDE) {
        put.source += 2 * sizeof(struct put_area);
    }
    weft_remote_post(warp, &put);
}

WEFT_PROGRAM(planted_puts, warp, args)
{
    if (weft_warp_idx(warp) == 1)
        return for_all(warp, args, take_row);
    if (weft_warp_idx(warp) == 2)
        return for_all(warp, args, give_credit);
    enum weft_status status = for_all(warp, args, send_row);
    if (status == WEFT_STATUS_OK && args->form != PUTS_CREDITS_LEFT)
        status = await_credits(warp, args);
    if (args->form >= PUTS_TO_OWN_NODE && args->rank == 0)
        put_wrongly(warp, args);
    return status;
}
