/* SPDX-License-Identifier: MIT */
/*
 * The streams of a collective over several nodes. Ranks of the node with index 0 to num_rails - 1
 * are rails: what crosses the network goes from rail to rail of the same index, and only to the
 * next node, which passes it on. What the rail of one node has for another node is a stream: rows
 * of equal length, one after the other, cut into chunks as long as a slot of a ring holds.
 *
 *     all-reduce      a row: the rail's part of the sum of the nodes' inputs
 *     reduce-scatter  a row for each rank there that the rail serves: the sum of the nodes' rows
 *                     for it
 *     all-gather      a row of each rank here that the rail serves, the same for all nodes
 *     all-to-all      a row of each rank here that the rail serves, for each rank there
 *     broadcast       from the root's node: the rail's part of the root's row, the same for all
 *                     nodes
 *     reduce          to the root's node, of each node: as of an all-reduce
 *     gather          to the root's node: a row of each rank here that the rail serves
 *     scatter         from the root's node: the root's row for each rank there that the rail serves
 *
 * A rail serves the ranks whose index in their node is its own, and, where nodes differ, also every
 * num_rails-th after that. Parts are equal but for the last ones.
 */
#pragma once

#include "programs/coll/internode_collective.h"

/* All rails with the same index compute it. */
struct wp_stream {
    int32_t from, to; /* nodes */
    uint64_t num_rows;
    uint64_t row_bytes;
    uint64_t row_begin; /* where the rail's part begins in the ranks' rows */
};

WP_FN int wp_is_reduction(const struct wp_internode_collective_args *args)
{
    return args->collective == WEFT_ALL_REDUCE || args->collective == WEFT_REDUCE_SCATTER ||
           args->collective == WEFT_REDUCE;
}

/* Whether a stream is for one node alone, as it began. */
WP_FN int wp_is_for_one_node(const struct wp_internode_collective_args *args)
{
    return args->collective == WEFT_ALL_TO_ALL || args->collective == WEFT_GATHER ||
           args->collective == WEFT_SCATTER;
}

/* Part `idx` of a rank's row in `num_parts`. */
WP_FN struct wp_span wp_row_part(const struct wp_internode_collective_args *args, int32_t idx,
                                 int32_t num_parts)
{
    const uint64_t bytes = (args->row_bytes + (uint64_t)num_parts - 1) / (uint64_t)num_parts;
    const uint64_t part_bytes = wp_wire_round_up(bytes);
    return wp_span_of_row(args->row_bytes, (uint64_t)idx * part_bytes, part_bytes);
}

/* ------------------------------------------------------------------ who is served */

WP_FN int32_t wp_num_served(const struct wp_nodes *nodes, int32_t node)
{
    const int32_t num_rails = nodes->num_rails;
    return (nodes->sizes[node] - nodes->local_idx + num_rails - 1) / num_rails;
}

/* The index in its node of the i-th that the rail serves there. */
WP_FN int32_t wp_served_idx(const struct wp_nodes *nodes, uint64_t i)
{
    return nodes->local_idx + (int32_t)i * nodes->num_rails;
}

/* ------------------------------------------------------------------ streams */

/* Whether a rail sends parts of rows, not the rows of whom it serves. */
WP_FN int wp_sends_parts(const struct wp_internode_collective_args *args)
{
    return args->collective == WEFT_ALL_REDUCE || args->collective == WEFT_BROADCAST ||
           args->collective == WEFT_REDUCE;
}

/* Rows that a rail sends, if there were no root. */
WP_FN uint64_t wp_rows_between(const struct wp_internode_collective_args *args, int32_t from,
                               int32_t to)
{
    const struct wp_nodes *nodes = &args->rings.nodes;
    if (wp_sends_parts(args))
        return 1;
    if (args->collective == WEFT_REDUCE_SCATTER || args->collective == WEFT_SCATTER)
        return (uint64_t)wp_num_served(nodes, to);
    return (uint64_t)wp_num_served(nodes, from) *
           (args->collective == WEFT_ALL_TO_ALL ? (uint64_t)nodes->sizes[to] : 1);
}

WP_FN struct wp_stream wp_stream_of(const struct wp_internode_collective_args *args, int32_t from,
                                    int32_t to)
{
    const struct wp_nodes *nodes = &args->rings.nodes;
    const int is_from_root = args->collective == WEFT_BROADCAST || args->collective == WEFT_SCATTER;
    const int is_to_root = args->collective == WEFT_REDUCE || args->collective == WEFT_GATHER;
    struct wp_stream stream = {from, to, wp_rows_between(args, from, to), args->row_bytes, 0};
    if (wp_sends_parts(args)) {
        const struct wp_span part = wp_row_part(args, nodes->local_idx, nodes->num_rails);
        stream.row_bytes = part.bytes;
        stream.row_begin = part.begin;
    }
    if ((is_from_root && from != args->root_node) || (is_to_root && to != args->root_node))
        stream.num_rows = 0;
    return stream;
}

WP_FN uint64_t wp_chunk_payload(const struct wp_rings *rings)
{
    return rings->slot_bytes - WP_CHUNK_HEADER_BYTES;
}

/* All channels together. */
WP_FN uint64_t wp_stream_all_chunks(const struct wp_rings *rings, const struct wp_stream *stream)
{
    const uint64_t payload = wp_chunk_payload(rings);
    return (stream->num_rows * stream->row_bytes + payload - 1) / payload;
}

/* How many chunks of the stream go through the channel, `hops` nodes from where it begins. To the
 * next node the first rail sends one at least, in which that node reads what is called. */
WP_FN uint64_t wp_stream_chunks(const struct wp_rings *rings, const struct wp_stream *stream,
                                int32_t channel, uint64_t hops)
{
    const uint64_t num_channels = (uint64_t)rings->num_channels;
    uint64_t num_chunks = wp_stream_all_chunks(rings, stream);
    if (num_chunks == 0 && hops == 0 && rings->nodes.local_idx == 0)
        num_chunks = 1;
    return (num_chunks + num_channels - 1 - (uint64_t)channel) / num_channels;
}

/* The bytes of the stream that the channel's chunk k has. All but the last have as many: each costs
 * a message. */
WP_FN struct wp_span wp_stream_chunk(const struct wp_rings *rings, const struct wp_stream *stream,
                                     int32_t channel, uint64_t k)
{
    const uint64_t num_chunks = wp_stream_all_chunks(rings, stream);
    const uint64_t num_bytes = stream->num_rows * stream->row_bytes;
    const uint64_t chunk_bytes =
        num_chunks == 0 ? 0 : wp_wire_round_up((num_bytes + num_chunks - 1) / num_chunks);
    const uint64_t idx = k * (uint64_t)rings->num_channels + (uint64_t)channel;
    return wp_span_of_row(num_bytes, idx * chunk_bytes, chunk_bytes);
}

/* A chunk's share of one row. */
struct wp_piece {
    uint64_t row;
    uint64_t offset; /* in the ranks' rows */
    uint64_t bytes;
    uint64_t wire_offset; /* in the slot */
};

/* The piece that begins at `begin` in the stream, of a chunk that is not over yet. */
WP_FN struct wp_piece wp_stream_piece(const struct wp_stream *stream, struct wp_span chunk,
                                      uint64_t begin)
{
    const uint64_t row = stream->num_rows == 1 ? 0 : begin / stream->row_bytes;
    const uint64_t offset = begin - row * stream->row_bytes;
    const uint64_t rest_of_row = stream->row_bytes - offset;
    const uint64_t rest = chunk.begin + chunk.bytes - begin;
    const struct wp_piece piece = {row, stream->row_begin + offset,
                                   rest_of_row < rest ? rest_of_row : rest,
                                   WP_CHUNK_HEADER_BYTES + begin - chunk.begin};
    return piece;
}
