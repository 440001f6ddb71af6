/* SPDX-License-Identifier: MIT */
#include "ops/programs.h"

/* The host's own machine: its primitives.h says how it names programs. */
#define DECLARE_PROGRAM(name) weft__program_fn WP_PROGRAM_SYMBOL(name);
WP_PROGRAM_LIST(DECLARE_PROGRAM)

#define PROGRAM_ENTRY(name) {#name, WP_PROGRAM_SYMBOL(name)},
static const struct weft__program programs[WP_NUM_PROGRAMS] = {WP_PROGRAM_LIST(PROGRAM_ENTRY)};

static const char *const calls[WP_NUM_PROGRAMS] = {
    [WP_PROGRAM_layout] = "weft_ep_layout",
    [WP_PROGRAM_notify] = "weft_ep_notify",
    [WP_PROGRAM_internode_notify] = "weft_ep_notify",
    [WP_PROGRAM_dispatch] = "weft_ep_dispatch",
    [WP_PROGRAM_staged_dispatch] = "weft_ep_dispatch",
    [WP_PROGRAM_quantised_dispatch] = "weft_ep_dispatch",
    [WP_PROGRAM_internode_quantised_dispatch] = "weft_ep_dispatch",
    [WP_PROGRAM_staged_combine] = "weft_ep_combine",
    [WP_PROGRAM_internode_dispatch] = "weft_ep_dispatch, or the first part of weft_ep_combine",
    [WP_PROGRAM_combine] = "weft_ep_combine",
    [WP_PROGRAM_narrow_combine] = "weft_ep_combine",
    [WP_PROGRAM_internode_combine] = "weft_ep_combine",
    [WP_PROGRAM_internode_log_combine] = "weft_ep_combine",
    [WP_PROGRAM_barrier] = "weft_comm_barrier",
    [WP_PROGRAM_internode_barrier] = "weft_comm_barrier",
    [WP_PROGRAM_packet_reduce] =
        "weft_coll_all_reduce, weft_coll_reduce_scatter or weft_coll_reduce",
    [WP_PROGRAM_direct_reduce] =
        "weft_coll_all_reduce, weft_coll_reduce_scatter or weft_coll_reduce",
    [WP_PROGRAM_packet_two_step] = "weft_coll_all_reduce",
    [WP_PROGRAM_packet_exchange] =
        "weft_coll_all_gather, _all_to_all, _broadcast, _gather or _scatter",
    [WP_PROGRAM_direct_push] =
        "weft_coll_all_gather, _all_to_all, its _v, _broadcast, _gather or _scatter",
    [WP_PROGRAM_multicast] =
        "weft_coll_all_reduce, weft_coll_reduce_scatter or weft_coll_all_gather",
    [WP_PROGRAM_send_receive] = "weft_coll_send and weft_coll_recv, or weft_coll_all_to_all_v",
    [WP_PROGRAM_pipeline] = "a collective in pieces",
    [WP_PROGRAM_internode_collective] = "a collective over nodes",
    [WP_PROGRAM_copy] = "a copy of staged memory",
    [WP_PROGRAM_premultiply] = "the products of a premultiplied sum",
    [WP_PROGRAM_narrow] = "a copy of staged memory",
    [WP_PROGRAM_quantise] = "weft_rows_quantise or weft_rows_dequantise",
    [WP_PROGRAM_mapped_access] = "a one-sided operation",
    [WP_PROGRAM_remote_access] = "a one-sided operation",
    [WP_PROGRAM_wait_until] = "weft_rma_wait_until",
    [WP_PROGRAM_low_latency_dispatch] = "weft_ll_dispatch",
    [WP_PROGRAM_low_latency_combine] = "weft_ll_combine",
    [WP_PROGRAM_internode_low_latency_dispatch] = "weft_ll_dispatch",
    [WP_PROGRAM_internode_low_latency_combine] = "weft_ll_combine",
    [WP_PROGRAM_bf16_low_latency_dispatch] = "weft_ll_dispatch",
    [WP_PROGRAM_fp8_low_latency_dispatch] = "weft_ll_dispatch",
    [WP_PROGRAM_bf16_low_latency_combine] = "weft_ll_combine",
    [WP_PROGRAM_bf16_packed_low_latency_dispatch] = "weft_ll_dispatch",
    [WP_PROGRAM_fp8_packed_low_latency_dispatch] = "weft_ll_dispatch",
    [WP_PROGRAM_bf16_packed_low_latency_combine] = "weft_ll_combine",
    [WP_PROGRAM_bf16_rows_low_latency_combine] = "weft_ll_combine",
    [WP_PROGRAM_bf16_weighed_low_latency_combine] = "weft_ll_combine",
    [WP_PROGRAM_log_low_latency_combine] = "weft_ll_combine",
    [WP_PROGRAM_log_packed_low_latency_combine] = "weft_ll_combine",
    [WP_PROGRAM_masked_bf16_low_latency_dispatch] = "weft_ll_dispatch",
    [WP_PROGRAM_masked_fp8_low_latency_dispatch] = "weft_ll_dispatch",
    [WP_PROGRAM_masked_bf16_packed_low_latency_dispatch] = "weft_ll_dispatch",
    [WP_PROGRAM_masked_fp8_packed_low_latency_dispatch] = "weft_ll_dispatch",
    [WP_PROGRAM_masked_bf16_low_latency_combine] = "weft_ll_combine",
    [WP_PROGRAM_masked_bf16_packed_low_latency_combine] = "weft_ll_combine",
    [WP_PROGRAM_masked_bf16_packet_low_latency_dispatch] = "weft_ll_dispatch",
    [WP_PROGRAM_masked_bf16_packed_packet_low_latency_dispatch] = "weft_ll_dispatch",
    [WP_PROGRAM_masked_fp8_packet_low_latency_dispatch] = "weft_ll_dispatch",
    [WP_PROGRAM_masked_fp8_packed_packet_low_latency_dispatch] = "weft_ll_dispatch",
    [WP_PROGRAM_masked_bf16_packet_low_latency_combine] = "weft_ll_combine",
    [WP_PROGRAM_masked_bf16_packed_packet_low_latency_combine] = "weft_ll_combine",
    [WP_PROGRAM_masked_bf16_told_low_latency_dispatch] = "weft_ll_dispatch",
    [WP_PROGRAM_masked_bf16_packed_told_low_latency_dispatch] = "weft_ll_dispatch",
    [WP_PROGRAM_masked_fp8_told_low_latency_dispatch] = "weft_ll_dispatch",
    [WP_PROGRAM_masked_fp8_packed_told_low_latency_dispatch] = "weft_ll_dispatch",
    [WP_PROGRAM_masked_bf16_told_low_latency_combine] = "weft_ll_combine",
    [WP_PROGRAM_masked_bf16_packed_told_low_latency_combine] = "weft_ll_combine",
    [WP_PROGRAM_packet_low_latency_dispatch] = "weft_ll_dispatch",
    [WP_PROGRAM_packet_low_latency_combine] = "weft_ll_combine",
    [WP_PROGRAM_bf16_packet_low_latency_dispatch] = "weft_ll_dispatch",
    [WP_PROGRAM_fp8_packet_low_latency_dispatch] = "weft_ll_dispatch",
    [WP_PROGRAM_bf16_packet_low_latency_combine] = "weft_ll_combine",
    [WP_PROGRAM_bf16_packed_packet_low_latency_dispatch] = "weft_ll_dispatch",
    [WP_PROGRAM_fp8_packed_packet_low_latency_dispatch] = "weft_ll_dispatch",
    [WP_PROGRAM_bf16_packed_packet_low_latency_combine] = "weft_ll_combine",
    [WP_PROGRAM_told_low_latency_dispatch] = "weft_ll_dispatch",
    [WP_PROGRAM_bf16_told_low_latency_dispatch] = "weft_ll_dispatch",
    [WP_PROGRAM_fp8_told_low_latency_dispatch] = "weft_ll_dispatch",
    [WP_PROGRAM_bf16_packed_told_low_latency_dispatch] = "weft_ll_dispatch",
    [WP_PROGRAM_fp8_packed_told_low_latency_dispatch] = "weft_ll_dispatch",
    [WP_PROGRAM_bf16_told_low_latency_combine] = "weft_ll_combine",
    [WP_PROGRAM_bf16_packed_told_low_latency_combine] = "weft_ll_combine",
    [WP_PROGRAM_log_told_low_latency_combine] = "weft_ll_combine",
    [WP_PROGRAM_log_packed_told_low_latency_combine] = "weft_ll_combine",
    [WP_PROGRAM_low_latency_release] = "weft_ll_release",
    [WP_PROGRAM_low_latency_mask] = "weft_ll_mask or weft_ll_query_mask",
    [WP_PROGRAM_low_latency_unmask] = "weft_ll_unmask",
};

const char *weft__program_calls(const struct weft__program *program)
{
    for (int i = 0; i < WP_NUM_PROGRAMS; i++) {
        if (program == &programs[i])
            return calls[i];
    }
    return "?";
}

weft_result weft__program_launch(weft_comm *comm, weft_stream *stream, enum wp_program program,
                                 struct weft__grid grid, const void *args, size_t args_bytes)
{
    const struct weft__machine *machine = weft__machine_of(comm);
    if (stream->machine != machine)
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT,
                           "stream is of machine %s, the communicator of machine %s",
                           stream->machine->hooks.name, machine->hooks.name);
    const struct weft__launch launch = {
        .program = &programs[program],
        .args = args,
        .args_bytes = args_bytes,
        .grid = grid,
        .comm = comm,
        .on_failure = weft__program_failed,
    };
    return machine->launch(stream, &launch);
}
