/* SPDX-License-Identifier: MIT */
/* Launches of the programs that use packets. */
#include "coll/coll.h"
#include "programs/coll/packet_exchange.h"
#include "programs/coll/packet_reduce.h"
#include "programs/coll/packet_two_step.h"

static weft_result launch(const struct weft__coll_call *call, enum wp_program program,
                          uint64_t row_bytes, const void *args, size_t args_bytes)
{
    weft_coll *coll = call->coll;
    const struct weft__work work = {.kind = WEFT__WORK_PACKETS, .row_bytes = row_bytes};
    weft__coll_note(call, program);
    return weft__exchange_launch(coll->exchange, call->stream, program,
                                 weft__coll_grid(call, &work), args, args_bytes);
}

static struct wp_reduction reduction_of(const struct weft__coll_call *call)
{
    return (struct wp_reduction){.dtype = call->dtype, .op = weft__coll_reduction_op(call)};
}

weft_result weft__coll_packets_reduce(const struct weft__coll_call *call)
{
    const uint64_t row_bytes = weft__coll_row_bytes(call);
    const struct wp_packet_reduce_args args = {
        .area = call->coll->area,
        .header = weft__coll_header(call, WEFT_ALGORITHM_ONESHOT, weft__coll_told_bytes(call)),
        .in = call->send,
        .in_stride_bytes = call->collective == WEFT_REDUCE_SCATTER ? row_bytes : 0,
        .out = call->recv,
        .row_bytes = row_bytes,
        .reduction = reduction_of(call),
        .root = call->collective == WEFT_REDUCE ? call->root : WP_NO_RANK,
    };
    return launch(call, WP_PROGRAM_packet_reduce, row_bytes, &args, sizeof args);
}

weft_result weft__coll_packets_two_step(const struct weft__coll_call *call)
{
    const uint64_t row_bytes = weft__coll_row_bytes(call);
    const struct wp_packet_two_step_args args = {
        .area = call->coll->area,
        .header = weft__coll_header(call, WEFT_ALGORITHM_TWOSHOT_PACKETS, row_bytes),
        .in = call->send,
        .out = call->recv,
        .row_bytes = row_bytes,
        .part_bytes = weft__coll_part_bytes(row_bytes, call->coll->comm->num_ranks),
        .reduction = reduction_of(call),
    };
    return launch(call, WP_PROGRAM_packet_two_step, args.part_bytes, &args, sizeof args);
}

weft_result weft__coll_packets_exchange(const struct weft__coll_call *call,
                                        const struct wp_exchanged_rows *rows)
{
    const uint64_t common_bytes =
        weft__coll_has_root(call->collective) ? weft__coll_row_bytes(call) : 0;
    const struct wp_packet_exchange_args args = {
        .area = call->coll->area,
        .header = weft__coll_header(call, WEFT_ALGORITHM_ONESHOT, common_bytes),
        .in = call->send,
        .out = call->recv,
        .rows = *rows,
    };
    uint64_t sent_bytes = 0, received_bytes = 0;
    for (int32_t rank = 0; rank < call->coll->comm->num_ranks; rank++) {
        sent_bytes += rows->sent[rank].bytes;
        received_bytes += rows->received[rank].bytes;
    }
    const uint64_t most_bytes = sent_bytes > received_bytes ? sent_bytes : received_bytes;
    return launch(call, WP_PROGRAM_packet_exchange, most_bytes, &args, sizeof args);
}
