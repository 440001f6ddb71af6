/* SPDX-License-Identifier: MIT */
/*
 * relayed_broadcast: the root writes a part of its row to each other rank, piece by piece, and that
 * rank passes each piece on to the others. So each link carries the row once.
 *
 * Block b of every rank does every num_blocks-th piece of all parts. Ranks start and finish as in
 * all direct operations (direct.h).
 */
#include "programs/coll/relayed_broadcast.h"

struct relay {
    const struct wp_relayed_broadcast_args *args;
    struct wp_operation op;
};

/* The rank that passes a part on. */
WP_FN int32_t owner_of(const struct relay *relay, int32_t part)
{
    return (relay->args->root + 1 + part) % relay->op.exchange->num_ranks;
}

WP_FN uint64_t *word_at(const struct relay *relay, int32_t rank)
{
    char *words = relay->op.exchange->bases[rank] + relay->args->words_offset;
    return (uint64_t *)(void *)words + wp_block_idx(relay->op.warp);
}

/* ------------------------------------------------------------------ rows */

/* This warp's share of a piece of a part. */
WP_FN struct wp_span share_of_piece(const struct relay *relay, int32_t part, uint64_t piece)
{
    enum { LEAST_BYTES = 512 };
    const struct wp_relayed_broadcast_args *args = relay->args;
    const uint64_t num_warps = (uint64_t)wp_num_warps(relay->op.warp);
    const struct wp_span whole =
        wp_span_of_row(args->num_bytes, (uint64_t)part * args->part_bytes, args->part_bytes);
    const struct wp_span chunk =
        wp_span_of_row(whole.bytes, piece * args->direct.chunk_bytes, args->direct.chunk_bytes);
    const uint64_t share =
        (chunk.bytes + num_warps * LEAST_BYTES - 1) / (num_warps * LEAST_BYTES) * LEAST_BYTES;
    struct wp_span span =
        wp_span_of_row(chunk.bytes, (uint64_t)wp_warp_idx(relay->op.warp) * share, share);
    span.begin += whole.begin + chunk.begin;
    return span;
}

/* Copies a span to the outputs of num_ranks ranks, `first` and those after it, but for the root and
 * this rank, which have it. */
WP_FN void copy_to(const struct relay *relay, const char *src, struct wp_span span, int32_t first,
                   int32_t num_ranks)
{
    struct wp_warp *warp = relay->op.warp;
    const struct wp_direct *direct = &relay->args->direct;
    const struct wp_exchange *exchange = relay->op.exchange;
    const void **dsts = wp_warp_pointers(warp);
    if (span.bytes == 0)
        return;
    wp_warp_sync(warp); /* the previous pointers have been used */
    for (int32_t i = wp_lane_idx(warp); i < num_ranks; i += WP_WARP_SIZE) {
        const int32_t rank = (first + i) % exchange->num_ranks;
        dsts[i] = rank == exchange->rank || rank == relay->args->root
                      ? NULL
                      : wp_direct_output(warp, direct, rank) + span.begin;
    }
    wp_warp_sync(warp);
    wp_row_copy(warp, dsts, num_ranks, src + span.begin, span.bytes);
}

/* Called by every warp of the root: its share of a piece of all parts. */
WP_FN void spread(const struct relay *relay, int32_t num_parts, uint64_t piece)
{
    const struct wp_relayed_broadcast_args *args = relay->args;
    for (int32_t part = 0; part < num_parts; part++)
        copy_to(relay, args->in, share_of_piece(relay, part, piece), owner_of(relay, part), 1);
}

/* ------------------------------------------------------------------ steps */

/* The root's: writes the block's next piece of all parts, and tells their owners. */
WP_FN void send_piece(const struct relay *relay, uint64_t piece, uint64_t number)
{
    struct wp_warp *warp = relay->op.warp;
    const int32_t num_parts = relay->op.exchange->num_ranks - 1;
    spread(relay, num_parts, piece);
    wp_block_sync(warp); /* the rows of all warps are complete */
    if (wp_warp_idx(warp) != 0)
        return;
    for (int32_t part = wp_lane_idx(warp); part < num_parts; part += WP_WARP_SIZE) {
        const int32_t owner = owner_of(relay, part);
        wp_signal(warp, owner, word_at(relay, owner), number); /* pairs with pass_piece_on */
    }
}

/* Another rank's: passes the block's next piece of its part on to all others. */
WP_FN enum wp_status pass_piece_on(const struct relay *relay, uint64_t piece, uint64_t number)
{
    struct wp_warp *warp = relay->op.warp;
    const struct wp_relayed_broadcast_args *args = relay->args;
    const struct wp_exchange *exchange = relay->op.exchange;
    const int32_t rank = exchange->rank, num_ranks = exchange->num_ranks;
    const int32_t part = (rank + num_ranks - args->root - 1) % num_ranks;
    const struct wp_wait_site site = wp_operation_site(&relay->op, WP_PHASE_DATA, args->root);
    enum wp_status status = WP_STATUS_OK;
    if (wp_warp_idx(warp) == 0 && wp_lane_idx(warp) == 0)
        status = wp_wait(warp, word_at(relay, rank), number, &site);
    /* Behind this, all lanes have what the first one has acquired. */
    status = wp_block_status(warp, (enum wp_status)wp_max_u32(warp, (uint32_t)status));
    if (status == WP_STATUS_OK)
        copy_to(relay, args->out, share_of_piece(relay, part, piece), rank + 1, num_ranks - 1);
    return status;
}

/* The block's pieces of the longest part. */
WP_FN uint64_t num_pieces(const struct relay *relay)
{
    const struct wp_relayed_broadcast_args *args = relay->args;
    const uint64_t num_blocks = (uint64_t)wp_num_blocks(relay->op.warp);
    const uint64_t part_bytes =
        args->part_bytes < args->num_bytes ? args->part_bytes : args->num_bytes;
    const uint64_t num_chunks =
        (part_bytes + args->direct.chunk_bytes - 1) / args->direct.chunk_bytes;
    return (num_chunks + num_blocks - 1 - (uint64_t)wp_block_idx(relay->op.warp)) / num_blocks;
}

WP_FN enum wp_status do_pieces(const struct relay *relay)
{
    const uint64_t num_blocks = (uint64_t)wp_num_blocks(relay->op.warp);
    const uint64_t block_idx = (uint64_t)wp_block_idx(relay->op.warp);
    const uint64_t end = num_pieces(relay);
    const int is_root = relay->op.exchange->rank == relay->args->root;
    enum wp_status status = WP_STATUS_OK;
    for (uint64_t i = 0; i < end && status == WP_STATUS_OK; i++) {
        const uint64_t piece = i * num_blocks + block_idx;
        const uint64_t number = wp_relayed_number(relay->op.sequence, i + 1);
        if (is_root)
            send_piece(relay, piece, number);
        else
            status = pass_piece_on(relay, piece, number);
    }
    return status;
}

/* The root's own output, unless the row is in place. */
WP_FN void keep_row(const struct relay *relay)
{
    struct wp_warp *warp = relay->op.warp;
    const struct wp_relayed_broadcast_args *args = relay->args;
    const uint64_t step = (uint64_t)wp_num_launch_warps(warp) * args->direct.chunk_bytes;
    const void **dsts = wp_warp_pointers(warp);
    if (relay->op.exchange->rank != args->root || args->out == args->in)
        return;
    for (uint64_t at = (uint64_t)wp_launch_warp_idx(warp) * args->direct.chunk_bytes;
         at < args->num_bytes; at += step) {
        const struct wp_span span = wp_span_of_row(args->num_bytes, at, args->direct.chunk_bytes);
        wp_warp_sync(warp); /* the previous pointers have been used */
        if (wp_lane_idx(warp) == 0)
            dsts[0] = args->out + span.begin;
        wp_warp_sync(warp);
        wp_row_copy(warp, dsts, 1, args->in + span.begin, span.bytes);
    }
}

/* ------------------------------------------------------------------ the program */

WP_PROGRAM(relayed_broadcast, warp, args)
{
    const struct wp_direct *direct = &args->direct;
    const struct relay relay = {args, wp_operation_begin(warp, &direct->area.exchange, NULL)};
    if (relay.op.sequence == WP_SEQUENCE_FAILED)
        return WP_STATUS_FAILED;
    const struct wp_packets packets = wp_packets_of(&direct->area, relay.op.sequence);
    enum wp_status status = wp_direct_meet(warp, direct, &packets);
    if (status == WP_STATUS_OK) {
        wp_admit_next(warp); /* all ranks have started */
        status = do_pieces(&relay);
    }
    if (status != WP_STATUS_OK)
        return wp_operation_end(&relay.op, status);
    keep_row(&relay);
    return wp_operation_finish(&relay.op, WP_BLOCKS_AS_HERE);
}
