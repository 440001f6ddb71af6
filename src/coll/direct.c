/* SPDX-License-Identifier: MIT */
/* Launches of the programs that access inputs and outputs of other ranks where they are. */
#include "coll/coll.h"
#include "programs/coll/direct_push.h"
#include "programs/coll/direct_reduce.h"
#include "programs/coll/relayed_broadcast.h"

uint64_t weft__coll_told_bytes(const struct weft__coll_call *call)
{
    return call->whole_count > 0
               ? WP_CALL_IS_PIECE | call->whole_count * wp_dtype_bytes(call->dtype)
               : weft__coll_row_bytes(call);
}

uint64_t weft__coll_chunk_bytes(const weft_coll *coll, uint64_t row_bytes)
{
    const uint64_t max_chunks = WP_DIRECT_MAX_CHUNKS / WEFT_COLL_MAX_RANKS; /* of each row */
    uint64_t chunk_bytes = coll->chunk_bytes;
    while (row_bytes > chunk_bytes * max_chunks)
        chunk_bytes *= 2;
    return chunk_bytes;
}

/* Programs cut rows of at most row_bytes into chunks. */
static struct wp_direct direct_of(const struct weft__coll_call *call,
                                  const struct weft__coll_places *places, weft_algorithm algorithm,
                                  uint64_t row_bytes)
{
    const weft_coll *coll = call->coll;
    struct wp_direct direct = {
        .area = coll->area,
        .header = weft__coll_header(call, algorithm, weft__coll_told_bytes(call)),
        .chunk_bytes = weft__coll_chunk_bytes(coll, row_bytes),
    };
    direct.header.input = places->input;
    direct.header.output = places->output;
    return direct;
}

/* As many blocks on all ranks. */
static struct weft__grid grid_of(const struct weft__coll_call *call, enum weft__work_kind kind)
{
    struct weft__grid grid = weft__coll_tensor_grid(call, kind);
    if (call->num_blocks == 0) /* else the table, or the config, makes them the same on all ranks */
        grid.num_blocks = call->coll->direct_blocks[kind];
    return grid;
}

static weft_result launch(const struct weft__coll_call *call, enum wp_program program,
                          enum weft__work_kind kind, const void *args, size_t args_bytes)
{
    weft__coll_note(call, program);
    return weft__exchange_launch(call->coll->exchange, call->stream, program, grid_of(call, kind),
                                 args, args_bytes);
}

/* The part of the row that this rank reduces in two shots. */
static struct wp_span own_part(const weft_coll *coll, uint64_t row_bytes)
{
    const uint64_t part_bytes = weft__coll_part_bytes(row_bytes, coll->comm->num_ranks);
    return wp_span_of_row(row_bytes, (uint64_t)coll->comm->rank * part_bytes, part_bytes);
}

weft_result weft__coll_direct_reduce(const struct weft__coll_call *call,
                                     const struct weft__coll_places *places,
                                     weft_algorithm algorithm)
{
    const uint64_t row_bytes = weft__coll_row_bytes(call);
    struct wp_direct_reduce_args args = {
        .direct = direct_of(call, places, algorithm, row_bytes),
        .reduction = {.dtype = call->dtype, .op = weft__coll_reduction_op(call)},
        .part_bytes = row_bytes,
        .out = call->recv,
        .root = call->collective == WEFT_REDUCE ? call->root : WP_NO_RANK,
    };
    if (call->collective == WEFT_REDUCE_SCATTER)
        args.part_offset = (uint64_t)call->coll->comm->rank * row_bytes;
    if (call->collective == WEFT_REDUCE && call->coll->comm->rank != call->root)
        args.part_bytes = 0; /* in one shot */
    if (algorithm == WEFT_ALGORITHM_TWOSHOT) {
        const struct wp_span part = own_part(call->coll, row_bytes);
        args.part_offset = part.begin;
        args.part_bytes = part.bytes;
        args.out = NULL;
    }
    return launch(call, WP_PROGRAM_direct_reduce, WEFT__WORK_PULL_TENSOR, &args, sizeof args);
}

uint64_t weft__coll_longest_row(const struct wp_span *rows, int32_t num_rows)
{
    uint64_t longest = 0;
    for (int32_t i = 0; i < num_rows; i++)
        longest = rows[i].bytes > longest ? rows[i].bytes : longest;
    return longest;
}

static enum wp_push_kind push_kind(weft_collective collective)
{
    if (collective == WEFT_GATHER)
        return WP_PUSH_ONE_ROW_TO_ROOT;
    return collective == WEFT_ALL_TO_ALL || collective == WEFT_SCATTER ? WP_PUSH_A_ROW_EACH
                                                                       : WP_PUSH_ONE_ROW_TO_ALL;
}

weft_result weft__coll_direct_push(const struct weft__coll_call *call,
                                   const struct weft__coll_places *places,
                                   const struct wp_exchanged_rows *rows)
{
    const uint64_t longest_row_bytes =
        weft__coll_longest_row(rows->sent, call->coll->comm->num_ranks);
    const struct wp_direct_push_args args = {
        .direct = direct_of(call, places, WEFT_ALGORITHM_PUSH, longest_row_bytes),
        .in = call->send,
        .out = places->out,
        .kind = push_kind(call->collective),
        .root = call->root,
        .longest_row_bytes = longest_row_bytes,
        .rows = *rows,
    };
    return launch(call, WP_PROGRAM_direct_push, WEFT__WORK_PUSH_TENSOR, &args, sizeof args);
}

/* ------------------------------------------------------------------ relays */

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* So long that every block gets something, no longer than measured best, and so many that a word
 * can count those of a block. */
static uint64_t piece_bytes(const weft_coll *coll, uint64_t part_bytes, int32_t num_blocks)
{
    const uint64_t share = weft__coll_part_bytes(part_bytes, num_blocks);
    uint64_t bytes = share > 0 ? least(share, coll->piece_bytes) : coll->piece_bytes;
    while (share > bytes * WP_RELAYED_MAX_PIECES)
        bytes *= 2;
    return bytes;
}

weft_result weft__coll_relay(const struct weft__coll_call *call,
                             const struct weft__coll_places *places)
{
    const weft_coll *coll = call->coll;
    const uint64_t row_bytes = weft__coll_row_bytes(call);
    const int32_t num_others = coll->comm->num_ranks - 1;
    struct wp_relayed_broadcast_args args = {
        .direct = direct_of(call, places, WEFT_ALGORITHM_RELAY, 0),
        .words_offset =
            weft__exchange_extra_offset(coll->exchange) + wp_packet_area_bytes(&coll->area),
        .in = call->send,
        .out = places->out,
        .root = call->root,
        .num_bytes = row_bytes,
        .part_bytes = weft__coll_part_bytes(row_bytes, num_others > 0 ? num_others : 1),
    };
    args.direct.chunk_bytes = piece_bytes(coll, least(args.part_bytes, row_bytes),
                                          grid_of(call, WEFT__WORK_PUSH_TENSOR).num_blocks);
    return launch(call, WP_PROGRAM_relayed_broadcast, WEFT__WORK_PUSH_TENSOR, &args, sizeof args);
}
