/* SPDX-License-Identifier: MIT */
/*
 * dispatch: a warp reads a token's row once and writes it to all ranks of the token's routes,
 * straight into the final rows, at the places that the ranks named when they started.
 */
#include "programs/dispatch.h"

#include "programs/deliver.h"

/* The rows that the token goes to, in the warp's pointers. Returns how many. */
WEFT_FN int32_t find_targets(struct weft_warp *warp, const struct weft_dispatch_args *args,
                             int32_t token)
{
    return weft_find_targets(warp, &args->routing, token, WEFT_ROUTES_ROTATED,
                             weft_warp_pointers(warp));
}

WEFT_FN const char *source_row(const struct weft_dispatch_args *args, int32_t plane, int32_t token)
{
    return args->planes[plane].rows + (uint64_t)token * args->planes[plane].stride_bytes;
}

WEFT_FN void send_topk(struct weft_warp *warp, const struct weft_dispatch_args *args,
                       const struct weft_delivery *delivery, int32_t token)
{
    const struct weft_token sent =
        weft_token_of(args->routing.rank, token, delivery, args->topk_idx, args->topk_weights);
    weft_deliver_topk(delivery, &sent, find_targets(warp, args, token));
}

/* The targets of the token have been found. */
WEFT_FN void send_part(struct weft_warp *warp, const struct weft_dispatch_args *args,
                       const struct weft_delivery *delivery, const struct weft_share *share,
                       struct weft_part part, int32_t num_targets)
{
    const int32_t num_planes = weft_call_num_planes(&args->message.call);
    for (int32_t plane = 0; plane < num_planes; plane++) {
        const struct weft_span span =
            weft_part_span(share, part.part, args->message.call.row_bytes[plane]);
        if (plane > 0)
            find_targets(warp, args, part.token);
        if (span.bytes > 0 && num_targets > 0)
            weft_deliver_row(delivery, plane, source_row(args, plane, part.token), span,
                             num_targets);
    }
    if (part.part == 0)
        send_topk(warp, args, delivery, part.token);
}

/* What the warp sends first comes, and where it goes is found, while the messages are under way. Returns how many
 * targets it has. */
WEFT_FN int32_t prepare_first(struct weft_warp *warp, const struct weft_dispatch_args *args,
                              const struct weft_share *share)
{
    const int32_t unit = weft_first_unit(warp);
    if (unit >= share->num_units)
        return 0;
    const struct weft_part part = weft_unit_part(share, unit);
    const struct weft_span span = weft_part_span(share, part.part, args->message.call.row_bytes[0]);
    if (span.bytes > 0)
        weft_row_prefetch(warp, source_row(args, 0, part.token) + span.begin, span.bytes);
    return find_targets(warp, args, part.token);
}

WEFT_PROGRAM(dispatch, warp, args)
{
    const struct weft_operation op = weft_operation_begin(warp, &args->exchange, &args->message);
    if (op.sequence == WEFT_SEQUENCE_FAILED)
        return WEFT_STATUS_FAILED;
    weft_operation_tell(&op);
    const struct weft_delivery delivery = {&op, &args->message.call, &args->placement,
                                           args->routing.num_topk};
    const struct weft_share share = weft_share_rows(warp, args->routing.num_tokens,
                                                    weft_units_taken(&args->exchange, op.sequence));
    const int32_t first = weft_first_unit(warp);
    int32_t num_targets = prepare_first(warp, args, &share);
    const enum weft_status status = weft_operation_meet(&op);
    if (status != WEFT_STATUS_OK)
        return weft_operation_end(&op, status);
    weft_admit_next(warp); /* all ranks have started */
    for (int32_t unit = first; unit < share.num_units;) {
        const struct weft_part part = weft_unit_part(&share, unit);
        const int32_t next = weft_take_unit(warp, &share);
        if (unit != first)
            num_targets = find_targets(warp, args, part.token);
        send_part(warp, args, &delivery, &share, part, num_targets);
        unit = weft_taken_unit(warp, next);
    }
    weft_complete_outputs(&op, &args->routing);
    return weft_operation_finish(&op, WEFT_BLOCKS_AS_TOLD);
}
