/* SPDX-License-Identifier: MIT */
/* Launches of the programs that access inputs and outputs of other ranks where they are. */
#include "coll/coll.h"
#include "programs/direct_push.h"
#include "programs/direct_reduce.h"

static struct weft_direct direct_of(const struct weft__coll_call *call,
                                    const struct weft__coll_places *places,
                                    enum weft_program program)
{
    const weft_coll *coll = call->coll;
    return (struct weft_direct){
        .area = coll->area,
        .header = weft__coll_header(call, program, 0),
        .message = {.call = {[WEFT_CALL_PROGRAM] = program,
                             [WEFT_CALL_DTYPE] = (uint32_t)call->dtype,
                             [WEFT_CALL_COLLECTIVE] = (uint32_t)call->collective,
                             [WEFT_CALL_OP] = (uint32_t)call->op,
                             [WEFT_CALL_ROOT] = (uint32_t)call->root},
                    .array_offsets =
                        {[WEFT_DIRECT_IN] = places->input, [WEFT_DIRECT_OUT] = places->output}},
        .chunk_bytes = coll->chunk_bytes,
    };
}

static weft_result launch(const struct weft__coll_call *call, enum weft_program program,
                          const struct weft__work *work, const void *args, size_t args_bytes)
{
    return weft__exchange_launch(call->coll->exchange, call->stream, program,
                                 weft__coll_grid(call->coll, work), args, args_bytes);
}

/* The part of the row that this rank reduces in two shots. */
static struct weft__coll_row own_part(const weft_coll *coll, uint64_t row_bytes)
{
    const uint64_t part_bytes = weft__coll_part_bytes(coll, row_bytes);
    const uint64_t begin = (uint64_t)coll->comm->rank * part_bytes;
    const uint64_t rest = begin < row_bytes ? row_bytes - begin : 0;
    return (struct weft__coll_row){begin, rest < part_bytes ? rest : part_bytes};
}

weft_result weft__coll_direct_reduce(const struct weft__coll_call *call,
                                     const struct weft__coll_places *places,
                                     weft_algorithm algorithm)
{
    const uint64_t row_bytes = weft__coll_row_bytes(call);
    struct weft_direct_reduce_args args = {
        .direct = direct_of(call, places, WEFT_PROGRAM_direct_reduce),
        .reduction = {.dtype = call->dtype, .op = (enum weft_reduction_op)call->op},
        .part_bytes = row_bytes,
        .out = call->recv,
    };
    args.direct.message.call[WEFT_CALL_BYTES_LOW] = (uint32_t)row_bytes;
    args.direct.message.call[WEFT_CALL_BYTES_HIGH] = (uint32_t)(row_bytes >> 32);
    if (call->collective == WEFT_REDUCE_SCATTER)
        args.part_offset = (uint64_t)call->coll->comm->rank * row_bytes;
    if (algorithm == WEFT_ALGORITHM_TWOSHOT) {
        const struct weft__coll_row part = own_part(call->coll, row_bytes);
        args.part_offset = part.offset;
        args.part_bytes = part.bytes;
        args.out = NULL;
    }
    const struct weft__work work = {WEFT__WORK_PULL_ROWS, 0, args.direct.chunk_bytes};
    return launch(call, WEFT_PROGRAM_direct_reduce, &work, &args, sizeof args);
}

weft_result weft__coll_direct_push(const struct weft__coll_call *call,
                                   const struct weft__coll_places *places,
                                   const struct weft__coll_rows *rows)
{
    struct weft_direct_push_args args = {
        .direct = direct_of(call, places, WEFT_PROGRAM_direct_push),
        .in = call->send,
        .rows =
            call->collective == WEFT_ALL_TO_ALL ? WEFT_PUSH_A_ROW_EACH : WEFT_PUSH_ONE_ROW_TO_ALL,
    };
    for (int32_t rank = 0; rank < call->coll->comm->num_ranks; rank++) {
        args.sent[rank].offset = rows->sent[rank].offset;
        args.sent[rank].bytes = rows->sent[rank].bytes;
        args.received[rank].num_bytes = rows->received[rank].bytes;
        args.received[rank].array_offset = places->output + rows->received[rank].offset;
        if (args.sent[rank].bytes > args.longest_row_bytes)
            args.longest_row_bytes = args.sent[rank].bytes;
    }
    const struct weft__work work = {WEFT__WORK_PUSH_ROWS, 0, args.direct.chunk_bytes};
    return launch(call, WEFT_PROGRAM_direct_push, &work, &args, sizeof args);
}
