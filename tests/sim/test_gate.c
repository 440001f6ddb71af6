/* SPDX-License-Identifier: MIT */
/* The gate on the sim: whatever order the lanes take, its outputs are right, and have the bits that
 * they have on cpu. */
#include <string.h>

#include "harness/cmocka.h"
#include "oracle/gate.h"
#include "sim_job.h"

enum { NUM_SEEDS = 20, SEEDS_OF_BALANCE = 60, SEEDS_WEAKENED = 20, NUM_EXPERTS = 9 };

/* 0: as it must be. */
static int run_cases(weft_comm *comm, weft_stream *stream, void *block)
{
    static char before[GATE_BLOCK_BYTES];
    struct gate_case drawn;
    uint64_t digest = 0;
    int32_t num_close = 0;
    for (int32_t number = 0; number < GATE_NUM_CASES; number += GATE_SMALL_STEP) {
        gate_case_draw(number, GATE_SMALL_TOKENS, &drawn, before);
        weft__sim_host_writes(block, drawn.end);
        memcpy(block, before, drawn.end);
        if (gate_case_enqueue(&drawn, block, comm, stream) != WEFT_OK ||
            weft_stream_synchronize(stream) != WEFT_OK)
            return 1;
        weft__sim_host_reads(block, drawn.end);
        const char *wrong = gate_case_check(&drawn, before, block, &num_close);
        if (wrong != NULL) {
            print_error("case %d: %s\n", number, wrong);
            return 1;
        }
        digest = gate_case_digest(&drawn, block, digest);
    }
    return digest != GATE_SMALL_DIGEST;
}

/* 0: the biases are as they must be, and the counts are cleared. */
static int run_balance(weft_comm *comm, weft_stream *stream, void *block)
{
    float *bias = block;
    int32_t *counts = (int32_t *)block + NUM_EXPERTS;
    const weft_gate_balance_args args = {.size = sizeof args,
                                         .bias = bias,
                                         .num_tokens_per_expert = counts,
                                         .num_experts = NUM_EXPERTS,
                                         .step = 0.5f};
    int failed = 0;
    weft__sim_host_writes(block, 2 * NUM_EXPERTS * sizeof(float));
    for (int32_t e = 0; e < NUM_EXPERTS; e++) {
        bias[e] = 1.0f;
        counts[e] = 100 * e;
    }
    if (weft_gate_balance(comm, &args, stream) != WEFT_OK ||
        weft_stream_synchronize(stream) != WEFT_OK)
        return 1;
    weft__sim_host_reads(block, 2 * NUM_EXPERTS * sizeof(float));
    for (int32_t e = 0; e < NUM_EXPERTS; e++)
        failed |= counts[e] != 0 || bias[e] != (e < 4 ? 1.5f : e == 4 ? 1.0f : 0.5f);
    return failed;
}

struct run {
    struct sim_job job;
    int (*use)(weft_comm *comm, weft_stream *stream, void *block);
};

static int run_rank(int32_t number, void *argument)
{
    const struct run *run = argument;
    return sim_job_use_block(&run->job, number, GATE_BLOCK_BYTES, run->use);
}

static void run_schedule(const void *job, uint64_t seed, int32_t weakened_site,
                         struct weft__sim_result *result)
{
    struct run run = *(const struct run *)job;
    run.job.weakened_site = weakened_site;
    sim_job_run(&run.job, run_rank, &run, seed, result);
}

static const struct run cases = {{.num_nodes = 1, .ranks_per_node = 1}, run_cases},
                        balance = {{.num_nodes = 1, .ranks_per_node = 1}, run_balance};

TEST_CALL(gates_have_the_bits_of_the_cpu_machine,
          schedules_expect_sound(&(struct schedules){run_schedule, &cases, NUM_SEEDS}))
TEST_CALL(biases_do_not_depend_on_the_schedule,
          schedules_expect_sound(&(struct schedules){run_schedule, &balance, SEEDS_OF_BALANCE}))

static int is_in_balance(const struct weft__sim_site *site)
{
    return strstr(site->file, "gate_balance.c") != NULL && strcmp(site->kind, "warp sync") == 0;
}

static int is_in_cases(const struct weft__sim_site *site)
{
    return strstr(site->file, "programs/gate/") != NULL && strcmp(site->kind, "warp sync") == 0 &&
           !is_in_balance(site);
}

/* A sync of lanes is not there: a schedule shows it. Blocks have one warp here, and need no sync of
 * their own. */
TEST(every_sync_is_needed)
{
    const struct schedules of_cases = {run_schedule, &cases, SEEDS_WEAKENED},
                           of_balance = {run_schedule, &balance, SEEDS_WEAKENED};
    assert_true(schedules_expect_needed(&of_cases, is_in_cases) +
                    schedules_expect_needed(&of_balance, is_in_balance) >
                10);
}
