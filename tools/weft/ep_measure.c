/* SPDX-License-Identifier: MIT */
#include "ep_measure.h"

#include <stdlib.h>
#include <string.h>

#include "ep_ll.h"
#include "workload/failure.h"
#include "workload/of_ranks.h"
#include "workload/progress.h"
#include "workload/try.h"

/* The barrier lets all ranks start the operation together. */
static weft_result enqueue_timed(struct ep_layer *layer, enum ep_op op)
{
    const struct ep_interval *interval = &layer->intervals[op];
    TRY(ep_layer_prepare(layer, op));
    TRY(weft_comm_barrier(layer->comm, layer->stream));
    TRY(weft_event_record(interval->start, layer->stream));
    TRY(ep_layer_enqueue(layer, op));
    TRY(weft_event_record(interval->stop, layer->stream));
    return ep_layer_finish(layer, op);
}

static weft_result run_iteration(struct ep_layer *layer, double us[EP_NUM_OPS])
{
    const struct ep_interval *intervals = layer->intervals;
    for (int op = 0; op < EP_NUM_OPS; op++)
        if (ep_op_exists(op, layer->options))
            TRY(enqueue_timed(layer, op));
    TRY(weft_stream_synchronize(layer->stream));
    for (int op = 0; op < EP_NUM_OPS; op++)
        if (ep_op_exists(op, layer->options))
            TRY(weft_event_elapsed_us(intervals[op].start, intervals[op].stop, &us[op]));
    return WEFT_OK;
}

/* samples[op][num_iters] of this rank. */
static weft_result run_iterations(struct ep_layer *layer, double *samples)
{
    const struct ep_options *options = layer->options;
    int32_t num_steps = options->num_warmup + options->num_iters;
    struct progress progress;
    double us[EP_NUM_OPS] = {0};
    weft_result result = WEFT_OK;
    progress_begin(&progress, layer->rank == 0 ? options->progress : PROGRESS_HIDDEN,
                   "weft ep, timing", num_steps);
    for (int32_t step = 0; step < num_steps && result == WEFT_OK; step++) {
        result = run_iteration(layer, us);
        int32_t iteration = step - options->num_warmup;
        for (int op = 0; op < EP_NUM_OPS && iteration >= 0; op++)
            samples[(int64_t)op * options->num_iters + iteration] = us[op] / ep_layer_calls(layer);
        progress_update(&progress, step + 1);
    }
    progress_end(&progress);
    return result;
}

weft_result ep_measure(struct ep_layer *layer, struct figures figures[EP_NUM_OPS])
{
    size_t num_iters = (size_t)layer->options->num_iters;
    double *samples = calloc(EP_NUM_OPS * num_iters, sizeof *samples);
    weft_result result = samples ? run_iterations(layer, samples)
                                 : LACKS_MEMORY("the times of %zu iterations", num_iters);
    for (size_t op = 0; op < EP_NUM_OPS && result == WEFT_OK; op++)
        if (ep_op_exists((enum ep_op)op, layer->options))
            result =
                slowest_of_ranks(layer->comm, samples + op * num_iters, num_iters, &figures[op]);
    free(samples);
    return result;
}

/* Of the last dispatch. */
static weft_result count_traffic(struct ep_layer *layer, struct ep_traffic *traffic)
{
    weft_ep_counts counts = WEFT_INIT(weft_ep_counts);
    if (layer->options->mode == EP_MODE_LOW_LATENCY)
        return ep_ll_count_traffic(layer, traffic);
    weft_result result = weft_ep_wait_counts(layer->handle, &counts);
    if (result != WEFT_OK)
        return result;
    const uint64_t num_recv = (uint64_t)counts.num_recv_tokens;
    const uint64_t num_own = (uint64_t)counts.num_recv_per_rank[layer->rank];
    *traffic = (struct ep_traffic){num_recv * layer->options->row_bytes,
                                   (num_recv - num_own) * layer->options->row_bytes};
    return WEFT_OK;
}

weft_result ep_measure_traffic(struct ep_layer *layer, struct ep_traffic *traffic)
{
    struct ep_traffic own = {0, 0};
    weft_result result = count_traffic(layer, &own);
    struct ep_traffic *of_ranks = calloc((size_t)layer->num_ranks, sizeof *of_ranks);
    if (!of_ranks)
        return LACKS_MEMORY("%d ranks", layer->num_ranks);
    if (result == WEFT_OK)
        result = weft_comm_host_all_gather(layer->comm, &own, sizeof own, of_ranks);
    *traffic = (struct ep_traffic){0, 0};
    for (int32_t r = 0; r < layer->num_ranks && result == WEFT_OK; r++) {
        if (of_ranks[r].bytes_logical > traffic->bytes_logical)
            traffic->bytes_logical = of_ranks[r].bytes_logical;
        if (of_ranks[r].bytes_remote > traffic->bytes_remote)
            traffic->bytes_remote = of_ranks[r].bytes_remote;
    }
    free(of_ranks);
    return result;
}

/* ---------------------------------------------------------------- between nodes */

/* What one rank has sent, and rows that crossed the network: those that it got to relay or, of low
 * latency, has sent. */
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
    *bytes = (after.sent_bytes - before.sent_bytes) / (uint64_t)ep_layer_calls(layer);
    return ep_layer_finish(layer, op);
}

/* By operation. A normal combine sends a sum for each row that dispatch has brought. */
static weft_result count_rows(struct ep_layer *layer, int64_t *num_rows)
{
    weft_ep_counts counts = WEFT_INIT(weft_ep_counts);
    if (layer->options->mode == EP_MODE_LOW_LATENCY) {
        num_rows[EP_LL_DISPATCH] = ep_ll_count_rows_between_nodes(layer, EP_LL_DISPATCH);
        num_rows[EP_LL_COMBINE] = ep_ll_count_rows_between_nodes(layer, EP_LL_COMBINE);
        num_rows[EP_LL_LAYER] = num_rows[EP_LL_DISPATCH] + num_rows[EP_LL_COMBINE];
        return WEFT_OK;
    }
    const weft_result result = weft_ep_wait_counts(layer->handle, &counts);
    num_rows[EP_DISPATCH] = num_rows[EP_COMBINE] = num_rows[EP_LAYER] = counts.num_relayed_tokens;
    if (ep_op_exists(EP_COMBINE, layer->options))
        num_rows[EP_LAYER] += counts.num_relayed_tokens;
    return result;
}

static weft_result count(struct ep_layer *layer, struct sent *sent)
{
    for (int op = 0; op < EP_NUM_OPS; op++)
        if (ep_op_exists((enum ep_op)op, layer->options))
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
