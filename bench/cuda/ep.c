/* SPDX-License-Identifier: MIT */
/*
 * Weft's own operations on GPUs, beside limits and nccl_all_to_all.
 *
 *     weft run -n 4 --no-prefix -- ep
 *
 * One process per GPU. In "stream", operations are launched one after the other; in "graph", a CUDA
 * graph has 20 of them, so that what the host takes to launch one does not show.
 */
#include <stdlib.h>

#include "ep_check.h"
#include "ep_ll.h"
#include "ep_trace.h"
#include "report.h"
#include "try.h"

enum { CALLS_PER_GRAPH = 20 };

struct job {
    const struct cuda_options *options;
    struct gpu_rank rank;
    struct timing timing;
    struct report report;
    int64_t num_wrong; /* in all figures */
};

struct operation {
    const char *name;
    int parts;
};

static const struct operation operations[] = {
    {"weft_dispatch_us", PART_DISPATCH},
    {"weft_combine_us", PART_COMBINE},
    {"weft_layout_us", PART_LAYOUT},
    {"weft_notify_us", PART_NOTIFY},
    {"weft_dispatch_counted_us", PART_LAYOUT | PART_NOTIFY | PART_WAIT_COUNTS | PART_DISPATCH},
    {"weft_dispatch_capacity_us", PART_LAYOUT | PART_NOTIFY | PART_DISPATCH},
    {"weft_layer_us", PART_DISPATCH | PART_COMBINE}};
enum { NUM_OPERATIONS = sizeof(operations) / sizeof(operations[0]) };

/* Which blocks of the list: the first is for everything. */
enum blocks_turn { FIRST_BLOCKS, FURTHER_BLOCKS };

static int is_wanted(const struct ep_batch *batch, const struct operation *operation,
                     enum blocks_turn turn)
{
    const int is_first_format = batch->format == &batch->options->formats[0];
    if (!(operation->parts & PART_DISPATCH) && !is_first_format)
        return 0; /* it does not depend on the format */
    return turn == FIRST_BLOCKS || operation->parts == PART_DISPATCH ||
           operation->parts == PART_COMBINE;
}

static struct measured describe(const struct ep_batch *batch, const struct operation *operation,
                                int32_t num_blocks)
{
    int32_t row_bytes = 0;
    if (operation->parts & PART_DISPATCH)
        row_bytes += row_bytes_of(batch->format);
    if (operation->parts & PART_COMBINE)
        row_bytes += batch->answers.row_bytes[0];
    return (struct measured){.name = operation->name,
                             .num_sms = num_blocks,
                             .num_tokens = batch->plan->num_tokens,
                             .rows = row_bytes > 0 ? batch->format->text : "0",
                             .bytes = routing_bytes(batch->plan, row_bytes)};
}

/* The result is checked once, of the very calls that are then timed. A graph is captured behind the
 * preparation, since the handle tells the graph what routing it has. */
static int measure_calls(struct job *job, const struct ep_call *call, struct calls *calls,
                         struct measured *measured)
{
    TRY(ep_check_prepare(call->batch, call->parts));
    if (calls->num_calls > 1)
        TRY(calls_capture(calls, job->rank.cuda_stream));
    TRY(calls_enqueue(calls, job->rank.cuda_stream));
    TRY(ep_check(call->batch, call->parts, &measured->num_wrong));
    TRY(timing_measure(&job->timing, calls, &measured->us));
    job->num_wrong += measured->num_wrong;
    if (job->rank.rank == 0)
        report_print(&job->report, measured);
    return 0;
}

static int measure_operation(struct job *job, struct ep_batch *batch,
                             const struct operation *operation, int32_t num_blocks)
{
    struct measured in_stream = describe(batch, operation, num_blocks), in_graph = in_stream;
    struct ep_call call = {batch, operation->parts};
    struct calls one = {.enqueue = ep_call_enqueue, .argument = &call, .num_calls = 1};
    struct calls graph = one;
    in_stream.kernel = "stream";
    TRY(measure_calls(job, &call, &one, &in_stream));
    if (operation->parts & PART_WAIT_COUNTS)
        return 0; /* a graph cannot wait for the host */
    graph.num_calls = CALLS_PER_GRAPH;
    in_graph.kernel = "graph";
    const int result = measure_calls(job, &call, &graph, &in_graph);
    calls_destroy(&graph);
    return result;
}

static int measure_operations(struct job *job, struct ep_batch *batch, int32_t num_blocks,
                              enum blocks_turn turn)
{
    int result = ep_batch_open(batch, num_blocks);
    for (int i = 0; i < NUM_OPERATIONS && result == 0; i++) {
        if (is_wanted(batch, &operations[i], turn))
            result = measure_operation(job, batch, &operations[i], num_blocks);
    }
    ep_batch_close(batch);
    return result;
}

static int measure_format(struct job *job, struct ep_batch *batch, int32_t num_blocks_listed)
{
    int result = ep_batch_init(batch);
    for (int32_t i = 0; i < num_blocks_listed && result == 0; i++)
        result = measure_operations(job, batch, (int32_t)job->options->num_blocks.values[i],
                                    i == 0 ? FIRST_BLOCKS : FURTHER_BLOCKS);
    ep_batch_destroy(batch);
    return result;
}

static int measure_tokens(struct job *job, int32_t num_tokens, int32_t num_blocks_listed)
{
    struct plan plan;
    int result = 0;
    TRY(routing_init(&plan, job->options, num_tokens, job->rank.num_ranks));
    for (int32_t i = 0; i < job->options->num_formats && result == 0; i++) {
        struct ep_batch batch = {.options = job->options,
                                 .rank = &job->rank,
                                 .plan = &plan,
                                 .format = &job->options->formats[i]};
        result = measure_format(job, &batch, num_blocks_listed);
    }
    plan_destroy(&plan);
    return result;
}

static int measure_low_latency(struct job *job, int32_t num_tokens, int32_t num_blocks_listed)
{
    const struct ll_measuring measuring = {job->options, &job->rank, &job->timing, &job->report,
                                           CALLS_PER_GRAPH};
    return ll_measure(&measuring, num_tokens, num_blocks_listed, &job->num_wrong);
}

/* By what --tokens lists; the first has the whole list of blocks. */
static int measure_all_tokens(struct job *job)
{
    const struct cuda_options *options = job->options;
    for (int32_t i = 0; i < options->num_tokens.count; i++) {
        const int32_t num_tokens = (int32_t)options->num_tokens.values[i];
        const int32_t num_blocks_listed = i == 0 ? options->num_blocks.count : 1;
        if (options->mode == MODE_LOW_LATENCY)
            TRY(measure_low_latency(job, num_tokens, num_blocks_listed));
        else
            TRY(measure_tokens(job, num_tokens, num_blocks_listed));
    }
    return 0;
}

static int run(struct job *job)
{
    const struct cuda_options *options = job->options;
    TRY(gpu_rank_open(&job->rank));
    job->timing = (struct timing){.comm = job->rank.comm,
                                  .stream = job->rank.cuda_stream,
                                  .meet = gpu_rank_meet,
                                  .wait = gpu_rank_wait,
                                  .argument = &job->rank,
                                  .num_warmups = options->num_warmups,
                                  .num_iters = options->num_iters};
    TRY(timing_init(&job->timing));
    job->report = (struct report){.output = options->output,
                                  .num_ranks = job->rank.num_ranks,
                                  .num_topk = options->num_topk,
                                  .num_experts = options->num_experts};
    const struct ep_tracing tracing = {options, &job->rank, &job->timing};
    for (int32_t i = 0; i < options->num_traces; i++)
        TRY(ep_trace_measure(&tracing, options->traces[i], &job->num_wrong));
    if (options->num_traces == 0)
        TRY(measure_all_tokens(job));
    if (job->num_wrong == 0)
        return 0;
    if (job->rank.rank == 0)
        fprintf(stderr, "results are wrong: see the figures\n");
    return -1;
}

static void end(struct job *job)
{
    timing_destroy(&job->timing);
    gpu_rank_close(&job->rank);
}

int main(int argc, char **argv)
{
    struct cuda_options options;
    struct job job = {.options = &options};
    cuda_options_parse(&options, "Weft's operations on GPUs.", argc, argv);
    const int result = run(&job);
    end(&job);
    return result == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
