/* SPDX-License-Identifier: MIT */
/* Collectives over several nodes, which have as many ranks or not: every operation with every
 * element type, operator and kind of values, with rings from the shortest on; what is not given is
 * drawn at random. */
#include <stdlib.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "oracle/coll_trials.h"
#include "workload/elements.h"
#include "workload/rng.h"

static const struct shape {
    struct coll_nodes nodes;
    int32_t num_ranks;
} shapes[] = {
    {{2, 2, 0, COLL_NODE_AFTER_NODE}, 4}, {{2, 3, 0, COLL_NODE_AFTER_NODE}, 4} /* 3 + 1 */,
    {{3, 1, 0, COLL_NODE_AFTER_NODE}, 3}, {{3, 3, 1, COLL_NODE_AFTER_NODE}, 7} /* 2 + 3 + 2 */,
    {{4, 2, 0, COLL_NODES_IN_TURN}, 8},   {{2, 4, 3, COLL_NODE_AFTER_NODE}, 5} /* 1 + 4 */,
    {{2, 1, 0, COLL_NODE_AFTER_NODE}, 2}, {{4, 3, 1, COLL_NODE_AFTER_NODE}, 9} /* 2 + 3 + 3 + 1 */,
    {{2, 3, 0, COLL_NODES_IN_TURN}, 6},   {{3, 2, 1, COLL_NODE_AFTER_NODE}, 4} /* 1 + 2 + 1 */,
};
enum { NUM_SHAPES = sizeof shapes / sizeof shapes[0], NUM_OPERATIONS = COLL_NUM_OPERATIONS };

static void add(struct coll_trials *trials, uint64_t seed, enum coll_operation operation,
                weft_dtype dtype, weft_reduce_op op, uint64_t count, uint64_t setup)
{
    struct coll_case spec = coll_case_random(seed, trials->num_ranks, operation, dtype, op, count);
    spec.nodes = trials->nodes;
    coll_trials_add(trials, coll_trial_of(&spec, setup));
}

static struct coll_trials trials_of(const struct shape *shape)
{
    return coll_trials_over_nodes(shape->num_ranks, &shape->nodes);
}

/* From nothing to more than there are ranks, in pieces of all lengths. */
static uint64_t draw_count(struct rng *rng)
{
    static const uint64_t counts[] = {0, 1, 2, 3, 5, 7, 8, 9, 16, 17, 63, 100, 257};
    return counts[rng_below(rng, sizeof counts / sizeof *counts)];
}

/* Every operation, type and operator in turn, of which each shape has a part. */
TEST(every_operation_type_and_operator)
{
    const int step = tests_grid_size(3, 7); /* prime to all that is counted */
    for (int s = 0; s < NUM_SHAPES; s++) {
        struct coll_trials trials = trials_of(&shapes[s]);
        struct rng rng = {rng_key(1, (uint64_t)s)};
        for (int i = s % step; i < NUM_OPERATIONS * NUM_DTYPES * NUM_REDUCE_OPS; i += step) {
            const int operation = i % NUM_OPERATIONS, dtype = i / NUM_OPERATIONS % NUM_DTYPES;
            add(&trials, rng_next(&rng), (enum coll_operation)operation, (weft_dtype)(1 + dtype),
                (weft_reduce_op)(i / NUM_OPERATIONS / NUM_DTYPES), draw_count(&rng),
                (uint64_t)i / 7);
        }
        if (coll_trials_run(&trials, RANKS_THREADS) != 0)
            fail_msg("%d ranks, of %d nodes of %d", shapes[s].num_ranks, shapes[s].nodes.num_nodes,
                     shapes[s].nodes.num_local);
    }
}

static void run_sizes(const struct shape *shape, enum ranks_mode mode, int num_trials,
                      uint64_t max_count)
{
    struct coll_trials trials = trials_of(shape);
    struct rng rng = {rng_key(max_count, (uint64_t)shape->num_ranks)};
    for (int i = 0; i < num_trials; i++)
        add(&trials, rng_next(&rng), (enum coll_operation)(i % NUM_OPERATIONS),
            (weft_dtype)(1 + rng_below(&rng, NUM_DTYPES)),
            (weft_reduce_op)rng_below(&rng, NUM_REDUCE_OPS), rng_next(&rng) % (max_count + 1),
            rng_next(&rng));
    assert_int_equal(coll_trials_run(&trials, mode), 0);
}

/* More than rings and staging blocks hold. */
TEST(large)
{
    for (int s = 0; s < NUM_SHAPES; s += tests_grid_size(2, 5))
        run_sizes(&shapes[s], RANKS_THREADS, 2 * NUM_OPERATIONS, 150000);
}

TEST(in_processes)
{
    for (int s = 1; s < NUM_SHAPES; s += tests_grid_size(3, 6))
        run_sizes(&shapes[s], RANKS_PROCESSES, tests_grid_size(60, 20), 3000);
}

TEST_OVER(over_ucx, "ucx")
{
    run_sizes(&shapes[0], RANKS_PROCESSES, 20, 30000);
}

/* Many nodes, and one node of more ranks than packets are for; as drawn of each operation. */
TEST(many_ranks)
{
    static const struct shape many[] = {{{34, 1, 0, COLL_NODE_AFTER_NODE}, 34},
                                        {{1, 40, 0, COLL_NODE_AFTER_NODE}, 40}};
    if (tests_on_cuda())
        skip();
    for (size_t s = 0; s < sizeof many / sizeof *many; s++)
        run_sizes(&many[s], RANKS_THREADS, NUM_OPERATIONS, 2000);
}

TEST(many_processes)
{
    static const struct shape many = {{9, 4, 0, COLL_NODE_AFTER_NODE}, 36};
    if (tests_on_cuda() || tests_grid_size(1, 0) == 0)
        skip();
    run_sizes(&many, RANKS_PROCESSES, NUM_OPERATIONS, 2000);
}

/* Small broadcasts over many nodes that are far from each other go by their tree, as the model
 * expects, or limits have it, where there is no model; and larger ones, between them, by rails. */
TEST_ON_RANKS(broadcasts_by_trees, RANKS_PROCESSES, 8)
{
    enum { NUM_NODES = 8, SMALL_BYTES = 32 << 10, LARGE_BYTES = 512 << 10 };
    static const uint64_t counts[] = {1, SMALL_BYTES / 4, LARGE_BYTES / 4, 100, 0, 7};
    const weft_coll_reason reason = tests_on_cuda() ? WEFT_COLL_FORMULA : WEFT_COLL_MODEL;
    weft_coll_explanation why = WEFT_INIT(weft_coll_explanation);
    struct ep_rank self;
    weft_coll *coll;
    CHECK(setenv("WEFT_NET_LATENCY_US", "1000", 1) == 0, "setenv");
    if (ep_rank_open(&self, context, NUM_NODES, 4 << 20))
        return 1;
    CHECK_OK(weft_coll_create(self.comm, NULL, &coll));
    CHECK_OK(weft_coll_explain(coll, WEFT_BROADCAST, WEFT_ALGORITHM_AUTO, SMALL_BYTES, &why));
    CHECK(why.algorithm == WEFT_ALGORITHM_TREE && why.reason == reason, "%s because of %d",
          weft_coll_algorithm_name(why.algorithm), (int)why.reason);
    CHECK(weft_coll_algorithm(coll, WEFT_BROADCAST, LARGE_BYTES) == WEFT_ALGORITHM_RAILS &&
              weft_coll_algorithm(coll, WEFT_ALL_REDUCE, 4) == WEFT_ALGORITHM_RAILS &&
              weft_coll_algorithm(coll, WEFT_REDUCE, 4) == WEFT_ALGORITHM_RAILS,
          "trees are chosen for more");
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const struct coll_case spec =
            coll_case_random(i, NUM_NODES, COLL_BROADCAST, WEFT_INT32, WEFT_SUM, counts[i]);
        if (coll_check(&self, coll, &spec, "broadcast"))
            return 1;
    }
    CHECK_OK(weft_coll_destroy(coll));
    return ep_rank_close(&self);
}
