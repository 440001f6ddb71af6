/* SPDX-License-Identifier: MIT */
/* Low latency over several nodes, which have as many ranks or not: the cases and ways of one node,
 * with the same bits. */
#include "harness/cmocka.h"
#include "harness/machine.h"
#include "oracle/ll_trials.h"

static const struct shape {
    int32_t num_nodes, num_local;
} shapes[] = {{2, 1}, {2, 2}, {3, 1}, {2, 4}, {3, 2}, {5, 1}, {2, 3}};
enum { NUM_SHAPES = sizeof shapes / sizeof shapes[0] };

static void run_on(struct ll_trial *trial, struct shape shape, enum ranks_mode mode)
{
    trial->num_nodes = shape.num_nodes;
    trial->problem.num_ranks = shape.num_nodes * shape.num_local;
    trial->problem.node_ranks = shape.num_local;
    if (ranks_run(mode, trial->problem.num_ranks, ll_trial_run, trial) != 0)
        fail_msg("case \"%s\", %d nodes of %d ranks", trial->problem.name, shape.num_nodes,
                 shape.num_local);
}

/* The step from one case to the next. On GPUs it is larger: processes that share a GPU take turns
 * of milliseconds, so that a case takes seconds. */
static size_t stride(int full, int small)
{
    enum { OF_GPUS = 3 };
    return (size_t)tests_rounds(tests_grid_size(full, small), OF_GPUS * full);
}

/* Each case on shapes in turn, so that a way sees all of both; in the small grid other cases than
 * other ways. */
static void run_way(enum ll_way way, enum ranks_mode mode)
{
    const size_t step = stride(1, 2 * LL_NUM_WAYS);
    for (size_t i = (size_t)way % step; i < ll_num_cases(); i += step) {
        struct ll_trial trial = ll_trial_between_nodes(way, i);
        run_on(&trial, shapes[(i + (size_t)way) % NUM_SHAPES], mode);
    }
}

TEST_CALL(one_launch_each, run_way(LL_ONE_LAUNCH, RANKS_PROCESSES))
TEST_CALL(two_phases_each, run_way(LL_TWO_PHASES, RANKS_THREADS))
TEST_CALL(two_results_at_a_time, run_way(LL_TWO_RESULTS, RANKS_PROCESSES))
TEST_CALL(results_are_combined_twice, run_way(LL_COMBINED_TWICE, RANKS_THREADS))

/* Each case once, in one of the ways. */
TEST(rows_are_relayed)
{
    for (size_t i = 0; i < ll_num_cases(); i += stride(1, 9)) {
        struct ll_trial trial = ll_trial_between_nodes((enum ll_way)(i % LL_NUM_WAYS), i);
        trial.problem.route = WEFT_LL_RELAYED;
        run_on(&trial, shapes[i % NUM_SHAPES], i / 2 % 2 == 0 ? RANKS_THREADS : RANKS_PROCESSES);
    }
}

/* Engines send what is long in other ways than tcp does. */
TEST_OVER(over_ucx, "ucx")
{
    for (size_t i = 0; i < ll_num_cases(); i += stride(3, 9)) {
        struct ll_trial trial = ll_trial_between_nodes((enum ll_way)(i % LL_NUM_WAYS), i);
        run_on(&trial, shapes[i % 4], RANKS_PROCESSES);
    }
}

/* More ranks of other nodes than a warp of a GPU has lanes. */
TEST(many_ranks)
{
    if (tests_on_cuda())
        skip();
    for (int i = 0; i < tests_grid_size(2, 1); i++) {
        struct ll_trial trial = {{"many ranks", LL_SIZES(0, 3, 4, 50, 5),
                                  LL_TYPES(FP32, FP32, INT32), LL_GRID(2, 2), .seed = (uint64_t)i,
                                  .layout = i == 0 ? WEFT_LL_BY_RANK : WEFT_LL_BY_EXPERT,
                                  .route = i == 0 ? WEFT_LL_RELAYED : WEFT_LL_STRAIGHT},
                                 i == 0 ? LL_ONE_LAUNCH : LL_TWO_RESULTS,
                                 0};
        run_on(&trial, i == 0 ? (struct shape){12, 3} : (struct shape){36, 1}, RANKS_THREADS);
    }
}

/* ---------------------------------------------------------------- nodes that are not alike */

/* Ranks [first, first + num_ranks) of a communicator of several nodes have one of their own. */
struct part {
    struct ll_trial trial;
    struct shape shape;
    int32_t first;
};

static int run_part(struct ranks_context *context)
{
    const struct part *part = context->argument;
    weft_comm *all, *comm;
    CHECK_OK(ranks_comm_create(
        context, WEFT_ARGS(weft_comm_config, .num_nodes = part->shape.num_nodes), &all));
    CHECK_OK(
        weft_comm_split_strided(all, part->first, 1, part->trial.problem.num_ranks, NULL, &comm));
    if (comm != NULL) {
        struct ranks_context member = *context;
        member.rank = weft_comm_rank(comm);
        member.num_ranks = part->trial.problem.num_ranks;
        if (ll_trial_run_in(&member, &part->trial, comm))
            return 1;
    }
    CHECK_OK(weft_comm_destroy(all));
    return 0;
}

TEST(nodes_with_different_numbers_of_ranks)
{
    static const struct {
        struct shape shape;
        int32_t first, num_ranks;
    } parts[] = {{{2, 3}, 0, 4} /* 3 + 1 */, {{3, 2}, 1, 4} /* 1 + 2 + 1 */, {{2, 4}, 3, 5}};
    for (size_t i = 0; i < ll_num_cases(); i += stride(2, 6)) {
        const size_t p = i % (sizeof parts / sizeof *parts);
        struct part part = {ll_trial_between_nodes((enum ll_way)(i / 3 % LL_NUM_WAYS), i),
                            parts[p].shape, parts[p].first};
        part.trial.problem.route = i / 6 % 2 == 0 ? WEFT_LL_STRAIGHT : WEFT_LL_RELAYED;
        if (part.trial.problem.route == WEFT_LL_STRAIGHT && i / 2 % 2 == 1)
            part.trial.problem.on_missing = WEFT_LL_MASK;
        part.trial.problem.num_ranks = parts[p].num_ranks;
        part.trial.problem.node_ranks = parts[p].shape.num_local;
        part.trial.problem.cut_ranks = parts[p].first % parts[p].shape.num_local;
        if (ranks_run(i / 2 % 2 == 0 ? RANKS_THREADS : RANKS_PROCESSES,
                      part.shape.num_nodes * part.shape.num_local, run_part, &part) != 0)
            fail_msg("case \"%s\"", part.trial.problem.name);
    }
}

/* Rows that go through partners need partners. */
static int refuse_a_handle(struct ranks_context *context)
{
    weft_ep_config ep_config = WEFT_INIT(weft_ep_config);
    weft_ep_handle_config handle_config = WEFT_INIT(weft_ep_handle_config);
    weft_comm *all, *comm;
    weft_ep *ep;
    weft_ep_handle *handle;
    ep_config.num_experts = 8;
    handle_config.num_topk = 2;
    CHECK_OK(ranks_comm_create(context, WEFT_ARGS(weft_comm_config, .num_nodes = 2), &all));
    CHECK_OK(weft_comm_split_strided(all, 0, 1, 3, NULL, &comm));
    if (comm != NULL) {
        CHECK_OK(weft_ep_create(comm, &ep_config, &ep));
        CHECK_ERROR(weft_ep_handle_create(ep, &handle_config, &handle), WEFT_ERROR_UNSUPPORTED,
                    "2 nodes have different numbers of ranks");
        CHECK_OK(weft_comm_destroy(comm));
    }
    CHECK_OK(weft_comm_destroy(all));
    return 0;
}

TEST(other_operations_need_nodes_that_are_alike)
{
    if (ranks_run(RANKS_THREADS, 4, refuse_a_handle, (void *)NULL) != 0)
        fail_msg("a handle");
}
