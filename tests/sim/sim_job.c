/* SPDX-License-Identifier: MIT */
#include "sim_job.h"

#include "harness/cmocka.h"

/* Virtual time. The survivors of a fault come to their meeting up to a deadline apart. */
enum { TIMEOUT_MS = 1000, SURVIVORS_TIMEOUT_MS = 60000 };

int32_t sim_job_num_ranks(const struct sim_job *job)
{
    return job->num_nodes * job->ranks_per_node;
}

void sim_job_run(struct sim_job *job, int (*rank_main)(int32_t rank, void *argument),
                 void *argument, uint64_t seed, struct weft__sim_result *result)
{
    const struct weft__sim_config config = {.seed = seed,
                                            .policy = WEFT__SIM_MIXED,
                                            .num_ranks = sim_job_num_ranks(job),
                                            .rank_main = rank_main,
                                            .argument = argument,
                                            .weakened_site = job->weakened_site,
                                            .fault = job->fault,
                                            .fault_rank = job->fault_rank,
                                            .fault_step = job->fault_step};
    job->num_failed = 0;
    assert_ok(weft_unique_id_create(&job->id));
    assert_ok(weft_unique_id_create(&job->survivors_id));
    assert_int_equal(weft__sim_run(&config, result), 0);
}

/* ---------------------------------------------------------------- by the ranks */

weft_result sim_job_open(const struct sim_job *job, int32_t rank, weft_comm **comm)
{
    return weft_comm_create(
        &job->id, rank, sim_job_num_ranks(job),
        WEFT_ARGS(weft_comm_config, .timeout_ms = TIMEOUT_MS, .num_nodes = job->num_nodes), comm);
}

int sim_job_use_block(const struct sim_job *job, int32_t rank, uint64_t block_bytes,
                      int (*use)(weft_comm *comm, weft_stream *stream, void *block))
{
    weft_comm *comm;
    weft_stream *stream;
    void *block;
    if (sim_job_open(job, rank, &comm) != WEFT_OK ||
        weft_heap_alloc(comm, block_bytes, &block) != WEFT_OK ||
        weft_stream_create(comm, &stream) != WEFT_OK)
        return 1;
    int failed = use(comm, stream, block);
    failed |= weft_comm_host_barrier(comm) != WEFT_OK;
    failed |= weft_stream_destroy(stream) != WEFT_OK;
    failed |= weft_heap_free(comm, block) != WEFT_OK;
    return failed | (weft_comm_destroy(comm) != WEFT_OK);
}

static int is_survivor(const struct sim_job *job, int32_t rank)
{
    return job->fault != WEFT__SIM_NO_FAULT && rank != job->fault_rank;
}

int sim_job_blames_another(struct sim_job *job, int32_t rank, weft_comm *comm)
{
    int32_t failed_rank = -1;
    if (!is_survivor(job, rank))
        return 0;
    job->num_failed++;
    return weft_comm_status(comm, &failed_rank) == WEFT_OK || failed_rank != job->fault_rank;
}

/* So that no survivor takes another's leaving for the fault. */
static int meet_survivors(const struct sim_job *job, int32_t rank)
{
    weft_comm *comm;
    return weft_comm_create(
               &job->survivors_id, rank - (rank > job->fault_rank), sim_job_num_ranks(job) - 1,
               WEFT_ARGS(weft_comm_config, .timeout_ms = SURVIVORS_TIMEOUT_MS), &comm) != WEFT_OK ||
           weft_comm_destroy(comm) != WEFT_OK;
}

int sim_job_part(const struct sim_job *job, int32_t rank, weft_comm *comm, weft_result result)
{
    if (job->fault == WEFT__SIM_NO_FAULT)
        return result != WEFT_OK || weft_comm_host_barrier(comm) != WEFT_OK;
    return is_survivor(job, rank) && meet_survivors(job, rank);
}
