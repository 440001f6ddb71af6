/* SPDX-License-Identifier: MIT */
/*
 * The baseline that everybody has: dispatch and combine by NCCL's send and receive.
 *
 *     weft run -n 4 --no-prefix -- nccl_all_to_all
 *
 * One process per GPU. In "nccl", operations are launched one after the other; in "nccl_graph",
 * each is a CUDA graph, so that what the host takes to launch it does not show.
 */
#include <stdlib.h>

#include "nccl_exchange.h"
#include "report.h"
#include "try.h"
#include "workload/slowest.h"

struct job {
    const struct cuda_options *options;
    struct nccl_rank rank;
    struct nccl_exchange exchange;
    cudaEvent_t *starts, *stops;
    struct report report;
};

static int alloc_events(struct job *job)
{
    const size_t num_iters = (size_t)job->options->num_iters;
    job->starts = calloc(num_iters, sizeof(cudaEvent_t));
    job->stops = calloc(num_iters, sizeof(cudaEvent_t));
    if (job->starts == NULL || job->stops == NULL) {
        perror("calloc");
        return -1;
    }
    for (size_t i = 0; i < num_iters; i++) {
        CUDA_TRY(cudaEventCreate(&job->starts[i]));
        CUDA_TRY(cudaEventCreate(&job->stops[i]));
    }
    return 0;
}

typedef int operation(struct nccl_exchange *exchange);

static int capture(struct job *job, operation *run, cudaGraphExec_t *exec)
{
    cudaStream_t stream = job->rank.stream;
    cudaGraph_t graph;
    CUDA_TRY(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    TRY(run(&job->exchange));
    CUDA_TRY(cudaStreamEndCapture(stream, &graph));
    CUDA_TRY(cudaGraphInstantiate(exec, graph, 0));
    CUDA_TRY(cudaGraphDestroy(graph));
    return 0;
}

/* exec NULL: the operation itself. */
static int enqueue(struct job *job, operation *run, cudaGraphExec_t exec)
{
    if (exec == NULL)
        return run(&job->exchange);
    CUDA_TRY(cudaGraphLaunch(exec, job->rank.stream));
    return 0;
}

/* The host runs ahead of the GPU; a small all-reduce lets the ranks start together. */
static int enqueue_iterations(struct job *job, operation *run, cudaGraphExec_t exec)
{
    for (int32_t i = -job->options->num_warmups; i < job->options->num_iters; i++) {
        TRY(nccl_rank_meet(&job->rank));
        if (i >= 0)
            CUDA_TRY(cudaEventRecord(job->starts[i], job->rank.stream));
        TRY(enqueue(job, run, exec));
        if (i >= 0)
            CUDA_TRY(cudaEventRecord(job->stops[i], job->rank.stream));
    }
    return nccl_rank_wait(&job->rank);
}

static int read_us(const struct job *job, double *samples)
{
    for (int32_t i = 0; i < job->options->num_iters; i++) {
        float ms;
        CUDA_TRY(cudaEventElapsedTime(&ms, job->starts[i], job->stops[i]));
        samples[i] = ms * 1e3;
    }
    return 0;
}

static int time_operation(struct job *job, operation *run, cudaGraphExec_t exec, struct figures *us)
{
    TRY(enqueue_iterations(job, run, exec));
    const size_t num_iters = (size_t)job->options->num_iters;
    double *samples = malloc(num_iters * sizeof(double));
    if (samples == NULL) {
        perror("malloc");
        return -1;
    }
    int result = read_us(job, samples);
    if (result == 0 && slowest_of_ranks(job->rank.comm, samples, num_iters, us) != WEFT_OK) {
        fprintf(stderr, "nccl_all_to_all: %s\n", weft_last_error());
        result = -1;
    }
    free(samples);
    return result;
}

static int measure(struct job *job, operation *run, struct measured measured)
{
    cudaGraphExec_t exec;
    measured.kernel = "nccl";
    TRY(time_operation(job, run, NULL, &measured.us));
    if (job->rank.rank == 0)
        report_print(&job->report, &measured);
    TRY(capture(job, run, &exec));
    measured.kernel = "nccl_graph";
    const int result = time_operation(job, run, exec, &measured.us);
    CUDA_TRY(cudaGraphExecDestroy(exec));
    if (result == 0 && job->rank.rank == 0)
        report_print(&job->report, &measured);
    return result;
}

static int measure_format(struct job *job, const struct plan *plan, const struct row_format *format)
{
    struct measured measured = {.name = "nccl_dispatch_us",
                                .num_tokens = plan->num_tokens,
                                .rows = format->text,
                                .bytes = routing_bytes(plan, row_bytes_of(format))};
    TRY(nccl_exchange_init(&job->exchange, plan));
    TRY(nccl_exchange_check(&job->exchange));
    TRY(measure(job, nccl_exchange_dispatch, measured));
    if (format != &job->options->formats[0])
        return 0;
    measured.name = "nccl_combine_us";
    measured.bytes = routing_bytes(plan, format->row_bytes[0]);
    return measure(job, nccl_exchange_combine, measured);
}

static int measure_tokens(struct job *job, int32_t num_tokens)
{
    struct plan plan;
    int result = 0;
    TRY(routing_init(&plan, job->options, num_tokens, job->rank.num_ranks));
    for (int32_t i = 0; i < job->options->num_formats && result == 0; i++) {
        job->exchange.format = &job->options->formats[i];
        result = measure_format(job, &plan, job->exchange.format);
        nccl_exchange_destroy(&job->exchange);
    }
    plan_destroy(&plan);
    return result;
}

static int run(struct job *job)
{
    TRY(nccl_rank_open(&job->rank));
    job->exchange = (struct nccl_exchange){.nccl = job->rank.nccl,
                                           .stream = job->rank.stream,
                                           .rank = job->rank.rank,
                                           .num_ranks = job->rank.num_ranks};
    TRY(alloc_events(job));
    job->report = (struct report){.output = job->options->output,
                                  .num_ranks = job->rank.num_ranks,
                                  .num_topk = job->options->num_topk,
                                  .num_experts = job->options->num_experts};
    for (int32_t i = 0; i < job->options->num_tokens.count; i++)
        TRY(measure_tokens(job, (int32_t)job->options->num_tokens.values[i]));
    return 0;
}

static void end(struct job *job, int result)
{
    for (int32_t i = 0; i < job->options->num_iters && job->stops != NULL; i++) {
        if (job->starts[i] != NULL)
            cudaEventDestroy(job->starts[i]);
        if (job->stops[i] != NULL)
            cudaEventDestroy(job->stops[i]);
    }
    nccl_rank_close(&job->rank, result);
    free(job->starts);
    free(job->stops);
}

int main(int argc, char **argv)
{
    struct cuda_options options;
    struct job job = {.options = &options};
    cuda_options_parse(&options, "Dispatch and combine by NCCL.", argc, argv);
    const int result = run(&job);
    end(&job, result);
    return result == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
