/* SPDX-License-Identifier: MIT */
/* The gate on the sim: whatever order the lanes take, its outputs are right, and have the bits that
 * they have on cpu. */
#include <string.h>

#include "harness/cmocka.h"
#include "sim_job.h"
#include "workload/gate_oracle.h"

enum { NUM_SEEDS = 20, SEEDS_OF_BALANCE = 60, SEEDS_WEAKENED = 20, NUM_EXPERTS = 9 };

/* 0: as it must be. */
static int run_cases(weft_comm *comm, weft_stream *stream, char *block)
{
    static char before[GATE_BLOCK_BYTES];
    struct gate_case drawn;
    uint64_t digest = 0;
    int32_t num_close = 0;
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
static int run_balance(weft_comm *comm, weft_stream *stream, char *block)
{
    float *bias = (float *)block;
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
    int (*of)(weft_comm *comm, weft_stream *stream, char *block);
};

static int run_rank(int32_t number, void *argument)
{
    struct run *run = argument;
    weft_comm *comm;
    weft_stream *stream;
    void *block;
    if (sim_job_open(&run->job, number, &comm) != WEFT_OK ||
        weft_heap_alloc(comm, GATE_BLOCK_BYTES, &block) != WEFT_OK ||
        weft_stream_create(comm, &stream) != WEFT_OK)
        return 1;
    int failed = run->of(comm, stream, block);
    failed |= weft_stream_destroy(stream) != WEFT_OK;
    failed |= weft_heap_free(comm, block) != WEFT_OK;
    return failed | (weft_comm_destroy(comm) != WEFT_OK);
}

/* Returns whether the run was caught. */
static int run_schedule(int (*of)(weft_comm *, weft_stream *, char *), uint64_t seed, int32_t site,
                        struct weft__sim_result *result)
{
    struct run run = {{.num_nodes = 1, .ranks_per_node = 1, .weakened_site = site}, of};
    sim_job_run(&run.job, run_rank, &run, seed, result);
    return sim_is_caught(result);
}

static void run_schedules(int (*of)(weft_comm *, weft_stream *, char *), uint64_t num_seeds)
{
    static struct weft__sim_result result; /* large */
    for (uint64_t seed = 0; seed < num_seeds; seed++) {
        run_schedule(of, seed, WEFT__SIM_NO_SITE, &result);
        sim_expect_sound(&result, seed);
    }
}

TEST(gates_have_the_bits_of_the_cpu_machine)
{
    run_schedules(run_cases, NUM_SEEDS);
}

TEST(biases_do_not_depend_on_the_schedule)
{
    run_schedules(run_balance, SEEDS_OF_BALANCE);
}

/* A sync of lanes is not there: a schedule shows it. Blocks have one warp here, and need no sync of
 * their own. */
TEST(every_sync_is_needed)
{
    static struct weft__sim_result result;
    int num_sites = 0, num_needless = 0;
    for (int32_t i = 0; i < weft__sim_num_sites(); i++) {
        const struct weft__sim_site *site = weft__sim_site(i);
        const int is_balance = strstr(site->file, "gate_balance.c") != NULL;
        uint64_t seed = 0;
        if (strstr(site->file, "programs/gate/") == NULL || strcmp(site->kind, "warp sync") != 0)
            continue;
        while (seed < SEEDS_WEAKENED &&
               !run_schedule(is_balance ? run_balance : run_cases, seed, i, &result))
            seed++;
        num_needless += seed == SEEDS_WEAKENED;
        if (seed == SEEDS_WEAKENED)
            print_error("without the %s at %s:%d nothing is found\n", site->kind, site->file,
                        site->line);
        num_sites++;
    }
    print_message("%d sites\n", num_sites);
    assert_int_equal(num_needless, 0);
    assert_true(num_sites > 10);
}
