/* SPDX-License-Identifier: MIT */
#include "planted_puts.h"

WP_FN int32_t own_node(const struct put_args *args)
{
    return args->rank / args->ranks_per_node;
}

WP_FN int32_t rank_on(const struct put_args *args, int32_t node)
{
    return node * args->ranks_per_node + args->rank % args->ranks_per_node;
}

WP_FN uint64_t offset_of(const struct put_args *args, const void *place)
{
    return args->area_offset + (uint64_t)((const char *)place - (const char *)args->area);
}

/* All lanes wait, so that each has acquired what it reads. Waits name the rank that it is up to in
 * the end, also those for a signal of this rank. */
WP_FN enum wp_status await(struct wp_warp *warp, const struct put_args *args, int32_t node,
                           const uint64_t *word, uint64_t at_least)
{
    const struct wp_wait_site site = {WP_PHASE_DATA, rank_on(args, node),
                                      (uint64_t)args->launch + 1, 1, 0};
    return wp_ballot(warp, wp_wait(warp, word, at_least, &site) != WP_STATUS_OK) != 0
               ? WP_STATUS_FAILED
               : WP_STATUS_OK;
}

WP_FN void copy(struct wp_warp *warp, void *dst, const void *src)
{
    const void **pointers = wp_warp_pointers(warp);
    wp_warp_sync(warp); /* the last copy's have been read */
    if (wp_lane_idx(warp) == 0)
        pointers[0] = dst;
    wp_warp_sync(warp);
    wp_row_copy(warp, pointers, 1, src, PUT_ROW_BYTES);
}

/* Row by row, and each with every node in turn: so nobody waits for a rank that waits for it. */
WP_FN enum wp_status for_all(struct wp_warp *warp, const struct put_args *args,
                             enum wp_status (*handle)(struct wp_warp *warp,
                                                      const struct put_args *args, int32_t node,
                                                      int32_t row))
{
    const int32_t begin = args->launch * PUT_ROWS, end = begin + PUT_ROWS;
    enum wp_status status = WP_STATUS_OK;
    for (int32_t row = begin; row < end; row++) {
        for (int32_t node = 0; node < args->num_nodes && status == WP_STATUS_OK; node++) {
            if (node != own_node(args))
                status = handle(warp, args, node, row);
        }
    }
    return status;
}

/* Whether one word counts the rows of all slots. */
WP_FN int are_counted(const struct put_args *args)
{
    return args->form == PUTS_COUNTED || args->form == PUTS_ALL_COUNTED;
}

/* ---------------------------------------------------------------- the sender */

WP_FN void put_row(struct wp_warp *warp, const struct put_args *args, int32_t node, int32_t row)
{
    struct put_area *area = args->area;
    const int32_t slot = row % PUT_SLOTS, own = own_node(args);
    const int32_t word = are_counted(args) ? 0 : slot;
    const int32_t source = args->form == PUTS_SLOT_REUSED ? row : slot;
    const struct wp_access put = {.operation = WP_ACCESS_PUT_SIGNAL,
                                  .rank = rank_on(args, node),
                                  .add = 1,
                                  .source = offset_of(args, area->sources[node][source]),
                                  .target = offset_of(args, area->slots[own][slot]),
                                  .num_bytes = PUT_ROW_BYTES,
                                  .word = offset_of(args, &area->arrived[own][word])};
    wp_remote_post(warp, &put);
}

WP_FN void stage_row(struct wp_warp *warp, const struct put_args *args, int32_t node, int32_t row)
{
    const int32_t source = args->form == PUTS_SLOT_REUSED ? row : row % PUT_SLOTS;
    copy(warp, args->area->sources[node][source], args->rows + (int64_t)row * PUT_ROW_BYTES);
}

WP_FN enum wp_status send_row(struct wp_warp *warp, const struct put_args *args, int32_t node,
                              int32_t row)
{
    const uint64_t *credits = &args->area->credits[node][row % PUT_SLOTS];
    enum wp_status status = WP_STATUS_OK;
    if (args->form == PUTS_SOURCE_REUSED)
        stage_row(warp, args, node, row);
    if (args->form != PUTS_SLOT_REUSED)
        status = await(warp, args, node, credits, (uint64_t)(row / PUT_SLOTS));
    if (status != WP_STATUS_OK)
        return status;
    if (args->form != PUTS_SOURCE_REUSED)
        stage_row(warp, args, node, row);
    put_row(warp, args, node, row);
    return WP_STATUS_OK;
}

/* Waits for all that has been sent: nothing is under way any more. */
WP_FN enum wp_status await_credits(struct wp_warp *warp, const struct put_args *args)
{
    const int32_t num_rows = (args->launch + 1) * PUT_ROWS;
    enum wp_status status = WP_STATUS_OK;
    for (int32_t node = 0; node < args->num_nodes; node++) {
        for (int32_t slot = 0; slot < PUT_SLOTS && node != own_node(args); slot++) {
            const int32_t num_uses = (num_rows - slot + PUT_SLOTS - 1) / PUT_SLOTS;
            if (status == WP_STATUS_OK)
                status =
                    await(warp, args, node, &args->area->credits[node][slot], (uint64_t)num_uses);
        }
    }
    return status;
}

/* ---------------------------------------------------------------- the receiver */

WP_FN enum wp_status await_row(struct wp_warp *warp, const struct put_args *args, int32_t node,
                               int32_t row)
{
    const uint64_t *arrived = args->area->arrived[node];
    const int32_t end = (args->launch + 1) * PUT_ROWS;
    const int32_t num_sent = row + PUT_SLOTS < end ? row + PUT_SLOTS : end;
    if (args->form == PUTS_NOT_AWAITED)
        return WP_STATUS_OK;
    if (args->form == PUTS_ALL_COUNTED)
        return await(warp, args, node, &arrived[0], (uint64_t)num_sent);
    if (args->form == PUTS_COUNTED)
        return await(warp, args, node, &arrived[0], (uint64_t)row + 1);
    return await(warp, args, node, &arrived[row % PUT_SLOTS], (uint64_t)(row / PUT_SLOTS) + 1);
}

WP_FN void tell_taken(struct wp_warp *warp, const struct put_args *args, int32_t node, int32_t row)
{
    if (wp_lane_idx(warp) == 0)
        wp_signal(warp, args->rank, &args->area->taken[node], (uint64_t)row + 1);
}

WP_FN enum wp_status take_row(struct wp_warp *warp, const struct put_args *args, int32_t node,
                              int32_t row)
{
    unsigned char *received = args->received + ((int64_t)node * PUT_MAX_ROWS + row) * PUT_ROW_BYTES;
    const enum wp_status status = await_row(warp, args, node, row);
    if (status != WP_STATUS_OK)
        return status;
    if (args->form == PUTS_CREDIT_FIRST)
        tell_taken(warp, args, node, row);
    copy(warp, received, args->area->slots[node][row % PUT_SLOTS]);
    if (args->form == PUTS_ROW_NOT_ENDED)
        wp_warp_sync(warp);
    else
        wp_row_sync(warp);
    if (args->form != PUTS_CREDIT_FIRST)
        tell_taken(warp, args, node, row);
    return WP_STATUS_OK;
}

/* Says that the row was read, once the receiver has told so. */
WP_FN enum wp_status give_credit(struct wp_warp *warp, const struct put_args *args, int32_t node,
                                 int32_t row)
{
    const uint64_t *credits = &args->area->credits[own_node(args)][row % PUT_SLOTS];
    const struct wp_access put = {.operation = WP_ACCESS_PUT_SIGNAL,
                                  .rank = rank_on(args, node),
                                  .add = 1,
                                  .word = offset_of(args, credits)};
    const enum wp_status status =
        await(warp, args, node, &args->area->taken[node], (uint64_t)row + 1);
    if (status == WP_STATUS_OK)
        wp_remote_post(warp, &put);
    return status;
}

/* ---------------------------------------------------------------- mistakes */

/* One more put, which nobody may ask for. */
WP_FN void put_wrongly(struct wp_warp *warp, const struct put_args *args)
{
    const uint64_t word = offset_of(args, args->area->unused);
    const int32_t other = rank_on(args, (own_node(args) + 1) % args->num_nodes);
    struct wp_access put = {.operation = WP_ACCESS_PUT_SIGNAL,
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
    wp_remote_post(warp, &put);
}

WP_PROGRAM(planted_puts, warp, args)
{
    if (wp_warp_idx(warp) == 1)
        return for_all(warp, args, take_row);
    if (wp_warp_idx(warp) == 2)
        return for_all(warp, args, give_credit);
    enum wp_status status = for_all(warp, args, send_row);
    if (status == WP_STATUS_OK && args->form != PUTS_CREDITS_LEFT)
        status = await_credits(warp, args);
    if (args->form >= PUTS_TO_OWN_NODE && args->rank == 0)
        put_wrongly(warp, args);
    return status;
}
