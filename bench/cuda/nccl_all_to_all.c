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
#include <unistd.h>

#include "clock.h"
#include "nccl_exchange.h"
#include "report.h"
#include "slowest.h"
#include "try.h"

enum { TIMEOUT_S = 30 }; /* of all iterations of one figure */

struct job {
    const struct cuda_options *options;
    weft_comm *comm;
    struct nccl_exchange exchange;
    float *barrier; /* on the GPU */
    cudaEvent_t *starts, *stops;
    struct report report;
};

static int connect_ranks(struct job *job)
{
    struct nccl_exchange *exchange = &job->exchange;
    int num_gpus;
    CUDA_TRY(cudaGetDeviceCount(&num_gpus));
    exchange->rank = weft_comm_rank(job->comm);
    exchange->num_ranks = weft_comm_num_ranks(job->comm);
    if (exchange->num_ranks > num_gpus || exchange->num_ranks > MAX_RANKS) {
        fprintf(stderr, "%d ranks: NCCL needs a GPU for each, there are %d; at most %d\n",
                exchange->num_ranks, num_gpus, MAX_RANKS);
        return -1;
    }
    CUDA_TRY(cudaSetDevice(exchange->rank));
    CUDA_TRY(cudaStreamCreateWithFlags(&exchange->stream, cudaStreamNonBlocking));
    ncclUniqueId id = {{0}}, ids[MAX_RANKS];
    if (exchange->rank == 0)
        NCCL_TRY(ncclGetUniqueId(&id));
    WEFT_TRY(weft_host_all_gather(job->comm, &id, sizeof(id), ids));
    NCCL_TRY(ncclCommInitRank(&exchange->nccl, exchange->num_ranks, ids[0], exchange->rank));
    return 0;
}

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
    CUDA_TRY(cudaMalloc((void **)&job->barrier, sizeof(float)));
    CUDA_TRY(cudaMemset(job->barrier, 0, sizeof(float)));
    return 0;
}

/* NCCL itself waits without end when a rank is missing. */
static int wait_for_stream(struct job *job)
{
    const double start_us = clock_us();
    cudaError_t state;
    while ((state = cudaStreamQuery(job->exchange.stream)) == cudaErrorNotReady) {
        WEFT_TRY(weft_comm_status(job->comm, NULL));
        if (clock_us() - start_us > TIMEOUT_S * 1e6) {
            fprintf(stderr, "rank %d: still waiting after %d s\n", job->exchange.rank, TIMEOUT_S);
            return -1;
        }
        usleep(20);
    }
    CUDA_TRY(state);
    return 0;
}

typedef int operation(struct nccl_exchange *exchange);

static int capture(struct job *job, operation *run, cudaGraphExec_t *exec)
{
    cudaStream_t stream = job->exchange.stream;
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
    CUDA_TRY(cudaGraphLaunch(exec, job->exchange.stream));
    return 0;
}

/* The host runs ahead of the GPU; a small all-reduce lets the ranks start together. */
static int enqueue_iterations(struct job *job, operation *run, cudaGraphExec_t exec)
{
    struct nccl_exchange *exchange = &job->exchange;
    for (int32_t i = -job->options->num_warmups; i < job->options->num_iters; i++) {
        NCCL_TRY(ncclAllReduce(job->barrier, job->barrier, 1, ncclFloat, ncclSum, exchange->nccl,
                               exchange->stream));
        if (i >= 0)
            CUDA_TRY(cudaEventRecord(job->starts[i], exchange->stream));
        TRY(enqueue(job, run, exec));
        if (i >= 0)
            CUDA_TRY(cudaEventRecord(job->stops[i], exchange->stream));
    }
    return wait_for_stream(job);
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
    if (result == 0)
        result = slowest_of_ranks(job->comm, samples, num_iters, us);
    free(samples);
    return result;
}

static int measure(struct job *job, operation *run, struct measured measured)
{
    cudaGraphExec_t exec;
    measured.kernel = "nccl";
    TRY(time_operation(job, run, NULL, &measured.us));
    if (job->exchange.rank == 0)
        report_print(&job->report, &measured);
    TRY(capture(job, run, &exec));
    measured.kernel = "nccl_graph";
    const int result = time_operation(job, run, exec, &measured.us);
    CUDA_TRY(cudaGraphExecDestroy(exec));
    if (result == 0 && job->exchange.rank == 0)
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
    TRY(routing_init(&plan, job->options, num_tokens, job->exchange.num_ranks));
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
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    config.machine = WEFT_MACHINE_CPU; /* the GPUs are NCCL's alone */
    WEFT_TRY(weft_comm_create_from_env(&config, &job->comm));
    TRY(connect_ranks(job));
    TRY(alloc_events(job));
    job->report = (struct report){.output = job->options->output,
                                  .num_ranks = job->exchange.num_ranks,
                                  .num_topk = job->options->num_topk,
                                  .num_experts = job->options->num_experts};
    for (int32_t i = 0; i < job->options->num_tokens.num_numbers; i++)
        TRY(measure_tokens(job, job->options->num_tokens.numbers[i]));
    return 0;
}

/* After a failure, NCCL's connections cannot be closed in order: other ranks may be gone. */
static void end(struct job *job, int result)
{
    if (job->exchange.nccl != NULL) {
        if (result == 0)
            ncclCommDestroy(job->exchange.nccl);
        else
            ncclCommAbort(job->exchange.nccl);
    }
    for (int32_t i = 0; i < job->options->num_iters && job->stops != NULL; i++) {
        if (job->starts[i] != NULL)
            cudaEventDestroy(job->starts[i]);
        if (job->stops[i] != NULL)
            cudaEventDestroy(job->stops[i]);
    }
    cudaFree(job->barrier);
    if (job->exchange.stream != NULL)
        cudaStreamDestroy(job->exchange.stream);
    weft_comm_destroy(job->comm);
    free(job->starts);
    free(job->stops);
}

int main(int argc, char **argv)
{
    struct cuda_options options;
    struct job job = {.options = &options};
    cuda_options_parse(&options, "Dispatch and combine by NCCL.", argc, argv);
    setenv("NCCL_NVLS_ENABLE", "0", 1); /* no NVLink multicast */
    const int result = run(&job);
    end(&job, result);
    return result == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
