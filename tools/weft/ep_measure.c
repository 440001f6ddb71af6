/* SPDX-License-Identifier: MIT */
#include "ep_measure.h"

#include <stdlib.h>

#include "workload/progress.h"

/* The barrier lets all ranks start the operation together. */
static weft_result enqueue_timed(struct ep_layer *layer, enum ep_op op)
{
    const struct ep_interval *interval = &layer->intervals[op];
    weft_result result = weft_comm_barrier(layer->comm, layer->stream);
    if (result == WEFT_OK)
        result = weft_event_record(interval->start, layer->stream);
    if (result == WEFT_OK)
        result = ep_layer_enqueue(layer, op);
    if (result == WEFT_OK)
        result = weft_event_record(interval->stop, layer->stream);
    return result;
}

static weft_result run_iteration(struct ep_layer *layer, double us[EP_NUM_OPS])
{
    const struct ep_interval *intervals = layer->intervals;
    weft_result result = WEFT_OK;
    for (int op = 0; op < EP_NUM_OPS && result == WEFT_OK; op++)
        if (ep_op_exists(op, layer->options))
            result = enqueue_timed(layer, op);
    if (result == WEFT_OK)
        result = weft_stream_synchronize(layer->stream);
    for (int op = 0; op < EP_NUM_OPS && result == WEFT_OK; op++)
        if (ep_op_exists(op, layer->options))
            result = weft_event_elapsed_us(intervals[op].start, intervals[op].stop, &us[op]);
    return result;
}

/* samples[op][num_iters] of this rank. */
static weft_result run_iterations(struct ep_layer *layer, double *samples)
{
    const struct ep_options *options = layer->options;
    int32_t num_steps = options->num_warmup + options->num_iters;
    struct progress progress;
    double us[EP_NUM_OPS] = {0};
    weft_result result = WEFT_OK;
    progress_begin(&progress, layer->rank == 0 ? PROGRESS_SHOWN : PROGRESS_HIDDEN,
                   "weft ep, timing", num_steps);
    for (int32_t step = 0; step < num_steps && result == WEFT_OK; step++) {
        result = run_iteration(layer, us);
        int32_t iteration = step - options->num_warmup;
        for (int op = 0; op < EP_NUM_OPS && iteration >= 0; op++)
            samples[(int64_t)op * options->num_iters + iteration] = us[op];
        progress_update(&progress, step + 1);
    }
    progress_end(&progress);
    return result;
}

/* `gathered` holds [num_ranks][num_iters]. */
static weft_result summarise(struct ep_layer *layer, double *samples, double *gathered,
                             struct figures *figures)
{
    size_t num_iters = (size_t)layer->options->num_iters;
    weft_result result =
        weft_host_all_gather(layer->comm, samples, num_iters * sizeof *samples, gathered);
    if (result != WEFT_OK)
        return result;
    for (size_t r = 0; r < (size_t)layer->num_ranks; r++)
        for (size_t i = 0; i < num_iters; i++)
            if (gathered[r * num_iters + i] > samples[i])
                samples[i] = gathered[r * num_iters + i];
    *figures = figures_of(samples, num_iters);
    return WEFT_OK;
}

weft_result ep_measure(struct ep_layer *layer, struct figures figures[EP_NUM_OPS])
{
    size_t num_iters = (size_t)layer->options->num_iters;
    double *samples = calloc(EP_NUM_OPS * num_iters, sizeof *samples);
    double *gathered = calloc((size_t)layer->num_ranks * num_iters, sizeof *gathered);
    weft_result result = WEFT_ERROR_OUT_OF_MEMORY;
    if (samples && gathered)
        result = run_iterations(layer, samples);
    for (size_t op = 0; op < EP_NUM_OPS && result == WEFT_OK; op++)
        if (ep_op_exists((enum ep_op)op, layer->options))
            result = summarise(layer, samples + op * num_iters, gathered, &figures[op]);
    free(samples);
    free(gathered);
    return result;
}

weft_result ep_measure_traffic(struct ep_layer *layer, struct ep_traffic *traffic)
{
    weft_ep_counts counts = WEFT_INIT(weft_ep_counts);
    weft_result result = weft_ep_wait_counts(layer->handle, &counts);
    struct ep_traffic *of_ranks = calloc((size_t)layer->num_ranks, sizeof *of_ranks);
    if (!of_ranks)
        return WEFT_ERROR_OUT_OF_MEMORY;
    if (result == WEFT_OK) {
        uint64_t num_recv = (uint64_t)counts.num_recv_tokens;
        uint64_t num_own = (uint64_t)counts.num_recv_per_rank[layer->rank];
        struct ep_traffic own = {num_recv * layer->options->row_bytes,
                                 (num_recv - num_own) * layer->options->row_bytes};
        result = weft_host_all_gather(layer->comm, &own, sizeof own, of_ranks);
    }
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
