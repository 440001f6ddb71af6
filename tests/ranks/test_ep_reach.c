/* SPDX-License-Identifier: MIT */
/* Outputs of dispatch and inputs of combine in any memory: reached where they are, or staged, each
 * rank and array for itself, with the same results. */
#include "harness/cmocka.h"
#include "harness/machine.h"
#include "oracle/ep_trials.h"
#include "workload/ep_oracle.h"

static const struct ep_case usual = {.seed = 31,
                                     .max_tokens = 17,
                                     .num_topk = 3,
                                     .num_experts = 10,
                                     .tokens = EP_TOKENS_RAGGED,
                                     .num_blocks = 2,
                                     .num_warps = 2};

/* Rows of several planes, of any size and alignment, with all that goes with them. */
static struct ep_dispatch_shape planes_of(uint64_t seed)
{
    struct ep_dispatch_shape shape = ep_dispatch_shape_random(seed);
    if (shape.num_planes == 0)
        shape.planes[shape.num_planes++] = (struct ep_plane_shape){.row_bytes = 48};
    shape.topk = EP_TOPK_IDS_AND_WEIGHTS;
    shape.src_token = EP_WITH;
    return shape;
}

static void every_reach(enum ranks_mode mode, int32_t num_ranks, int32_t num_nodes)
{
    struct ep_trials trials = ep_trials_create(num_ranks, num_nodes);
    for (int i = 0; i < EP_NUM_REACHES * EP_NUM_CAPACITIES; i++) {
        struct ep_case spec = usual;
        spec.seed += (uint64_t)i;
        spec.reach = (enum ep_reach)(i % EP_NUM_REACHES);
        spec.staging_bytes = num_nodes > 1 || i % 4 == 1 ? EP_STAGING_OF_ALL : EP_STAGING_OF_FEW;
        spec.tokens = i % 4 == 0 ? EP_TOKENS_SOME_EMPTY : EP_TOKENS_RAGGED;
        struct ep_trial *trial = ep_trials_add(&trials, &spec);
        trial->dispatch = planes_of(spec.seed);
        trial->combine = ep_combine_shape_random(spec.seed);
        trial->dispatch.capacity = (enum ep_capacity)(i / EP_NUM_REACHES);
        trial->combine.capacity = trial->dispatch.capacity;
        trial->world->spec.wire = wire_dtypes[i / EP_NUM_REACHES * 2 % NUM_WIRES];
    }
    assert_int_equal(ep_trials_run(&trials, mode), 0);
}

TEST(in_threads)
{
    for (int32_t num_ranks = 1; num_ranks <= 5; num_ranks += tests_rounds(2, 4))
        every_reach(RANKS_THREADS, num_ranks, 0);
}

TEST_CALL(in_processes, every_reach(RANKS_PROCESSES, 3, 0))

TEST_OVER(over_nodes, "auto")
{
    every_reach(RANKS_THREADS, 4, 2);
}

/* ---------------------------------------------------------------- rounds */

enum { ROW_BYTES = 48, LOST_BYTES = 176 };

/* What weft.h says that a dispatch of one such plane takes at least. */
static uint64_t least_bytes(const struct ep_case *spec, int32_t num_ranks)
{
    return LOST_BYTES + (uint64_t)num_ranks * (ROW_BYTES + 12 * (uint64_t)spec->num_topk + 4);
}

/* In rounds of one token and more. */
static void in_rounds(enum ranks_mode mode, int32_t num_ranks)
{
    struct ep_trials trials = ep_trials_create(num_ranks, 0);
    for (int i = 0; i < EP_NUM_TOKENS * 2; i++) {
        struct ep_case spec = usual;
        spec.seed += (uint64_t)i;
        spec.tokens = (enum ep_tokens)(i % EP_NUM_TOKENS);
        spec.reach = i % 2 == 0 ? EP_REACH_DIFFERS : EP_REACH_OWN;
        spec.grid = i % 3 == 0 ? EP_GRID_DIFFERS_BY_RANK : EP_GRID_AS_GIVEN;
        spec.staging_bytes = least_bytes(&spec, num_ranks) + (uint64_t)(100 * i);
        struct ep_trial *trial = ep_trials_add(&trials, &spec);
        trial->dispatch = ep_dispatch_shape_of(ROW_BYTES);
        trial->dispatch.capacity = (enum ep_capacity)(i % EP_NUM_CAPACITIES);
        trial->combine.capacity = trial->dispatch.capacity;
    }
    assert_int_equal(ep_trials_run(&trials, mode), 0);
}

TEST(rounds_in_threads)
{
    for (int32_t num_ranks = 1; num_ranks <= 7; num_ranks += tests_rounds(2, 3))
        in_rounds(RANKS_THREADS, num_ranks);
}

TEST_CALL(rounds_in_processes, in_rounds(RANKS_PROCESSES, 3))

/* So many that a block does not keep their messages. */
TEST(rounds_of_many_ranks)
{
    if (!tests_on_cuda())
        in_rounds(RANKS_THREADS, 35);
}

struct refusal {
    struct ep_world *world;
    const char *names;
};

/* The rank that is refused has called nothing: nor do the others. */
static int run_refused(struct ranks_context *context)
{
    const struct refusal *refusal = context->argument;
    const int32_t num_rows = refusal->world->received[context->rank].num_rows;
    struct ep_rank self;
    struct ep_array rows;
    weft_plane plane = WEFT_INIT(weft_plane);
    if (ep_rank_open(&self, context, refusal->world->spec.num_nodes, 1 << 20) ||
        ep_rank_enter(&self, refusal->world) || ep_route(&self) ||
        ep_array_alloc(&self, &rows, EP_OWN, (uint64_t)num_rows * ROW_BYTES, 0))
        return 1;
    plane.dst = rows.data;
    plane.row_bytes = ROW_BYTES;
    if (context->rank == 0) /* which has no tokens to send */
        CHECK_ERROR(weft_ep_dispatch(self.handle,
                                     WEFT_ARGS(weft_ep_dispatch_args, .planes = &plane,
                                               .num_planes = 1, .capacity = num_rows),
                                     self.stream),
                    WEFT_ERROR_UNSUPPORTED, refusal->names);
    return ep_array_free(&self, &rows) || ep_rank_leave(&self) || ep_rank_close(&self);
}

static void refused(int32_t num_nodes, uint64_t staging_bytes, const char *names)
{
    struct ep_case spec = usual;
    spec.num_ranks = 2;
    spec.num_nodes = num_nodes;
    spec.tokens = EP_TOKENS_ONLY_LAST;
    spec.placement = EP_PLACEMENT_DEFAULT;
    spec.staging_bytes = staging_bytes;
    struct refusal refusal = {ep_world_create(&spec), names};
    assert_int_equal(ranks_run(RANKS_THREADS, spec.num_ranks, run_refused, &refusal), 0);
    ep_world_destroy(refusal.world);
}

TEST(what_cannot_be_staged_is_refused)
{
    refused(0, 0, "staging_bytes of weft_ep_config is 0");
    refused(0, least_bytes(&usual, 2) - 1, "staging_bytes of weft_ep_config is");
    if (tests_network_is_there("auto"))
        refused(2, 60, "between nodes");
}

/* ---------------------------------------------------------------- registered */

/* Ranks of one process on cpu reach what is registered: without a staging block that shows. */
static int run_registered(struct ranks_context *context)
{
    const struct ep_trial *trial = context->argument;
    struct ep_rank self;
    return ep_rank_open(&self, context, 0, 1 << 20) || ep_memory_register(&self, 4 << 20) ||
           ep_check_world(&self, trial->world, &trial->dispatch, &trial->combine) ||
           ep_rank_close(&self);
}

static void registered(enum ranks_mode mode, int32_t num_ranks)
{
    struct ep_case spec = usual;
    spec.num_ranks = num_ranks;
    spec.reach = EP_REACH_DIFFERS;
    spec.staging_bytes = mode == RANKS_THREADS && !tests_on_cuda() ? 0 : EP_STAGING_OF_ALL;
    struct ep_trial trial = {ep_world_create(&spec), planes_of(spec.seed),
                             ep_combine_shape_random(spec.seed)};
    trial.combine.weights = EP_WITH;
    assert_int_equal(ranks_run(mode, num_ranks, run_registered, &trial), 0);
    ep_world_destroy(trial.world);
}

TEST(registered_in_threads)
{
    if (!tests_have_one_mapping())
        skip();
    registered(RANKS_THREADS, 4);
}

TEST_CALL(registered_in_processes, registered(RANKS_PROCESSES, 2))
