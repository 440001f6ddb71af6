/* SPDX-License-Identifier: MIT */
/* The gate on the sim: whatever order the lanes take, its outputs have the bits that they have on
 * cpu. `weft sim --op gate` has its schedules, faults and ordering sites. */
#include <string.h>

#include "harness/cmocka.h"
#include "sim_job.h"
#include "workload/gate_oracle.h"

enum { NUM_SEEDS = 6 };

/* 0: as it must be. */
static int run_cases(weft_comm *comm, weft_stream *stream, void *block)
{
    static char before[GATE_BLOCK_BYTES];
    struct gate_case drawn;
    uint64_t digest = 0;
    for (int32_t number = 0; number < GATE_NUM_CASES; number += GATE_SMALL_STEP) {
        gate_case_draw(number, GATE_SMALL_TOKENS, &drawn, before);
        weft__sim_host_writes(block, drawn.end);
        memcpy(block, before, drawn.end);
        const struct gate_calls calls = gate_case_calls(&drawn, block);
        if (weft_gate_choose(comm, &calls.choose, stream) != WEFT_OK ||
            weft_gate_backward(comm, &calls.backward, stream) != WEFT_OK ||
            weft_stream_synchronize(stream) != WEFT_OK)
            return 1;
        weft__sim_host_reads(block, drawn.end);
        digest = gate_case_digest(&drawn, block, digest);
    }
    return digest != GATE_SMALL_DIGEST;
}

static int run_rank(int32_t number, void *argument)
{
    return sim_job_use_block(argument, number, GATE_BLOCK_BYTES, run_cases);
}

static void run_schedule(const void *given, uint64_t seed, int32_t weakened_site,
                         struct weft__sim_result *result)
{
    struct sim_job job = *(const struct sim_job *)given;
    job.weakened_site = weakened_site;
    sim_job_run(&job, run_rank, &job, seed, result);
}

static const struct sim_job alone = {.num_nodes = 1, .ranks_per_node = 1};

TEST_CALL(gates_have_the_bits_of_the_cpu_machine,
          schedules_expect_sound(&(struct schedules){run_schedule, &alone, NUM_SEEDS}))
