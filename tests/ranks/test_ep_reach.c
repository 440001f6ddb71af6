/* SPDX-License-Identifier: MIT */
/* Outputs of dispatch and inputs of combine in any memory: reached where they are, or staged, each
 * rank and array for itself, with the same results. */
#include "harness/cmocka.h"
#include "harness/machine.h"
#include "oracle/ep_trials.h"

static const struct ep_case usual = {.index_type = WEFT_INT32,
                                     .seed = 31,
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
        spec.tokens = i % 4 == 0 ? EP_TOKENS_SOME_EMPTY : EP_TOKENS_RAGGED;
        struct ep_trial *trial = ep_trials_add(&trials, &spec);
        trial->dispatch = planes_of(spec.seed);
        trial->combine = ep_combine_shape_random(spec.seed);
        trial->dispatch.capacity = (enum ep_capacity)(i / EP_NUM_REACHES);
        trial->combine.capacity = trial->dispatch.capacity;
    }
    assert_int_equal(ep_trials_run(&trials, mode), 0);
}

TEST(in_threads)
{
    for (int32_t num_ranks = 1; num_ranks <= 5; num_ranks += tests_rounds(2, 4))
        every_reach(RANKS_THREADS, num_ranks, 0);
}

TEST(in_processes)
{
    every_reach(RANKS_PROCESSES, 3, 0);
}

TEST(over_nodes)
{
    if (!tests_network_is_there("auto"))
        skip();
    every_reach(RANKS_THREADS, 4, 2);
}

/* ---------------------------------------------------------------- registered */

/* Ranks of one process on cpu reach what is registered: a staging block of a byte shows it. */
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
    spec.staging_bytes = mode == RANKS_THREADS && !tests_on_cuda() ? 1 : 0;
    struct ep_trial trial = {ep_world_create(&spec), planes_of(spec.seed),
                             ep_combine_shape_random(spec.seed)};
    trial.combine.weights = EP_WITH;
    assert_int_equal(ranks_run(mode, num_ranks, run_registered, &trial), 0);
    ep_world_destroy(trial.world);
}

TEST(registered_in_threads)
{
    registered(RANKS_THREADS, 4);
}

TEST(registered_in_processes)
{
    registered(RANKS_PROCESSES, 2);
}
