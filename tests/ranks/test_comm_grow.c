/* SPDX-License-Identifier: MIT */
/* weft_comm_grow: ranks of a communicator and new ones make a larger one, on which operations are
 * right; the old one goes on. Wrong arguments are refused on all of them. */
#include <string.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/ranks.h"
#include "oracle/coll_trials.h"
#include "oracle/ep_trials.h"

enum { MAX_RANKS = 8, NUM_TRIALS = 12, MAX_COUNT = 3000, MAX_ATTEMPTS = 8 };

struct board {
    weft_unique_id ids[MAX_ATTEMPTS]; /* of one attempt each */
};

static weft_comm_config over_nodes(int32_t num_nodes)
{
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    config.num_nodes = num_nodes;
    return config;
}

/* One member makes an id, by whatever means the new ranks get it. */
static int publish(struct ranks_context *context, const weft_comm *comm, int32_t giver, int attempt)
{
    struct board *board = context->shared;
    if (context->rank == giver)
        CHECK_OK(weft_comm_unique_id(comm, &board->ids[attempt]));
    ranks_barrier(context);
    return 0;
}

/* comm is NULL on new ranks. */
static weft_result grow(struct ranks_context *context, weft_comm *comm, int attempt,
                        int32_t num_ranks, const weft_comm_config *config, weft_comm **grown)
{
    const struct board *board = context->shared;
    const weft_unique_id *id = &board->ids[attempt];
    return comm != NULL ? weft_comm_grow(comm, id, num_ranks, config, grown)
                        : weft_comm_create(id, context->rank, num_ranks, config, grown);
}

/* The communicator of the first ranks, NULL on the others. */
static int open_members(struct ranks_context *context, int32_t num_members,
                        const weft_comm_config *config, weft_comm **comm)
{
    *comm = NULL;
    if (context->rank < num_members)
        CHECK_OK(weft_comm_create(&context->id, context->rank, num_members, config, comm));
    return 0;
}

static int check_gather(weft_comm *comm, int32_t salt)
{
    int32_t all[MAX_RANKS];
    const int32_t mine = 100 * salt + weft_comm_rank(comm);
    CHECK_OK(weft_comm_host_all_gather(comm, &mine, sizeof mine, all));
    for (int32_t rank = 0; rank < weft_comm_num_ranks(comm); rank++)
        CHECK(all[rank] == 100 * salt + rank, "rank %d says %d", rank, all[rank]);
    return 0;
}

/* ---------------------------------------------------------------- operations */

struct plan {
    int32_t num_members, num_ranks;
    int32_t num_nodes_before, num_nodes; /* as in weft_comm_config */
    const struct ep_world *world;        /* of num_ranks */
};

static struct ep_case usual(const struct plan *plan)
{
    return (struct ep_case){.seed = (uint64_t)(31 * plan->num_members + plan->num_ranks),
                            .num_ranks = plan->num_ranks,
                            .num_nodes = plan->num_nodes,
                            .max_tokens = 13,
                            .num_topk = 3,
                            .num_experts = 11,
                            .tokens = EP_TOKENS_RAGGED,
                            .placement = EP_PLACEMENT_REPLICATED};
}

static int check_numbers(const struct ranks_context *context, const struct plan *plan,
                         const weft_comm *grown)
{
    const int32_t node_size =
        plan->num_nodes > 0 ? plan->num_ranks / plan->num_nodes : plan->num_ranks;
    CHECK(weft_comm_num_ranks(grown) == plan->num_ranks, "%d ranks", weft_comm_num_ranks(grown));
    CHECK(weft_comm_rank(grown) == context->rank, "it is rank %d", weft_comm_rank(grown));
    for (int32_t rank = 0; rank < plan->num_ranks; rank++) {
        const int is_known = rank < plan->num_members && context->rank < plan->num_members;
        CHECK(weft_comm_parent_rank(grown, rank) == (is_known ? rank : -1), "rank %d was %d", rank,
              weft_comm_parent_rank(grown, rank));
        CHECK(weft_comm_node(grown, rank) == rank / node_size, "rank %d is on node %d", rank,
              weft_comm_node(grown, rank));
    }
    return 0;
}

static int check_operations(struct ranks_context *context, const struct plan *plan,
                            weft_comm *grown)
{
    const struct ep_dispatch_shape dispatch = ep_dispatch_shape_of(1000);
    const struct ep_combine_shape combine = ep_combine_shape_of(WEFT_BF16, 40);
    struct coll_nodes nodes = {0};
    struct coll_rank self;
    struct coll_trial trials[NUM_TRIALS];
    if (plan->num_nodes > 1)
        nodes = (struct coll_nodes){.num_nodes = plan->num_nodes,
                                    .num_local = plan->num_ranks / plan->num_nodes};
    for (uint64_t i = 0; i < NUM_TRIALS; i++) {
        struct coll_case spec =
            coll_case_random(i + 1, plan->num_ranks, (enum coll_operation)(i % COLL_NUM_OPERATIONS),
                             WEFT_FP32, WEFT_SUM, MAX_COUNT);
        spec.nodes = nodes;
        trials[i] = coll_trial_of(&spec, i);
    }
    return coll_rank_open_on(&self, context, grown, &nodes, COLL_ARENA_BYTES) ||
           ep_check_world(&self.base, plan->world, &dispatch, &combine) ||
           coll_trials_check(&self, trials, NUM_TRIALS) || coll_rank_close(&self);
}

static int grow_and_operate(struct ranks_context *context)
{
    const struct plan *plan = context->argument;
    const weft_comm_config before = over_nodes(plan->num_nodes_before);
    const weft_comm_config after = over_nodes(plan->num_nodes);
    weft_comm *comm, *grown;
    if (open_members(context, plan->num_members, &before, &comm) ||
        publish(context, comm, plan->num_members - 1, 0))
        return 1;
    CHECK_OK(grow(context, comm, 0, plan->num_ranks, &after, &grown));
    if (check_numbers(context, plan, grown) || check_operations(context, plan, grown))
        return 1;
    if (comm != NULL && check_gather(comm, 1))
        return 1;
    if (comm != NULL)
        CHECK_OK(weft_comm_destroy(comm));
    return 0;
}

static void run(enum ranks_mode mode, int32_t num_members, int32_t num_ranks, int32_t nodes_before,
                int32_t num_nodes)
{
    struct plan plan = {num_members, num_ranks, nodes_before, num_nodes, NULL};
    const struct ep_case spec = usual(&plan);
    struct ep_world *world = ep_world_create(&spec);
    plan.world = world;
    const struct ranks_options options = {.mode = mode,
                                          .num_ranks = num_ranks,
                                          .shared_bytes = sizeof(struct board),
                                          RANKS_ARGUMENT(&plan)};
    assert_int_equal(ranks_run_with(&options, grow_and_operate), 0);
    ep_world_destroy(world);
}

TEST(operations_on_a_grown_communicator)
{
    run(RANKS_THREADS, 1, 2, 0, 0);
    run(RANKS_THREADS, 3, 4, 0, 0);
    run(RANKS_PROCESSES, 2, 5, 0, 0);
    run(RANKS_PROCESSES, 4, 4, 0, 0);
}

/* Nodes are those of the new communicator alone. */
TEST_OVER_ENGINES(operations_over_nodes)
{
    run(RANKS_THREADS, 2, 4, 0, 2);
    run(RANKS_PROCESSES, 2, 6, 2, 3);
    run(RANKS_PROCESSES, 4, 6, 2, 2);
}

/* ---------------------------------------------------------------- more than once */

static int run_on_host(int32_t num_ranks, rank_function function)
{
    struct ranks_options options = {
        .mode = RANKS_THREADS, .num_ranks = num_ranks, .shared_bytes = sizeof(struct board)};
    int num_failed = ranks_run_with(&options, function);
    options.mode = RANKS_PROCESSES;
    if (!tests_on_cuda())
        num_failed += ranks_run_with(&options, function);
    return num_failed;
}
#define TEST_WITH_BOARD(name, num_ranks)                                                           \
    static int name##_on_rank(struct ranks_context *context);                                      \
    TEST_CALL(name, assert_int_equal(run_on_host(num_ranks, name##_on_rank), 0))                   \
    static int name##_on_rank(struct ranks_context *context)

/* From 1 rank to 2, 3, ... */
TEST_WITH_BOARD(one_rank_after_the_other, 5)
{
    weft_comm *comm, *grown;
    if (open_members(context, 1, NULL, &comm))
        return 1;
    for (int32_t num_ranks = 2; num_ranks <= context->num_ranks; num_ranks++) {
        if (publish(context, comm, 0, num_ranks))
            return 1;
        if (context->rank >= num_ranks)
            continue;
        CHECK_OK(grow(context, comm, num_ranks, num_ranks, NULL, &grown));
        if (comm != NULL)
            CHECK_OK(weft_comm_destroy(comm));
        comm = grown;
        if (check_gather(comm, num_ranks))
            return 1;
    }
    CHECK_OK(weft_comm_destroy(comm));
    return 0;
}

/* Two at a time, of one communicator, at its rendezvous and at another; it and they are independent
 * of each other. */
TEST_WITH_BOARD(independent_communicators, 4)
{
    struct board *board = context->shared;
    weft_comm *comm, *grown[2];
    if (open_members(context, 2, NULL, &comm))
        return 1;
    if (context->rank == 0)
        CHECK_OK(weft_unique_id_create(&board->ids[1]));
    if (publish(context, comm, 1, 0))
        return 1;
    for (int i = 0; i < 2; i++)
        CHECK_OK(grow(context, comm, i, context->num_ranks, NULL, &grown[i]));
    for (int i = 0; i < 2; i++)
        if (check_gather(grown[i], i) || (comm != NULL && check_gather(comm, i)))
            return 1;
    CHECK_OK(weft_comm_destroy(grown[0]));
    if (comm != NULL)
        CHECK_OK(weft_comm_abort(comm));
    if (check_gather(grown[1], 7))
        return 1;
    if (comm != NULL)
        CHECK_OK(weft_comm_destroy(comm));
    CHECK_OK(weft_comm_destroy(grown[1]));
    return 0;
}

/* Rank 1 leaves, and comes again as the last one. */
TEST_WITH_BOARD(after_shrinking, 4)
{
    const int32_t excluded = 1, num_ranks = context->num_ranks;
    weft_comm *comm, *shrunk = NULL, *grown;
    CHECK_OK(ranks_comm_create(context, NULL, &comm));
    if (context->rank != excluded)
        CHECK_OK(weft_comm_shrink(comm, &excluded, 1, NULL, &shrunk));
    if (publish(context, shrunk, 2, 0))
        return 1;
    CHECK_OK(weft_comm_destroy(comm));
    context->rank = shrunk != NULL ? weft_comm_rank(shrunk) : num_ranks - 1;
    CHECK_OK(grow(context, shrunk, 0, num_ranks, NULL, &grown));
    if (shrunk != NULL)
        CHECK_OK(weft_comm_destroy(shrunk));
    if (check_gather(grown, 3))
        return 1;
    CHECK_OK(weft_comm_destroy(grown));
    return 0;
}

/* A rank without a launcher has no rendezvous. Any other will do. */
TEST_WITH_BOARD(a_rank_alone_grows, 2)
{
    struct board *board = context->shared;
    weft_comm *comm = NULL, *grown;
    if (context->rank == 0) {
        CHECK_OK(weft_comm_create_from_env(NULL, &comm));
        CHECK_ERROR(weft_comm_unique_id(comm, &board->ids[0]), WEFT_ERROR_UNSUPPORTED,
                    "weft_unique_id_create");
        board->ids[0] = context->id;
    }
    ranks_barrier(context);
    CHECK_OK(grow(context, comm, 0, 2, NULL, &grown));
    if (check_gather(grown, 1))
        return 1;
    if (comm != NULL)
        CHECK_OK(weft_comm_destroy(comm));
    CHECK_OK(weft_comm_destroy(grown));
    return 0;
}

/* ---------------------------------------------------------------- refused */

static weft_result grow_by(weft_comm *comm, const weft_unique_id *id, int32_t num_ranks)
{
    weft_comm *grown;
    return weft_comm_grow(comm, id, num_ranks, NULL, &grown);
}

/* New ranks do not come in, and the communicator goes on. */
TEST_WITH_BOARD(ids_that_do_not_fit, 3)
{
    struct board *board = context->shared;
    const weft_unique_id *ids = board->ids;
    const weft_unique_id none = {{0}};
    weft_comm *const comm = ranks_comm(context, NULL);
    if (publish(context, comm, 0, 0) || publish(context, comm, 1, 1))
        return 1;
    CHECK(memcmp(&ids[0], &ids[1], sizeof *ids) != 0, "both ids are the same");
    CHECK_ERROR(grow_by(comm, &ids[0], 2), WEFT_ERROR_INVALID_ARGUMENT,
                "num_ranks is 2, allowed are 3..65536");
    CHECK_ERROR(grow_by(comm, NULL, 4), WEFT_ERROR_INVALID_ARGUMENT, "id is NULL on all ranks");
    CHECK_ERROR(grow_by(comm, context->rank == 0 ? NULL : &ids[context->rank - 1], 4),
                WEFT_ERROR_MISMATCH, "ranks disagree on id: rank 1 and rank 2");
    CHECK_ERROR(grow_by(comm, context->rank == 1 ? &none : NULL, 4), WEFT_ERROR_INVALID_ARGUMENT,
                context->rank == 1 ? "id was not made" : "rank 1: id was not made");
    if (check_gather(comm, 1))
        return 1;
    return 0;
}

/* Each time the others tell the new rank, which waits already, or comes later. */
TEST_WITH_BOARD(numbers_that_do_not_fit, 3)
{
    const int is_new = context->rank == 2;
    const weft_comm_config nodes = over_nodes(is_new ? 3 : 1);
    weft_comm_config heap = WEFT_INIT(weft_comm_config);
    weft_comm *comm, *grown;
    heap.heap_bytes = 2 << 20;
    heap.heap_max_bytes = 1 << 20;
    if (open_members(context, 2, NULL, &comm))
        return 1;
    for (int attempt = 0; attempt < 5; attempt++)
        if (publish(context, comm, 0, attempt))
            return 1;
    CHECK_ERROR(grow(context, comm, 0, 3 + context->rank % 2, NULL, &grown), WEFT_ERROR_MISMATCH,
                "ranks disagree on num_ranks: 3 on rank 0 and 4 on rank 1");
    CHECK_ERROR(grow(context, comm, 1, is_new ? 4 : 3, NULL, &grown), WEFT_ERROR_MISMATCH,
                "ranks disagree: num_ranks is");
    CHECK(strstr(weft_last_error(), "rank 2") != NULL, "%s", weft_last_error());
    CHECK_ERROR(grow(context, comm, 2, 3, &nodes, &grown), WEFT_ERROR_MISMATCH,
                "ranks disagree: num_nodes is");
    CHECK_ERROR(grow(context, comm, 4, 3, context->rank == 0 ? &heap : NULL, &grown),
                WEFT_ERROR_INVALID_ARGUMENT, "heap_bytes is 2097152");
    context->rank -= is_new;
    CHECK_ERROR(grow(context, comm, 3, 3, NULL, &grown), WEFT_ERROR_MISMATCH,
                "say that they are rank 1");
    if (comm != NULL && check_gather(comm, 1))
        return 1;
    if (comm != NULL)
        CHECK_OK(weft_comm_destroy(comm));
    return 0;
}
