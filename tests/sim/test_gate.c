/* SPDX-License-Identifier: MIT */
/* The gate on the sim: whatever order the lanes take, its outputs have the bits that they have on
 * cpu. `weft sim --op gate` has its schedules, faults and ordering sites. */
#include <string.h>

#include "harness/cmocka.h"
#include "sim_job.h"
#include "workload/gate_oracle.h"

enum { NUM_SEEDS = 6 };

/* 0: as it must be. */
static int run_cases(weft_comm *comm, weft_stream *stream, char *block)
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
    weft_comm *comm;
    weft_stream *stream;
    void *block;
    if (sim_job_open(argument, number, &comm) != WEFT_OK ||
        weft_heap_alloc(comm, GATE_BLOCK_BYTES, &block) != WEFT_OK ||
        weft_stream_create(comm, &stream) != WEFT_OK)
        return 1;
    int failed = run_cases(comm, stream, block);
    failed |= weft_stream_destroy(stream) != WEFT_OK;
    failed |= weft_heap_free(comm, block) != WEFT_OK;
    return failed | (weft_comm_destroy(comm) != WEFT_OK);
}

TEST(gates_have_the_bits_of_the_cpu_machine)
{
    static struct weft__sim_result result; /* large */
    for (uint64_t seed = 0; seed < NUM_SEEDS; seed++) {
        struct sim_job job = {
            .num_nodes = 1, .ranks_per_node = 1, .weakened_site = WEFT__SIM_NO_SITE};
        sim_job_run(&job, run_rank, &job, seed, &result);
        sim_expect_sound(&result, seed);
    }
}
