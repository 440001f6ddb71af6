/* SPDX-License-Identifier: MIT */
/*
 * A rank's own tokens on their way to the ranks that it has mapped: all that dispatch does, and of
 * internode_dispatch what stays in the node. A warp reads a token's row, or a part of it, once.
 */
#pragma once

#include "programs/ep/deliver.h"
#include "programs/ep/dispatch.h"

struct wp_own_tokens {
    const struct wp_dispatch_args *args;
    struct wp_delivery delivery;
    struct wp_share share;
    char *const *bases;                         /* as of wp_find_targets */
    const struct wp_quantised_plane *quantised; /* NULL: no plane is */
};

/* Whether a program has code for planes that are quantised, which takes registers. */
enum wp_own_planes { WP_PLANES_AS_THEY_ARE, WP_PLANES_OF_ANY_KIND };

/* The tokens, shared among num_warps warps. */
WP_FN struct wp_own_tokens wp_own_tokens(const struct wp_operation *op,
                                         const struct wp_dispatch_args *args, int32_t num_warps,
                                         char *const *bases, enum wp_own_planes planes)
{
    const int is_quantised = planes == WP_PLANES_OF_ANY_KIND && wp_is_quantised(&args->quantised);
    const struct wp_own_tokens own = {
        args,
        {op, &args->message.call, &args->placement, args->routing.num_topk},
        wp_share_rows(num_warps, args->routing.num_tokens,
                      wp_units_taken(op->exchange, op->sequence)),
        bases,
        is_quantised ? &args->quantised : NULL};
    return own;
}

WP_FN const char *wp_own_row(const struct wp_own_tokens *own, int32_t plane, int32_t token)
{
    const struct wp_source_plane *source = &own->args->planes[plane];
    return source->rows + (uint64_t)token * source->stride_bytes;
}

WP_FN int32_t wp_own_targets(const struct wp_own_tokens *own, int32_t token)
{
    return wp_find_targets(own->delivery.op->warp, &own->args->routing, token, WP_ROUTES_ROTATED,
                           own->bases);
}

/* Prefetches the warp's first unit and finds its targets while other ranks are awaited. Returns the
 * number of targets. */
WP_FN int32_t wp_own_prepare(const struct wp_own_tokens *own, int32_t unit)
{
    if (unit >= own->share.num_units)
        return 0;
    const struct wp_part part = wp_unit_part(&own->share, unit);
    const struct wp_span span =
        wp_part_span(&own->share, part.part, own->delivery.call->row_bytes[0]);
    const int is_copied = own->quantised == NULL || own->quantised->idx != 0;
    if (span.bytes > 0 && is_copied)
        wp_row_prefetch(own->delivery.op->warp, wp_own_row(own, 0, part.token) + span.begin,
                        span.bytes);
    return wp_own_targets(own, part.token);
}

/* The part of a plane that is quantised; the plane of its scales comes with it. */
WP_FN void wp_own_quantise_part(const struct wp_own_tokens *own, struct wp_part part,
                                int32_t num_targets)
{
    const struct wp_call *call = own->delivery.call;
    const struct wp_quantised_plane *plane = own->quantised;
    const uint64_t num_groups =
        call->row_bytes[wp_call_num_planes(call) - 1] / wp_scale_bytes(plane->how.scale);
    const struct wp_span groups = wp_part_groups(&own->share, part.part, num_groups);
    if (groups.bytes > 0)
        wp_deliver_quantised(&own->delivery, plane, wp_own_row(own, plane->idx, part.token), groups,
                             num_targets);
}

/* The targets of the part's token have been found. */
WP_FN void wp_own_deliver_part(const struct wp_own_tokens *own, struct wp_part part,
                               int32_t num_targets)
{
    const struct wp_delivery *delivery = &own->delivery;
    const struct wp_dispatch_args *args = own->args;
    const int32_t num_copied = wp_call_num_planes(delivery->call) - (own->quantised != NULL);
    for (int32_t plane = 0; plane < num_copied; plane++) {
        if (own->quantised != NULL && own->quantised->idx == plane) {
            wp_own_quantise_part(own, part, num_targets);
            continue;
        }
        const struct wp_span span =
            wp_part_span(&own->share, part.part, delivery->call->row_bytes[plane]);
        if (span.bytes > 0 && num_targets > 0)
            wp_deliver_row(delivery, plane, wp_own_row(own, plane, part.token), span, num_targets);
    }
    if (part.part != 0)
        return;
    const struct wp_token token =
        wp_token_of(args->routing.rank, part.token, delivery, args->topk_idx, args->topk_weights);
    wp_deliver_topk(delivery, &token, num_targets);
}

/* From unit `first` on, whose num_targets targets wp_own_prepare has found. */
WP_FN void wp_own_deliver(const struct wp_own_tokens *own, int32_t first, int32_t num_targets)
{
    struct wp_warp *warp = own->delivery.op->warp;
    for (int32_t unit = first; unit < own->share.num_units;) {
        const struct wp_part part = wp_unit_part(&own->share, unit);
        const int32_t next = wp_take_unit(warp, &own->share);
        if (unit != first)
            num_targets = wp_own_targets(own, part.token);
        wp_own_deliver_part(own, part, num_targets);
        unit = wp_taken_unit(warp, next);
    }
}
