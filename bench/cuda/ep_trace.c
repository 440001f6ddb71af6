/* SPDX-License-Identifier: MIT */
#include "ep_trace.h"

#include <stdlib.h>
#include <string.h>

#include "ep_check.h"
#include "trace_report.h"
#include "try.h"

static const int parts_of[] = {[TRACE_DISPATCH] = PART_DISPATCH, [TRACE_COMBINE] = PART_COMBINE};

struct trace_job {
    const struct cuda_options *options;
    const struct gpu_rank *rank;
    struct timing *timing;
    int32_t num_layers;
    struct plan *plans;                                 /* [num_layers], then the uniform one */
    struct trace_figure *figures[NUM_TRACE_OPERATIONS]; /* each [num_layers] */
    double uniform_gb_per_s[NUM_TRACE_OPERATIONS];      /* of the busiest link */
    double *samples;                                    /* [num_layers] */
    struct trace_report report;
};

/* ---------------------------------------------------------------- routing */

static int init_uniform(struct trace_job *job, const struct trace *trace, int32_t num_tokens)
{
    struct cuda_options options = *job->options;
    options.num_topk = trace->num_topk;
    options.num_experts = trace->num_experts;
    return routing_init(&job->plans[job->num_layers], &options, num_tokens, job->rank->num_ranks);
}

static int init_plans(struct trace_job *job, const struct trace *trace)
{
    const size_t num_layers = (size_t)trace->num_layers;
    job->plans = calloc(num_layers + 1, sizeof(*job->plans));
    job->samples = malloc(num_layers * sizeof(*job->samples));
    job->num_layers = job->plans != NULL ? trace->num_layers : 0;
    int is_short = job->plans == NULL || job->samples == NULL;
    for (int i = 0; i < NUM_TRACE_OPERATIONS; i++) {
        job->figures[i] = calloc(num_layers, sizeof(*job->figures[i]));
        is_short |= job->figures[i] == NULL;
    }
    for (int32_t layer = 0; layer < job->num_layers && !is_short; layer++)
        is_short =
            plan_init_from_trace(&job->plans[layer], trace, layer, job->rank->num_ranks) != 0;
    if (is_short) {
        perror("routing");
        return -1;
    }
    return init_uniform(job, trace, job->plans[0].num_tokens);
}

static int read_trace(struct trace_job *job, const char *path)
{
    char error[TRACE_ERROR_BYTES];
    struct trace *trace = trace_open(path, error);
    if (trace == NULL) {
        fprintf(stderr, "%s\n", error);
        return -1;
    }
    int result = -1;
    if (trace->num_tokens >= job->rank->num_ranks)
        result = init_plans(job, trace);
    else
        fprintf(stderr, "trace %s: %d tokens for %d ranks\n", path, trace->num_tokens,
                job->rank->num_ranks);
    trace_close(trace);
    return result;
}

static void destroy_plans(struct trace_job *job)
{
    for (int32_t i = 0; i <= job->num_layers && job->plans != NULL; i++)
        plan_destroy(&job->plans[i]);
    free(job->plans);
    for (int i = 0; i < NUM_TRACE_OPERATIONS; i++)
        free(job->figures[i]);
    free(job->samples);
}

/* ---------------------------------------------------------------- measurement */

/* Checked once, then timed. */
static int measure_operation(struct trace_job *job, struct ep_batch *batch,
                             struct trace_figure *figure)
{
    const int parts = parts_of[figure->operation];
    struct ep_call call = {batch, parts};
    const struct calls calls = {.enqueue = ep_call_enqueue, .argument = &call, .num_calls = 1};
    double *uniform = &job->uniform_gb_per_s[figure->operation];
    TRY(ep_check_prepare(batch, parts));
    TRY(calls_enqueue(&calls, job->rank->cuda_stream));
    TRY(ep_check(batch, parts, &figure->num_wrong));
    TRY(timing_measure(job->timing, &calls, &figure->us));
    const double gb_per_s = trace_link_gb_per_s(&job->report, figure);
    if (figure->layer == TRACE_UNIFORM)
        *uniform = gb_per_s;
    figure->vs_uniform = gb_per_s > 0 ? *uniform / gb_per_s : 0; /* 0: no row has left its rank */
    if (job->rank->rank == 0)
        trace_report_layer(&job->report, figure);
    return 0;
}

static int measure_layer(struct trace_job *job, struct ep_batch *batch, int32_t layer,
                         int64_t *num_wrong)
{
    const struct plan *plan = &job->plans[layer == TRACE_UNIFORM ? job->num_layers : layer];
    const struct trace_loads loads = trace_loads_of(plan);
    TRY(ep_batch_follow(batch, plan));
    for (int i = 0; i < NUM_TRACE_OPERATIONS; i++) {
        struct trace_figure figure = {
            .operation = (enum trace_operation)i, .layer = layer, .loads = loads};
        TRY(measure_operation(job, batch, &figure));
        *num_wrong += figure.num_wrong;
        if (layer != TRACE_UNIFORM)
            job->figures[i][layer] = figure;
    }
    return 0;
}

static int measure_layers(struct trace_job *job, struct ep_batch *batch, int64_t *num_wrong)
{
    TRY(ep_batch_init(batch));
    TRY(ep_batch_open(batch, job->report.num_blocks));
    for (int32_t layer = TRACE_UNIFORM; layer < job->num_layers; layer++)
        TRY(measure_layer(job, batch, layer, num_wrong));
    for (int i = 0; i < NUM_TRACE_OPERATIONS && job->rank->rank == 0; i++)
        trace_report_medians(&job->report, job->figures[i], job->num_layers, job->samples);
    return 0;
}

/* The batch's memory is for the layer that needs most. */
static int measure(struct trace_job *job, const char *path, int64_t *num_wrong)
{
    TRY(read_trace(job, path));
    const char *slash = strrchr(path, '/');
    struct ep_batch batch = {.options = job->options,
                             .rank = job->rank,
                             .plan = &job->plans[job->num_layers],
                             .format = &job->options->formats[0]};
    for (int32_t layer = 0; layer < job->num_layers; layer++) {
        const int32_t most = plan_most_recv(&job->plans[layer]);
        batch.capacity = most > batch.capacity ? most : batch.capacity;
    }
    job->report = (struct trace_report){.output = job->options->output,
                                        .name = slash != NULL ? slash + 1 : path,
                                        .plan = batch.plan,
                                        .rows = batch.format->text,
                                        .row_bytes = {[TRACE_DISPATCH] = row_bytes_of(batch.format),
                                                      [TRACE_COMBINE] = batch.format->row_bytes[0]},
                                        .num_blocks = (int32_t)job->options->num_blocks.values[0]};
    const int result = measure_layers(job, &batch, num_wrong);
    ep_batch_close(&batch);
    ep_batch_destroy(&batch);
    return result;
}

int ep_trace_measure(const struct ep_tracing *tracing, const char *path, int64_t *num_wrong)
{
    struct trace_job job = {
        .options = tracing->options, .rank = tracing->rank, .timing = tracing->timing};
    const int result = measure(&job, path, num_wrong);
    destroy_plans(&job);
    return result;
}
