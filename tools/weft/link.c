/* SPDX-License-Identifier: MIT */
#include "link.h"

#include <stdlib.h>

#include "ep_measure.h"
#include "workload/ep_check.h"
#include "workload/failure.h"
#include "workload/try.h"

/* The rows that a dispatch carries. */
struct flow {
    int32_t num_rows, row_bytes;
};
static const struct flow one_row = {1, 16};
/* Enough that what a dispatch costs besides its rows does not matter at 500 GB/s. */
static const struct flow many_rows_of_gpu = {8192, 16384};
static const struct flow many_rows_of_host = {1024, 16384};

/* Rows have no experts but their receiver. */
static struct ep_options options_of(const struct flow *flow, int32_t num_ranks, int32_t sender)
{
    return (struct ep_options){.layer = {.program = "weft doctor",
                                         .num_tokens = flow->num_rows,
                                         .num_topk = 1,
                                         .num_experts = num_ranks,
                                         .hidden = flow->row_bytes,
                                         .kind = WEFT_UINT8,
                                         .row_bytes = (uint64_t)flow->row_bytes,
                                         .num_planes = 1,
                                         .plane_bytes = {(uint64_t)flow->row_bytes},
                                         .gate = EP_GATE_SENDER,
                                         .sender = sender,
                                         .seed = 1,
                                         .ops = {1, {EP_DISPATCH}},
                                         .carried = EP_CARRY_ROWS,
                                         .check = EP_CHECK_FULL},
                               .num_warmup = 3,
                               .num_iters = 20};
}

static weft_result measure_and_check(struct ep_layer *layer, const struct ep_options *options,
                                     struct figures *us, int64_t *num_damaged_rows)
{
    struct figures figures[EP_NUM_OPS];
    struct ep_tally tallies[EP_NUM_OPS] = {{0, 0}};
    TRY(ep_measure(layer, options, figures));
    TRY(ep_check(layer, tallies));
    *us = figures[EP_DISPATCH];
    *num_damaged_rows += tallies[EP_DISPATCH].errors;
    return WEFT_OK;
}

/* Adds to num_damaged_rows. After a failure the communicator is aborted. */
static weft_result carry(weft_comm *comm, int32_t sender, const struct flow *flow,
                         struct figures *us, int64_t *num_damaged_rows)
{
    const struct ep_options options = options_of(flow, weft_comm_num_ranks(comm), sender);
    struct ep_routing routing;
    struct ep_layer layer = {0};
    weft_stream *stream = NULL;
    weft_result result = ep_layer_open_routing(&routing, &options.layer, comm, EP_ROUTING_ALL);
    if (result == WEFT_OK)
        result = weft_stream_create(comm, &stream);
    if (result == WEFT_OK)
        result = ep_layer_open(&layer, comm, stream, &options.layer, &routing);
    if (result == WEFT_OK)
        result = measure_and_check(&layer, &options, us, num_damaged_rows);
    if (result != WEFT_OK)
        weft_comm_abort(comm);
    ep_layer_close(&layer);
    if (stream)
        weft_stream_destroy(stream);
    ep_routing_close(&routing);
    return result;
}

/* Collective over a communicator of one rank or two: rows go from `sender` to the other one, or, if
 * it is alone, to itself. The figures are the same on both. */
static weft_result measure_link(weft_comm *comm, int32_t sender, struct link_figures *figures)
{
    struct figures one, many;
    const struct flow *many_rows =
        weft_comm_machine(comm) == WEFT_MACHINE_CPU ? &many_rows_of_host : &many_rows_of_gpu;
    *figures = (struct link_figures){0};
    TRY(carry(comm, sender, &one_row, &one, &figures->num_damaged_rows));
    TRY(carry(comm, sender, many_rows, &many, &figures->num_damaged_rows));
    const double bytes = (double)many_rows->num_rows * (double)many_rows->row_bytes;
    figures->latency_us = one.median;
    figures->gbps = bytes / many.min / 1000;
    return WEFT_OK;
}

/* ---------------------------------------------------------------- all links of a job */

/* Both ways between ranks first < second; or of one rank to itself, if they are the same. The
 * figures of a link are noted by its sender. `own` is [num_ranks]. */
static weft_result measure_pair(weft_comm *comm, int32_t first, int32_t second,
                                struct link_figures *own)
{
    const int32_t rank = weft_comm_rank(comm);
    const int is_member = rank == first || rank == second;
    weft_comm *pair;
    weft_result result = weft_comm_split(comm, is_member ? 0 : -1, 0, NULL, &pair);
    if (result != WEFT_OK || !is_member)
        return result;
    for (int32_t sender = 0; sender < weft_comm_num_ranks(pair) && result == WEFT_OK; sender++) {
        struct link_figures figures;
        result = measure_link(pair, sender, &figures);
        if (result == WEFT_OK && sender == weft_comm_rank(pair))
            own[rank == first ? second : first] = figures;
    }
    weft_comm_destroy(pair);
    return result;
}

weft_result link_measure_all(weft_comm *comm, struct link_figures *links)
{
    const int32_t num_ranks = weft_comm_num_ranks(comm);
    const size_t own_bytes = (size_t)num_ranks * sizeof *links;
    struct link_figures *own = calloc((size_t)num_ranks, sizeof *own);
    weft_result result = own ? WEFT_OK : LACKS_MEMORY("the links of %d ranks", num_ranks);
    for (int32_t first = 0; first < num_ranks; first++)
        for (int32_t second = first; second < num_ranks && result == WEFT_OK; second++)
            result = measure_pair(comm, first, second, own);
    if (result == WEFT_OK)
        result = weft_comm_host_all_gather(comm, own, own_bytes, links);
    free(own);
    return result;
}
