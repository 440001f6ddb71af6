/* SPDX-License-Identifier: MIT */
/* Ranks of two nodes are killed, each in a job of its own, at a random moment: while rows of up to
 * 100,000 bytes go both ways between the nodes, or while the communicator is made. Every survivor
 * ends by itself, in time, and has been told by number who died. WEFT_TEST_KILLS says how many, of
 * which every third is in start-up; scripts/kills does thousands. */
#include <stdlib.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/victim.h"
#include "workload/rng.h"

enum {
    NUM_RANKS = 4,
    NUM_NODES = 2,
    MAX_ROUNDS = 1000000,
    MAX_ROW_BYTES = 100000,
    NUM_ROWS = 6, /* to each rank of the other node in a round */
    FEW_KILLS = 9,
    KILLS_PER_REPORT = 50,
    TIMEOUT_MS = 8000,
    MARGIN_S = 4 /* for a machine that is busy */
};

enum moment { IN_TRANSFER, IN_START_UP };

struct plan {
    enum moment moment;
    int32_t victim;
    uint64_t seed;
};

struct area {
    uint64_t num_rows;
    unsigned char rows[NUM_RANKS][NUM_ROWS][MAX_ROW_BYTES], source[MAX_ROW_BYTES];
};

struct party {
    weft_comm *comm;
    weft_stream *stream;
    struct area *area;
    uint64_t num_rows; /* that must have come */
    struct rng rng;
};

static weft_result create_comm(struct ranks_context *context, struct party *party)
{
    return ranks_comm_create(
        context, WEFT_ARGS(weft_comm_config, .num_nodes = NUM_NODES, .timeout_ms = TIMEOUT_MS),
        &party->comm);
}

static int open_area(struct party *party)
{
    void *area;
    CHECK_OK(weft_stream_create(party->comm, &party->stream));
    CHECK_OK(weft_heap_alloc(party->comm, sizeof(struct area), &area));
    party->area = area;
    if (!tests_on_cuda()) /* it is zero at first on GPUs, too */
        party->area->num_rows = 0;
    CHECK_OK(weft_comm_host_barrier(party->comm));
    return 0;
}

/* Rows of any length to all ranks of the other node, who send as many. */
static weft_result enqueue_rows(const struct ranks_context *context, struct party *party)
{
    struct area *area = party->area;
    weft_result result = WEFT_OK;
    for (int32_t peer = 0; peer < NUM_RANKS; peer++)
        for (int row = 0; row < NUM_ROWS && result == WEFT_OK; row++) {
            const size_t num_bytes = 1 + (size_t)rng_below(&party->rng, MAX_ROW_BYTES);
            if (weft_comm_node(party->comm, peer) == weft_comm_node(party->comm, context->rank))
                break;
            result = weft_rma_put_signal(
                party->comm,
                WEFT_ARGS(weft_rma_args, .dst = area->rows[context->rank][row], .src = area->source,
                          .bytes = num_bytes, .word = &area->num_rows, .value = 1, .rank = peer),
                party->stream);
        }
    party->num_rows += NUM_ROWS * (NUM_RANKS / NUM_NODES);
    if (result == WEFT_OK)
        result = weft_rma_wait_until(
            party->comm,
            WEFT_ARGS(weft_rma_args, .word = &area->num_rows, .value = party->num_rows),
            party->stream);
    return result;
}

static weft_result send_rows(const struct ranks_context *context, struct party *party,
                             int num_rounds)
{
    weft_result result = WEFT_OK;
    for (int round = 0; round < num_rounds && result == WEFT_OK; round++) {
        result = enqueue_rows(context, party);
        if (result == WEFT_OK)
            result = weft_stream_synchronize(party->stream);
    }
    return result;
}

/* ---------------------------------------------------------------- what survivors know */

static int check_in_time(struct ranks_context *context, double limit_s)
{
    const struct victim *victim = context->shared;
    const double delay_s = clock_s() - victim->strike_time_s;
    CHECK(delay_s < limit_s, "it took %.3f s to learn of the death", delay_s);
    return 0;
}

static int survive_transfer(struct ranks_context *context, struct party *party)
{
    const struct plan *plan = context->argument;
    CHECK_OK(create_comm(context, party));
    if (open_area(party) != 0)
        return 1;
    CHECK_OK(send_rows(context, party, 2));
    victim_choose(context, plan->victim);
    if (victim_is_self(context) && victim_strike_later(context, SIGKILL, plan->seed))
        return 1;
    const weft_result result = send_rows(context, party, MAX_ROUNDS);
    CHECK(result == WEFT_ERROR_RANK_FAILED, "result is %d: %s", result, weft_last_error());
    if (check_in_time(context, MARGIN_S) != 0 ||
        victim_check_blamed(context, party->comm, WEFT_ERROR_RANK_FAILED) != 0)
        return 1;
    CHECK_OK(weft_stream_destroy(party->stream));
    CHECK_OK(weft_heap_free(party->comm, party->area));
    return 0;
}

/* Who dies before it has told anybody that it is there is missed at the deadline. */
static int survive_start_up(struct ranks_context *context, struct party *party)
{
    const struct plan *plan = context->argument;
    char name[32];
    snprintf(name, sizeof name, "rank %d", plan->victim);
    victim_choose(context, plan->victim);
    if (victim_is_self(context) && victim_strike_later(context, SIGKILL, plan->seed))
        return 1;
    weft_result result = create_comm(context, party);
    if (result == WEFT_OK && victim_is_self(context))
        victim_await_strike(context);
    for (int i = 0; i < MAX_ROUNDS && result == WEFT_OK; i++)
        result = weft_comm_host_barrier(party->comm);
    CHECK(strstr(weft_last_error(), name) != NULL, "result is %d, and %s is not named: %s", result,
          name, weft_last_error());
    return check_in_time(context, (double)TIMEOUT_MS / 1000 + MARGIN_S);
}

static int survive(struct ranks_context *context)
{
    const struct plan *plan = context->argument;
    struct party party = {.rng = {plan->seed * NUM_RANKS + (uint64_t)context->rank}};
    setenv("WEFT_NET", getenv("WEFT_NET") != NULL ? getenv("WEFT_NET") : "tcp", 1);
    const int failed = plan->moment == IN_TRANSFER ? survive_transfer(context, &party)
                                                   : survive_start_up(context, &party);
    if (failed || party.comm == NULL)
        return failed;
    CHECK_OK(weft_comm_destroy(party.comm));
    return 0;
}

TEST(survivors_are_told)
{
    const char *text = getenv("WEFT_TEST_KILLS");
    const char *seed = getenv("WEFT_TEST_SEED");
    const long num_kills = text != NULL ? atol(text) : tests_rounds(FEW_KILLS, 3);
    long num_failed = 0;
    struct rng rng = {seed != NULL ? (uint64_t)atoll(seed) : 1};
    for (long kill = 0; kill < num_kills; kill++) {
        struct plan plan = {.moment = kill % 3 == 2 ? IN_START_UP : IN_TRANSFER,
                            .victim = (int32_t)rng_below(&rng, NUM_RANKS),
                            .seed = rng_next(&rng)};
        const struct ranks_options options =
            victim_options(NUM_RANKS, 1u << plan.victim, &plan, sizeof plan);
        if (ranks_run_with(&options, survive) != 0) {
            num_failed++;
            fprintf(stderr, "kill %ld, %s, of rank %d: survivors failed\n", kill,
                    plan.moment == IN_TRANSFER ? "in transfer" : "in start-up", plan.victim);
        }
        if ((kill + 1) % KILLS_PER_REPORT == 0 || kill + 1 == num_kills)
            fprintf(stderr, "%ld of %ld kills, after %ld of them survivors failed\n", kill + 1,
                    num_kills, num_failed);
    }
    if (num_failed > 0)
        fail_msg("after %ld of %ld kills survivors failed", num_failed, num_kills);
}

int main(void)
{
    tests_choose_machine();
    if (!tests_network_is_there("tcp"))
        return 77;
    return tests_run(NULL, NULL);
}
