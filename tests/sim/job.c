/* SPDX-License-Identifier: MIT */
#include "job.h"

#include <string.h>

#include "harness/cmocka.h"
#include "launch/programs.h"

struct job_rank {
    weft_comm *comm;
    weft_stream *stream;
    struct job_args args;
};

static int open_rank(struct job_rank *rank, struct job *job, int32_t number)
{
    void *area, *unwritten, *freed;
    if (weft_comm_create(&job->id, number, JOB_RANKS, NULL, &rank->comm) != WEFT_OK ||
        weft_heap_alloc(rank->comm, sizeof(struct job_area), &area) != WEFT_OK ||
        weft_heap_alloc(rank->comm, sizeof(struct job_area), &unwritten) != WEFT_OK ||
        weft_heap_alloc(rank->comm, sizeof(struct job_area), &freed) != WEFT_OK ||
        weft_heap_free(rank->comm, freed) != WEFT_OK ||
        weft_stream_create(rank->comm, &rank->stream) != WEFT_OK)
        return -1;
    weft__sim_host_writes(area, sizeof(struct job_area));
    memset(area, 0, sizeof(struct job_area));
    rank->args = (struct job_args){.own = area,
                                   .other = weft_heap_ptr(rank->comm, area, 1 - number),
                                   .unwritten = unwritten,
                                   .freed_by_other = weft_heap_ptr(rank->comm, freed, 1 - number),
                                   .state = &job->states[number],
                                   .rank = number,
                                   .form = job->form};
    return weft_comm_host_barrier(rank->comm) == WEFT_OK ? 0 : -1;
}

static int launch_all(struct job_rank *rank, const struct job *job)
{
    const struct weft__program program = {"test", job->program};
    const struct weft__launch launch = {.program = &program,
                                        .args = &rank->args,
                                        .args_bytes = sizeof rank->args,
                                        .grid = {.num_blocks = 1, .num_warps = job->num_warps},
                                        .comm = rank->comm,
                                        .on_failure = weft__program_failed};
    for (int32_t i = 0; i < job->num_launches; i++) {
        rank->args.sequence = (uint64_t)i + 1;
        rank->args.handle = i % 2;
        if (rank->stream->machine->launch(rank->stream, &launch) != WEFT_OK)
            return -1;
    }
    return weft_stream_synchronize(rank->stream) == WEFT_OK ? 0 : -1;
}

static int run_rank(int32_t number, void *argument)
{
    struct job_rank rank;
    if (open_rank(&rank, argument, number) != 0)
        return -1;
    const struct job *job = argument;
    int failed = launch_all(&rank, job) != 0 || job->states[number].num_wrong > 0;
    failed |= weft_comm_host_barrier(rank.comm) != WEFT_OK;
    failed |= weft_stream_destroy(rank.stream) != WEFT_OK;
    failed |= weft_heap_free(rank.comm, rank.args.own) != WEFT_OK;
    failed |= weft_heap_free(rank.comm, rank.args.unwritten) != WEFT_OK;
    return failed | (weft_comm_destroy(rank.comm) != WEFT_OK);
}

void job_run(struct job *job, uint64_t seed, struct weft__sim_result *result)
{
    const struct weft__sim_config config = {.seed = seed,
                                            .policy = WEFT__SIM_MIXED,
                                            .num_ranks = JOB_RANKS,
                                            .rank_main = run_rank,
                                            .argument = job,
                                            .weakened_site = WEFT__SIM_NO_SITE,
                                            .num_trace_events = job->num_trace_events};
    memset(job->states, 0, sizeof job->states);
    assert_ok(weft_unique_id_create(&job->id));
    assert_int_equal(weft__sim_run(&config, result), 0);
}
