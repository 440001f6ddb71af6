/* SPDX-License-Identifier: MIT */
/* Low latency without some of its ranks: who masks whom is drawn, pair by pair; what the others do
 * for each other stays exact, to the bit, and masked ranks come back. */
#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/ranks.h"
#include "oracle/ll_seat.h"
#include "workload/rng.h"

enum { NUM_ROUNDS = 4, NUM_STEPS = 3, SHORT_MS = 100 };

struct trial {
    struct ll_case problem;
    int in_phases;
    int32_t num_nodes; /* virtual ones; 0: one */
};

/* ---------------------------------------------------------------- masks */

/* The same on all ranks: each pair is cut with a chance of one in three. */
static void draw_cuts(const struct ll_case *problem, uint64_t round, uint64_t *cuts)
{
    struct rng rng = {rng_key(problem->seed, round)};
    for (int32_t rank = 0; rank < problem->num_ranks; rank++)
        cuts[rank] = 0;
    for (int32_t a = 0; a < problem->num_ranks; a++)
        for (int32_t b = 0; b < a; b++)
            if (rng_below(&rng, 3) == 0) {
                cuts[a] |= (uint64_t)1 << b;
                cuts[b] |= (uint64_t)1 << a;
            }
}

/* On the machine; the seat's memory of step 0 holds it meanwhile. */
static int set_mask(struct ll_seat *seat, uint64_t bits)
{
    int32_t mask[RANKS_MAX];
    for (int32_t rank = 0; rank < seat->problem->num_ranks; rank++)
        mask[rank] = (int32_t)(bits >> rank & 1) * (rank + 7);
    CHECK_OK(weft_memory_copy(seat->comm, seat->steps[0].missing[0], mask,
                              (uint64_t)seat->problem->num_ranks * sizeof *mask));
    return 0;
}

static int check_mask(struct ll_seat *seat, uint64_t bits)
{
    int32_t mask[RANKS_MAX];
    CHECK_OK(weft_ll_query_mask(seat->ll, seat->steps[0].missing[1], seat->stream));
    CHECK_OK(weft_stream_synchronize(seat->stream));
    CHECK_OK(weft_memory_copy(seat->comm, mask, seat->steps[0].missing[1],
                              (uint64_t)seat->problem->num_ranks * sizeof *mask));
    for (int32_t rank = 0; rank < seat->problem->num_ranks; rank++) {
        weft_peer_stats peer = WEFT_INIT(weft_peer_stats);
        CHECK(mask[rank] == (int32_t)(bits >> rank & 1), "the mask of rank %d is %d", rank,
              mask[rank]);
        CHECK_OK(weft_stats_query_peer(seat->comm, rank, &peer));
        CHECK((peer.num_masks > 0) == mask[rank], "%llu objects go on without rank %d",
              (unsigned long long)peer.num_masks, rank);
    }
    return 0;
}

static int mask_ranks(struct ll_seat *seat, uint64_t bits)
{
    if (set_mask(seat, bits))
        return 1;
    CHECK_OK(weft_ll_mask(seat->ll, seat->steps[0].missing[0], seat->stream));
    return check_mask(seat, bits & ~((uint64_t)1 << seat->context->rank));
}

static int unmask_ranks(struct ll_seat *seat, uint64_t bits, uint64_t epoch)
{
    if (set_mask(seat, bits))
        return 1;
    CHECK_OK(weft_ll_unmask(seat->ll, seat->steps[0].missing[0], epoch, seat->stream));
    return check_mask(seat, bits);
}

/* ---------------------------------------------------------------- steps */

static int run_step(struct ll_seat *seat, int32_t step, int in_phases)
{
    const weft_ll_phases first = in_phases ? WEFT_LL_SEND : WEFT_LL_SEND_AND_RECEIVE;
    if (ll_fill_step(seat, step) || ll_dispatch(seat, step, first) ||
        (in_phases && ll_dispatch(seat, step, WEFT_LL_RECEIVE)) ||
        ll_check_dispatched(seat, step) || ll_combine(seat, step, first, 0) ||
        (in_phases && ll_combine(seat, step, WEFT_LL_RECEIVE, 0)))
        return 1;
    return ll_check_combined(seat, step);
}

/* Each round has masks of its own, which all ranks set; before the next all come back, some in the
 * middle of a step. */
static int run_rounds(struct ranks_context *context)
{
    const struct trial *trial = context->argument;
    struct ll_case problem = trial->problem;
    uint64_t cuts[RANKS_MAX] = {0};
    struct ll_seat seat;
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    problem.cuts = cuts;
    config.num_nodes = trial->num_nodes;
    if (ll_seat_open(&seat, context, &problem, &config))
        return 1;
    for (uint64_t round = 0; round < NUM_ROUNDS; round++) {
        if (round % 2 == 1 && (ll_fill_step(&seat, 0) || ll_dispatch(&seat, 0, WEFT_LL_SEND)))
            return 1;
        for (int32_t rank = 0; rank < problem.num_ranks; rank++)
            cuts[rank] = 0;
        if (round > 0 && unmask_ranks(&seat, 0, 3 * round))
            return 1;
        draw_cuts(&problem, round, cuts);
        if (mask_ranks(&seat, cuts[context->rank]))
            return 1;
        for (int32_t step = 0; step < NUM_STEPS; step++)
            if (run_step(&seat, step, trial->in_phases))
                return 1;
    }
    /* Ranks of one process may share a GPU: who leaves frees memory, for which CUDA waits for the
     * kernels of all. */
    (void)weft_stream_synchronize(seat.stream);
    if (tests_on_cuda())
        ranks_barrier(context);
    return ll_seat_close(&seat);
}

static const struct ll_case cases[] = {
    {"by rank", LL_SIZES(4, 7, 3, 8, 40), LL_TYPES(BF16, BF16, INT32), LL_GRID(3, 0)},
    {"by expert", LL_SIZES(5, 9, 4, 11, 256), LL_TYPES(BF16, FP32, INT64), LL_EXPERTS,
     LL_GRID(4, 3)},
    {"rows of experts, few of which fit", LL_SIZES(4, 6, 4, 6, 33), LL_TYPES(FP16, FP16, INT32),
     LL_EXPERTS, LL_ANSWERS(ROWS), LL_GRID(2, 0), .expert_capacity = 5, .num_results = 1},
    {"FP8 by expert", LL_SIZES(3, 5, 3, 8, 512), LL_TYPES(BF16, BF16, INT64), LL_EXPERTS,
     LL_NARROW(FP8_E4M3, FP32, 128), LL_GRID(2, 0), .scale_columns = 1},
    {"weighed late", LL_SIZES(4, 7, 3, 8, 512), LL_TYPES(BF16, BF16, INT32), LL_EXPERTS,
     LL_ANSWERS(SUMS_WEIGHED_LATE), LL_GRID(3, 0)},
};

static void run(struct trial trial, rank_function function)
{
    trial.problem.on_missing = WEFT_LL_MASK;
    trial.problem.has_expert_signals =
        trial.problem.layout == WEFT_LL_BY_EXPERT && trial.problem.seed % 2 == 1;
    if (trial.problem.carrier == WEFT_LL_AUTO)
        trial.problem.carrier = WEFT_LL_SIGNALS;
    if (trial.num_nodes > 0 && trial.problem.answer == WEFT_LL_ANSWER_SUMS_WEIGHED_LATE)
        trial.problem.answer = WEFT_LL_ANSWER_SUMS; /* weights come late on one node alone */
    trial.problem.node_ranks = trial.num_nodes > 0 ? trial.problem.num_ranks / trial.num_nodes : 0;
    const struct ranks_options options = {.num_ranks = trial.problem.num_ranks,
                                          RANKS_ARGUMENT(&trial)};
    if (ranks_run_with(&options, function) != 0)
        fail_msg("%s, in phases %d, seed %llu, %d nodes", trial.problem.name, trial.in_phases,
                 (unsigned long long)trial.problem.seed, trial.num_nodes);
}

TEST(pairs_mask_each_other)
{
    for (uint64_t seed = 0; seed < (uint64_t)tests_grid_size(4, 2); seed++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            struct trial trial = {cases[i], (int)(seed % 2), 0};
            trial.problem.seed = 1 + seed;
            run(trial, run_rounds);
        }
}

/* More ranks than a warp has lanes, or a word bits. */
TEST(pairs_of_many_ranks_mask_each_other)
{
    const struct ll_case many = {"by expert, 36 ranks",
                                 LL_SIZES(36, 2, 3, 72, 16),
                                 LL_TYPES(BF16, BF16, INT32),
                                 LL_EXPERTS,
                                 LL_GRID(1, 2),
                                 .seed = 1};
    if (tests_on_cuda())
        skip();
    run((struct trial){many, 0, 0}, run_rounds);
}

TEST(pairs_mask_each_other_in_packets)
{
    for (int carrier = WEFT_LL_PACKETS; carrier <= WEFT_LL_TOLD_PACKETS; carrier++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            for (int in_phases = 0; in_phases < 2; in_phases++) {
                struct trial trial = {cases[i], in_phases, 0};
                trial.problem.seed = 20 + (uint64_t)in_phases;
                trial.problem.carrier = (weft_ll_carrier)carrier;
                if (ll_suits(&trial.problem, trial.problem.carrier))
                    run(trial, run_rounds);
            }
}

/* Of as many nodes as ranks, or of two where there are some for each. */
TEST(pairs_on_several_nodes_mask_each_other)
{
    for (uint64_t seed = 0; seed < 2; seed++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            struct trial trial = {cases[i], (int)(seed % 2), cases[i].num_ranks};
            if (seed > 0 && cases[i].num_ranks % 2 == 0)
                trial.num_nodes = 2;
            trial.problem.seed = 5 + seed;
            run(trial, run_rounds);
        }
}
