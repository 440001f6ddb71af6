/* SPDX-License-Identifier: MIT */
/* What jobs on the sim machine share, whatever program they run. A fault may strike one of their
 * ranks: then the others must blame that rank, and they meet before they leave. */
#pragma once

#include "schedules.h"
#include "weft.h"

struct sim_job {
    int32_t num_nodes, ranks_per_node;
    int32_t weakened_site; /* or WEFT__SIM_NO_SITE */
    enum weft__sim_fault fault;
    int32_t fault_rank;
    uint64_t fault_step;
    weft_unique_id id, survivors_id;
    int32_t num_failed; /* survivors whose launches failed */
};

int32_t sim_job_num_ranks(const struct sim_job *job);

/* Every rank calls rank_main with the argument. Fills *result; fails the test if there was no
 * memory. */
void sim_job_run(struct sim_job *job, int (*rank_main)(int32_t rank, void *argument),
                 void *argument, uint64_t seed, struct weft__sim_result *result);

/* By the ranks: */
weft_result sim_job_open(const struct sim_job *job, int32_t rank, weft_comm **comm);
/* Calls `use` with a block of the heap, which is freed when all ranks have returned. 0: that did,
 * and nothing failed. */
int sim_job_use_block(const struct sim_job *job, int32_t rank, uint64_t block_bytes,
                      int (*use)(weft_comm *comm, weft_stream *stream, void *block));
/* When launches of the rank have failed: 1 if it is a survivor whom the communicator tells of
 * another rank. */
int sim_job_blames_another(struct sim_job *job, int32_t rank, weft_comm *comm);
/* When the rank has done what it could, with what result: 1 if that is not as it must be. */
int sim_job_part(const struct sim_job *job, int32_t rank, weft_comm *comm, weft_result result);
