/* SPDX-License-Identifier: MIT */
/*
 * Weft's collectives on GPUs, beside nccl_coll.
 *
 *     weft run -n 4 --no-prefix -- coll
 *
 * One process per GPU; input and output in the heap. An iteration is 20 calls, in "stream" launched
 * one after the other, in "graph" as a CUDA graph, so that what the host takes to launch one does
 * not show.
 */
#include <stdlib.h>

#include "collective_memory.h"
#include "collective_options.h"
#include "collective_report.h"
#include "gpu_rank.h"
#include "timing.h"
#include "try.h"

enum { CALLS = 20, MAX_WAYS = 256 };

struct way {
    weft_algorithm algorithm;
    int32_t num_blocks, num_warps; /* 0: the library's choice */
};

struct job {
    const struct collective_options *options;
    struct gpu_rank rank;
    struct timing timing;
    struct collective_memory memory;
    struct element_source source; /* of all inputs */
    int32_t num_ways;
    struct way ways[MAX_WAYS];
    uint64_t num_wrong; /* in all figures */
};

/* One size, done in one way. */
struct work {
    struct job *job;
    const struct collective *collective;
    const struct way *way;
    weft_coll *coll;
};

static weft_result call(const struct work *work)
{
    const struct job *job = work->job;
    return collective_enqueue(work->collective, job->rank.rank, work->coll, job->memory.send,
                              job->memory.recv, job->rank.stream);
}

static int enqueue_call(void *work)
{
    WEFT_TRY(call(work));
    return 0;
}

/* ---------------------------------------------------------------- figures */

static void report(const struct work *work, const char *kernel, const struct figures *us,
                   uint64_t num_wrong)
{
    struct job *job = work->job;
    const weft_algorithm used = weft_coll_algorithm(work->coll, work->collective->kind,
                                                    collective_algorithm_bytes(work->collective));
    const struct collective_figure figure = {.library = "weft",
                                             .collective = work->collective,
                                             .algorithm = weft_coll_algorithm_name(used),
                                             .asked =
                                                 weft_coll_algorithm_name(work->way->algorithm),
                                             .kernel = kernel,
                                             .num_blocks = work->way->num_blocks,
                                             .num_warps = work->way->num_warps,
                                             .us = *us,
                                             .num_wrong = num_wrong};
    job->num_wrong += num_wrong;
    if (job->rank.rank != 0)
        return;
    if (job->options->form == FORM_JSON)
        collective_report_json(&figure);
    else
        collective_report_line(&figure);
}

static int check(const struct work *work, uint64_t *num_wrong)
{
    struct job *job = work->job;
    TRY(gpu_rank_wait(&job->rank));
    return collective_memory_check(&job->memory, work->collective, num_wrong);
}

enum possibility { IMPOSSIBLE, POSSIBLE };

/* One call, checked. */
static int try_once(const struct work *work, enum possibility *possibility, uint64_t *num_wrong)
{
    TRY(collective_memory_wipe(&work->job->memory, work->collective));
    const weft_result result = call(work);
    *possibility = result == WEFT_ERROR_UNSUPPORTED ? IMPOSSIBLE : POSSIBLE;
    if (*possibility == IMPOSSIBLE)
        return 0;
    WEFT_TRY(result);
    return check(work, num_wrong);
}

static int measure_in_stream(struct work *work, uint64_t num_wrong)
{
    const struct calls calls = {.enqueue = enqueue_call, .argument = work, .num_calls = CALLS};
    struct figures us;
    TRY(timing_measure(&work->job->timing, &calls, &us));
    report(work, "stream", &us, num_wrong);
    return 0;
}

/* Also checked, once. */
static int measure_graph(struct work *work, struct calls *calls)
{
    struct job *job = work->job;
    struct figures us;
    uint64_t num_wrong;
    TRY(calls_capture(calls, job->rank.cuda_stream));
    TRY(collective_memory_wipe(&job->memory, work->collective));
    TRY(calls_enqueue(calls, job->rank.cuda_stream));
    TRY(check(work, &num_wrong));
    TRY(timing_measure(&job->timing, calls, &us));
    report(work, "graph", &us, num_wrong);
    return 0;
}

static int measure_in_graph(struct work *work)
{
    struct calls calls = {.enqueue = enqueue_call, .argument = work, .num_calls = CALLS};
    const int result = measure_graph(work, &calls);
    calls_destroy(&calls);
    return result;
}

static int measure_work(struct work *work)
{
    enum possibility possibility;
    uint64_t num_wrong;
    TRY(try_once(work, &possibility, &num_wrong));
    if (possibility == IMPOSSIBLE)
        return 0;
    TRY(measure_in_stream(work, num_wrong));
    return measure_in_graph(work);
}

/* ---------------------------------------------------------------- what there is to measure */

static int measure_way(struct job *job, const struct collective *collective, const struct way *way)
{
    struct work work = {.job = job, .collective = collective, .way = way};
    weft_coll_config config = WEFT_INIT(weft_coll_config);
    config.packet_bytes = job->options->packet_bytes;
    config.choices =
        WEFT_ARGS(weft_coll_choice, .collective = collective->kind, .algorithm = way->algorithm);
    config.num_choices = 1;
    config.num_blocks = way->num_blocks;
    config.num_warps = way->num_warps;
    WEFT_TRY(weft_coll_create(job->rank.comm, &config, &work.coll));
    const int result = measure_work(&work);
    weft_coll_destroy(work.coll);
    return result;
}

static int list_ways(struct job *job, weft_collective kind)
{
    const struct collective_options *options = job->options;
    const int32_t num_blocks = options->num_blocks.count;
    const int32_t num_grids = num_blocks * options->num_warps.count;
    job->num_ways = 0;
    for (int32_t i = 0; i < options->algorithms.count * num_grids; i++) {
        const struct way way = {
            .algorithm = (weft_algorithm)options->algorithms.values[i / num_grids],
            .num_blocks = (int32_t)options->num_blocks.values[i % num_blocks],
            .num_warps = (int32_t)options->num_warps.values[i % num_grids / num_blocks]};
        if (!collective_is_served(kind, way.algorithm))
            continue;
        if (job->num_ways == MAX_WAYS) {
            fprintf(stderr, "more than %d combinations of --algos, --blocks, --warps\n", MAX_WAYS);
            return -1;
        }
        job->ways[job->num_ways++] = way;
    }
    return 0;
}

static int measure_size(struct job *job, struct collective *collective)
{
    collective_memory_expect(&job->memory, collective);
    for (int32_t i = 0; i < job->num_ways; i++)
        TRY(measure_way(job, collective, &job->ways[i]));
    return 0;
}

static int measure_op(struct job *job, weft_collective kind)
{
    const struct collective_options *options = job->options;
    struct collective collective = {
        .kind = kind, .source = job->source, .redop = WEFT_SUM, .num_ranks = job->rank.num_ranks};
    TRY(list_ways(job, kind));
    for (int32_t i = 0; i < options->sizes.count; i++) {
        collective.count = collective_count(&collective, (uint64_t)options->sizes.values[i]);
        TRY(measure_size(job, &collective));
    }
    return 0;
}

/* ---------------------------------------------------------------- the job */

static int open_memory(struct job *job)
{
    struct collective_memory *memory = &job->memory;
    const uint64_t max_bytes = collective_options_max_bytes(job->options);
    *memory = (struct collective_memory){
        .comm = job->rank.comm, .stream = job->rank.cuda_stream, .max_bytes = max_bytes};
    WEFT_TRY(weft_heap_alloc(job->rank.comm, max_bytes, &memory->send));
    WEFT_TRY(weft_heap_alloc(job->rank.comm, max_bytes, &memory->recv));
    job->source = (struct element_source){1, job->options->dtype, ELEMENTS_NUMBERS, NULL};
    return collective_memory_init(memory, &job->source);
}

static int run(struct job *job)
{
    const struct collective_options *options = job->options;
    TRY(gpu_rank_open(&job->rank));
    job->timing = (struct timing){.comm = job->rank.comm,
                                  .stream = job->rank.cuda_stream,
                                  .meet = gpu_rank_meet,
                                  .wait = gpu_rank_wait,
                                  .argument = &job->rank,
                                  .num_warmups = options->num_warmups,
                                  .num_iters = options->num_iters};
    TRY(timing_init(&job->timing));
    TRY(open_memory(job));
    if (options->form == FORM_TABLE && job->rank.rank == 0)
        collective_report_heading();
    for (int32_t i = 0; i < options->ops.count; i++)
        TRY(measure_op(job, (weft_collective)options->ops.values[i]));
    if (job->num_wrong == 0)
        return 0;
    if (job->rank.rank == 0)
        fprintf(stderr, "results are wrong: see the figures\n");
    return -1;
}

static void end(struct job *job)
{
    timing_destroy(&job->timing);
    collective_memory_destroy(&job->memory);
    weft_heap_free(job->rank.comm, job->memory.send);
    weft_heap_free(job->rank.comm, job->memory.recv);
    gpu_rank_close(&job->rank);
}

int main(int argc, char **argv)
{
    struct collective_options options;
    struct job job = {.options = &options};
    collective_options_parse(&options, "Weft's collectives on GPUs.", argc, argv);
    const int result = run(&job);
    end(&job);
    return result == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
