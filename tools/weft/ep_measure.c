/* SPDX-License-Identifier: MIT */
#include "ep_measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workload/ep_ll.h"
#include "workload/failure.h"
#include "workload/of_ranks.h"
#include "workload/progress.h"
#include "workload/try.h"

/* The events around an operation. */
struct interval {
    weft_event *start, *stop;
};

/* The barrier lets all ranks start the operation together. */
static weft_result enqueue_timed(struct ep_layer *layer, enum ep_op op,
                                 const struct interval *interval)
{
    TRY(ep_layer_prepare(layer, op));
    TRY(weft_comm_barrier(layer->comm, layer->stream));
    TRY(weft_event_record(interval->start, layer->stream));
    TRY(ep_layer_enqueue(layer, op));
    TRY(weft_event_record(interval->stop, layer->stream));
    return ep_layer_finish(layer, op);
}

/* The host enqueues so many iterations before it waits, so that it is ahead of the operations that
 * are timed. */
enum { NUM_AHEAD = 8 };

struct timing {
    struct ep_layer *layer;
    int32_t num_warmup, num_iters;
    struct interval intervals[NUM_AHEAD][EP_NUM_OPS];
    double *samples; /* [EP_NUM_OPS][num_iters] of this rank */
};

static weft_result open_intervals(struct timing *timing)
{
    for (int i = 0; i < NUM_AHEAD; i++)
        for (int op = 0; op < EP_NUM_OPS; op++)
            if (ep_op_is_timed(op, timing->layer->options)) {
                TRY(weft_event_create(timing->layer->comm, &timing->intervals[i][op].start));
                TRY(weft_event_create(timing->layer->comm, &timing->intervals[i][op].stop));
            }
    return WEFT_OK;
}

static void close_intervals(struct timing *timing)
{
    for (int i = 0; i < NUM_AHEAD; i++)
        for (int op = 0; op < EP_NUM_OPS; op++) {
            if (timing->intervals[i][op].start)
                weft_event_destroy(timing->intervals[i][op].start);
            if (timing->intervals[i][op].stop)
                weft_event_destroy(timing->intervals[i][op].stop);
        }
}

/* Warm-up comes before iteration 0. */
static weft_result read_times(const struct timing *timing, const struct interval *intervals,
                              int32_t iteration)
{
    const struct ep_layer_options *options = timing->layer->options;
    for (int op = 0; op < EP_NUM_OPS && iteration >= 0; op++) {
        double us;
        if (!ep_op_is_timed(op, options))
            continue;
        TRY(weft_event_elapsed_us(intervals[op].start, intervals[op].stop, &us));
        timing->samples[(int64_t)op * timing->num_iters + iteration] =
            us / ep_op_calls(op, options);
    }
    return WEFT_OK;
}

static weft_result run_batch(const struct timing *timing, int32_t first, int32_t num_iters)
{
    for (int32_t i = 0; i < num_iters; i++)
        for (int op = 0; op < EP_NUM_OPS; op++)
            if (ep_op_is_timed(op, timing->layer->options))
                TRY(enqueue_timed(timing->layer, op, &timing->intervals[i][op]));
    TRY(weft_stream_synchronize(timing->layer->stream));
    for (int32_t i = 0; i < num_iters; i++)
        TRY(read_times(timing, timing->intervals[i], first + i));
    return WEFT_OK;
}

static weft_result run_batches(const struct timing *timing)
{
    const struct ep_layer_options *options = timing->layer->options;
    struct progress progress;
    struct job_pace pace = {0};
    char label[64];
    weft_result result = WEFT_OK;
    snprintf(label, sizeof label, "%s, timing", options->program);
    progress_begin(&progress, timing->layer->rank == 0 ? options->progress : PROGRESS_HIDDEN, label,
                   timing->num_warmup + timing->num_iters);
    for (int32_t i = -timing->num_warmup; i < timing->num_iters && result == WEFT_OK;
         i += NUM_AHEAD) {
        const int32_t left = timing->num_iters - i;
        result = job_check_signals(timing->layer->comm, &pace);
        if (result == WEFT_OK)
            result = run_batch(timing, i, left < NUM_AHEAD ? left : NUM_AHEAD);
        progress_update(&progress, timing->num_warmup + i + (left < NUM_AHEAD ? left : NUM_AHEAD));
    }
    progress_end(&progress);
    return result;
}

weft_result ep_measure(struct ep_layer *layer, const struct ep_options *options,
                       struct figures figures[EP_NUM_OPS])
{
    const size_t num_iters = (size_t)options->num_iters;
    struct timing timing = {.layer = layer,
                            .num_warmup = options->num_warmup,
                            .num_iters = options->num_iters,
                            .samples = calloc(EP_NUM_OPS * num_iters, sizeof(double))};
    weft_result result = timing.samples ? open_intervals(&timing)
                                        : LACKS_MEMORY("the times of %zu iterations", num_iters);
    if (result == WEFT_OK)
        result = run_batches(&timing);
    for (size_t op = 0; op < EP_NUM_OPS && result == WEFT_OK; op++)
        if (ep_op_is_timed((enum ep_op)op, layer->options))
            result = slowest_of_ranks(layer->comm, timing.samples + op * num_iters, num_iters,
                                      &figures[op]);
    close_intervals(&timing);
    free(timing.samples);
    return result;
}

weft_result ep_find_slowest(weft_comm *comm, struct ep_slowest *slowest)
{
    const int32_t num_ranks = weft_comm_num_ranks(comm);
    weft_slowest own = WEFT_INIT(weft_slowest), *all = calloc((size_t)num_ranks, sizeof *all);
    weft_result result =
        all ? weft_stats_query_slowest(comm, &own) : LACKS_MEMORY("%d ranks", num_ranks);
    if (result == WEFT_OK)
        result = weft_comm_host_all_gather(comm, &own, sizeof own, all);
    *slowest = (struct ep_slowest){.rank.rank = -1};
    for (int32_t i = 0; i < num_ranks && result == WEFT_OK; i++)
        if (all[i].rank >= 0 &&
            all[i].num_late * all[i].late_ns > slowest->rank.num_late * slowest->rank.late_ns)
            slowest->rank = all[i];
    for (int32_t i = 0; i < num_ranks && result == WEFT_OK; i++)
        slowest->num_witnesses += all[i].rank >= 0 && all[i].rank == slowest->rank.rank;
    free(all);
    return result;
}

static weft_result count_traffic(struct ep_layer *layer, struct ep_traffic *traffic)
{
    weft_ep_counts counts = WEFT_INIT(weft_ep_counts);
    if (layer->options->mode == EP_MODE_LOW_LATENCY)
        return ep_ll_count_traffic(layer, traffic);
    TRY(ep_layer_route(layer, &counts));
    const uint64_t num_recv = (uint64_t)counts.num_recv_tokens;
    const uint64_t num_own = (uint64_t)counts.num_recv_per_rank[layer->rank];
    *traffic = (struct ep_traffic){num_recv * layer->options->row_bytes,
                                   (num_recv - num_own) * layer->options->row_bytes};
    return WEFT_OK;
}

static void add_traffic(struct ep_traffic_of_ranks *traffic, const struct ep_traffic *of_rank)
{
    traffic->mean.bytes_logical += of_rank->bytes_logical;
    traffic->mean.bytes_remote += of_rank->bytes_remote;
    if (of_rank->bytes_logical > traffic->most.bytes_logical)
        traffic->most.bytes_logical = of_rank->bytes_logical;
    if (of_rank->bytes_remote > traffic->most.bytes_remote)
        traffic->most.bytes_remote = of_rank->bytes_remote;
}

weft_result ep_measure_traffic(struct ep_layer *layer, struct ep_traffic_of_ranks *traffic)
{
    struct ep_traffic own = {0, 0};
    weft_result result = count_traffic(layer, &own);
    struct ep_traffic *of_ranks = calloc((size_t)layer->num_ranks, sizeof *of_ranks);
    if (!of_ranks)
        return LACKS_MEMORY("%d ranks", layer->num_ranks);
    if (result == WEFT_OK)
        result = weft_comm_host_all_gather(layer->comm, &own, sizeof own, of_ranks);
    *traffic = (struct ep_traffic_of_ranks){{0, 0}, {0, 0}};
    for (int32_t r = 0; r < layer->num_ranks && result == WEFT_OK; r++)
        add_traffic(traffic, &of_ranks[r]);
    traffic->mean.bytes_logical /= (uint64_t)layer->num_ranks;
    traffic->mean.bytes_remote /= (uint64_t)layer->num_ranks;
    free(of_ranks);
    return result;
}

/* ---------------------------------------------------------------- between nodes */

/* The bytes that one rank has sent, and its rows that crossed the network: those that it got to
 * relay or, with low latency, has sent. */
struct sent {
    uint64_t bytes[EP_NUM_OPS];
    int64_t num_rows[EP_NUM_OPS];
};

/* After the quiet all is counted that the operation has sent, its last credits too. */
static weft_result count_bytes(struct ep_layer *layer, enum ep_op op, uint64_t *bytes)
{
    weft_net_info before = WEFT_INIT(weft_net_info), after = WEFT_INIT(weft_net_info);
    TRY(ep_layer_prepare(layer, op));
    TRY(weft_rma_quiet(layer->comm, layer->stream));
    TRY(weft_stream_synchronize(layer->stream));
    TRY(weft_net_query(layer->comm, &before));
    TRY(ep_layer_enqueue(layer, op));
    TRY(weft_rma_quiet(layer->comm, layer->stream));
    TRY(weft_stream_synchronize(layer->stream));
    TRY(weft_comm_host_barrier(layer->comm));
    TRY(weft_net_query(layer->comm, &after));
    *bytes = (after.sent_bytes - before.sent_bytes) / (uint64_t)ep_op_calls(op, layer->options);
    return ep_layer_finish(layer, op);
}

/* By operation. A normal combine sends a sum for each row that dispatch has brought. */
static weft_result count_rows(struct ep_layer *layer, int64_t *num_rows)
{
    weft_ep_counts counts = WEFT_INIT(weft_ep_counts);
    int64_t num_dispatched, num_combined;
    if (layer->options->mode == EP_MODE_LOW_LATENCY) {
        num_dispatched = ep_ll_count_rows_between_nodes(layer, EP_PART_DISPATCH);
        num_combined = ep_ll_count_rows_between_nodes(layer, EP_PART_COMBINE);
    } else {
        TRY(ep_layer_route(layer, &counts));
        num_dispatched = num_combined = counts.num_relayed_tokens;
    }
    for (int op = 0; op < EP_NUM_OPS; op++) {
        const int parts = ep_op_parts((enum ep_op)op, layer->options);
        num_rows[op] = (parts & EP_PART_DISPATCH ? num_dispatched : 0) +
                       (parts & EP_PART_COMBINE ? num_combined : 0);
    }
    return WEFT_OK;
}

static weft_result count(struct ep_layer *layer, struct sent *sent)
{
    for (int op = 0; op < EP_NUM_OPS; op++)
        if (ep_op_is_timed((enum ep_op)op, layer->options))
            TRY(count_bytes(layer, (enum ep_op)op, &sent->bytes[op]));
    return count_rows(layer, sent->num_rows);
}

static void add(struct ep_network *network, const struct sent *sent)
{
    for (int op = 0; op < EP_NUM_OPS; op++) {
        network->bytes[op] += sent->bytes[op];
        if (sent->bytes[op] > network->of_rank[op])
            network->of_rank[op] = sent->bytes[op];
        network->num_rows[op] += sent->num_rows[op];
    }
}

weft_result ep_network_measure(struct ep_layer *layer, struct ep_network *network)
{
    struct sent own = {{0}, {0}};
    weft_net_info info = WEFT_INIT(weft_net_info);
    *network = (struct ep_network){.engine = ""};
    weft_result result = weft_net_query(layer->comm, &info);
    if (result != WEFT_OK || layer->num_nodes == 1)
        return result;
    memcpy(network->engine, info.engine, sizeof network->engine);
    struct sent *all = calloc((size_t)layer->num_ranks, sizeof *all);
    if (!all)
        return LACKS_MEMORY("%d ranks", layer->num_ranks);
    result = count(layer, &own);
    if (result == WEFT_OK)
        result = weft_comm_host_all_gather(layer->comm, &own, sizeof own, all);
    for (int32_t rank = 0; rank < layer->num_ranks && result == WEFT_OK; rank++)
        add(network, &all[rank]);
    free(all);
    return result;
}
