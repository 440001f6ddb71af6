/* SPDX-License-Identifier: MIT */
/*
 * A rank's own tokens on their way to the ranks that it has mapped: all that dispatch does, and of
 * internode_dispatch what stays in the node. A warp reads a token's row, or a part of it, once.
 */
#ifndef WEFT_PROGRAMS_OWN_TOKENS_H
#define WEFT_PROGRAMS_OWN_TOKENS_H

#include "programs/deliver.h"
#include "programs/dispatch.h"

struct weft_own_tokens {
    const struct weft_dispatch_args *args;
    struct weft_delivery delivery;
    struct weft_share share;
    char *const *bases; /* as of weft_find_targets */
};

/* The tokens, shared among num_warps warps. */
WEFT_FN struct weft_own_tokens weft_own_tokens(const struct weft_operation *op,
                                               const struct weft_dispatch_args *args,
                                               int32_t num_warps, char *const *bases)
{
    const struct weft_own_tokens own = {
        args,
        {op, &args->message.call, &args->placement, args->routing.num_topk},
        weft_share_rows(num_warps, args->routing.num_tokens,
                        weft_units_taken(op->exchange, op->sequence)),
        bases};
    return own;
}

WEFT_FN const char *weft_own_row(const struct weft_own_tokens *own, int32_t plane, int32_t token)
{
    const struct weft_source_plane *source = &own->args->planes[plane];
    return source->rows + (uint64_t)token * source->stride_bytes;
}

WEFT_FN int32_t weft_own_targets(const struct weft_own_tokens *own, int32_t token)
{
    return weft_find_targets(own->delivery.op->warp, &own->args->routing, token,
                             WEFT_ROUTES_ROTATED, own->bases);
}

/* What the warp delivers first comes, and where it goes is found, while others are awaited. Returns
 * how many targets it has. */
WEFT_FN int32_t weft_own_prepare(const struct weft_own_tokens *own, int32_t unit)
{
    if (unit >= own->share.num_units)
        return 0;
    const struct weft_part part = weft_unit_part(&own->share, unit);
    const struct weft_span span =
        weft_part_span(&own->share, part.part, own->delivery.call->row_bytes[0]);
    if (span.bytes > 0)
        weft_row_prefetch(own->delivery.op->warp, weft_own_row(own, 0, part.token) + span.begin,
                          span.bytes);
    return weft_own_targets(own, part.token);
}

/* The targets of the part's token have been found. */
WEFT_FN void weft_own_deliver_part(const struct weft_own_tokens *own, struct weft_part part,
                                   int32_t num_targets)
{
    const struct weft_delivery *delivery = &own->delivery;
    const struct weft_dispatch_args *args = own->args;
    for (int32_t plane = 0; plane < weft_call_num_planes(delivery->call); plane++) {
        const struct weft_span span =
            weft_part_span(&own->share, part.part, delivery->call->row_bytes[plane]);
        if (span.bytes > 0 && num_targets > 0)
            weft_deliver_row(delivery, plane, weft_own_row(own, plane, part.token), span,
                             num_targets);
    }
    if (part.part != 0)
        return;
    const struct weft_token token =
        weft_token_of(args->routing.rank, part.token, delivery, args->topk_idx, args->topk_weights);
    weft_deliver_topk(delivery, &token, num_targets);
}

/* From unit `first` on, whose num_targets targets weft_own_prepare has found. */
WEFT_FN void weft_own_deliver(const struct weft_own_tokens *own, int32_t first, int32_t num_targets)
{
    struct weft_warp *warp = own->delivery.op->warp;
    for (int32_t unit = first; unit < own->share.num_units;) {
        const struct weft_part part = weft_unit_part(&own->share, unit);
        const int32_t next = weft_take_unit(warp, &own->share);
        if (unit != first)
            num_targets = weft_own_targets(own, part.token);
        weft_own_deliver_part(own, part, num_targets);
        unit = weft_taken_unit(warp, next);
    }
}

#endif
