/* SPDX-License-Identifier: MIT */
/* Launches of the programs that access inputs and outputs of other ranks where they are. */
#include "coll/coll.h"
#include "programs/coll/direct_push.h"
#include "programs/coll/direct_reduce.h"

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

/* Of as many blocks on all ranks. */
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

/* ------------------------------------------------------------------ pipelines */

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The channels share the slots, and in each all those who send to a rank. */
static struct wp_fifos fifos_of(const weft_coll *coll, const struct wp_plan *plan,
                                int32_t num_channels)
{
    struct wp_fifos fifos = coll->fifos;
    fifos.num_slots = coll->num_slots;
    fifos.num_senders = plan->num_senders;
    fifos.slot_bytes = coll->fifo_bytes / ((uint64_t)num_channels * (uint64_t)fifos.num_senders *
                                           (uint64_t)fifos.num_slots);
    fifos.slot_bytes -= fifos.slot_bytes % WP_FIFO_SLOT_ALIGNMENT;
    return fifos;
}

/* So much that every channel gets something, and no more than fits a slot. */
static uint64_t piece_bytes(const weft_coll *coll, const struct wp_pipeline_args *args,
                            int32_t num_channels)
{
    const uint64_t most = least(coll->piece_bytes, args->fifos.slot_bytes);
    const uint64_t share =
        weft__coll_part_bytes(least(args->part_bytes, args->num_bytes), num_channels);
    return share > 0 ? least(share, most) : most;
}

/* The rows of the collective, of which each rank has all, or its own. */
static void find_parts(const struct weft__coll_call *call, struct wp_pipeline_args *args)
{
    const uint64_t row_bytes = weft__coll_row_bytes(call);
    const uint64_t num_ranks = (uint64_t)call->coll->comm->num_ranks;
    const uint64_t own_row = (uint64_t)call->coll->comm->rank * row_bytes;
    const int has_rows =
        call->collective == WEFT_REDUCE_SCATTER || call->collective == WEFT_ALL_GATHER;
    args->num_bytes = has_rows ? num_ranks * row_bytes : row_bytes;
    args->part_bytes =
        has_rows ? row_bytes : weft__coll_part_bytes(row_bytes, args->plan.num_parts);
    args->in_begin = call->collective == WEFT_ALL_GATHER ? own_row : 0;
    args->out_begin = call->collective == WEFT_REDUCE_SCATTER ? own_row : 0;
}

weft_result weft__coll_pipeline(const struct weft__coll_call *call,
                                const struct weft__coll_places *places, weft_algorithm algorithm)
{
    const weft_coll *coll = call->coll;
    const int32_t num_channels = grid_of(call, WEFT__WORK_PUSH_TENSOR).num_blocks;
    struct wp_pipeline_args args = {
        .direct = direct_of(call, places, algorithm, 0),
        .plan = weft__coll_plan(call, algorithm),
        .reduction = {.dtype = call->dtype,
                      .op = weft__coll_reduction_op(call),
                      .num_averaged = call->op == WEFT_AVG ? coll->comm->num_ranks : 0},
        .in = call->send,
        .out = places->out,
    };
    args.fifos = fifos_of(coll, &args.plan, num_channels);
    find_parts(call, &args);
    args.direct.chunk_bytes = piece_bytes(coll, &args, num_channels);
    return launch(call, WP_PROGRAM_pipeline, WEFT__WORK_PUSH_TENSOR, &args, sizeof args);
}
