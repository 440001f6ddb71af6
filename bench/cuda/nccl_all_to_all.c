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
#include "timing.h"
#include "try.h"

struct job {
    const struct cuda_options *options;
    struct nccl_rank rank;
    struct nccl_exchange exchange;
    struct timing timing;
    struct report report;
};

typedef int operation(struct nccl_exchange *exchange);

struct call {
    operation *run;
    struct nccl_exchange *exchange;
};

static int enqueue_call(void *argument)
{
    const struct call *call = argument;
    return call->run(call->exchange);
}

static int measure_calls(struct job *job, const struct calls *calls, const char *kernel,
                         struct measured *measured)
{
    measured->kernel = kernel;
    TRY(timing_measure(&job->timing, calls, &measured->us));
    if (job->rank.rank == 0)
        report_print(&job->report, measured);
    return 0;
}

static int measure(struct job *job, operation *run, struct measured measured)
{
    struct call call = {run, &job->exchange};
    struct calls calls = {.enqueue = enqueue_call, .argument = &call, .num_calls = 1};
    TRY(measure_calls(job, &calls, "nccl", &measured));
    int result = calls_capture(&calls, job->rank.stream);
    if (result == 0)
        result = measure_calls(job, &calls, "nccl_graph", &measured);
    calls_destroy(&calls);
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
    job->timing = (struct timing){.rank = &job->rank,
                                  .num_warmups = job->options->num_warmups,
                                  .num_iters = job->options->num_iters};
    TRY(timing_init(&job->timing));
    job->report = (struct report){.num_ranks = job->rank.num_ranks,
                                  .num_topk = job->options->num_topk,
                                  .num_experts = job->options->num_experts};
    for (int32_t i = 0; i < job->options->num_tokens.count; i++)
        TRY(measure_tokens(job, (int32_t)job->options->num_tokens.values[i]));
    return 0;
}

int main(int argc, char **argv)
{
    struct cuda_options options;
    struct job job = {.options = &options};
    cuda_options_parse(&options, "Dispatch and combine by NCCL.", argc, argv);
    const int result = run(&job);
    timing_destroy(&job.timing);
    nccl_rank_close(&job.rank, result);
    return result == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
