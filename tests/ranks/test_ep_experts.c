/* SPDX-License-Identifier: MIT */
/* Handles with fewer experts than their weft_ep, which has placed its own in another way. */
#include "harness/cmocka.h"
#include "harness/machine.h"
#include "oracle/ep_trials.h"

static void run_numbers(struct ep_trials *trials)
{
    for (int32_t num_experts = 1; num_experts < 20; num_experts += 3) {
        const struct ep_case spec = {.seed = (uint64_t)num_experts,
                                     .max_tokens = 17,
                                     .num_topk = 3,
                                     .num_experts = num_experts,
                                     .num_spare_experts = 1 + num_experts % 4,
                                     .expert_alignment = 2,
                                     .tokens = EP_TOKENS_RAGGED,
                                     .routing = EP_ROUTING_HOLES};
        ep_trials_add(trials, &spec);
    }
}

TEST_CALL(on_one_node, RUN_TRIALS(run_numbers, IN_THREADS(1), IN_THREADS(5), IN_PROCESSES(4)))

TEST_OVER(over_nodes, "auto")
{
    RUN_TRIALS(run_numbers, IN_THREADS(4, .num_nodes = 2), IN_PROCESSES(6, .num_nodes = 2));
}

struct layers {
    struct ep_world *worlds[2];
};

/* One weft_ep serves both layers in turn. */
static int alternate(struct ranks_context *context)
{
    const struct layers *layers = context->argument;
    struct ep_world *const *worlds = layers->worlds;
    const struct ep_combine_shape combine = ep_combine_shape_of(WEFT_FP32, 5);
    struct ep_dispatch_shape dispatch = ep_dispatch_shape_of(48);
    struct ep_rank self;
    weft_ep_handle *handles[2];
    if (ep_rank_open(&self, context, 1, 1 << 20) || ep_rank_enter(&self, worlds[0]))
        return 1;
    handles[0] = self.handle;
    const weft_ep_handle_config config = ep_rank_handle_config(worlds[1]);
    CHECK_OK(weft_ep_handle_create(self.ep, &config, &handles[1]));
    for (uint64_t round = 0; round < 6; round++) {
        self.handle = handles[round % 2];
        self.world = worlds[round % 2];
        dispatch.round = round;
        if (ep_check_layout(&self) || ep_check_notify(&self) ||
            ep_check_dispatch(&self, &dispatch) || ep_check_combine(&self, &combine))
            return 1;
    }
    self.handle = handles[0];
    CHECK_OK(weft_ep_handle_destroy(handles[1]));
    return ep_rank_leave(&self) || ep_rank_close(&self);
}

TEST(layers_take_turns)
{
    struct ep_case spec = {.seed = 8,
                           .num_ranks = 4,
                           .max_tokens = 9,
                           .num_topk = 2,
                           .num_experts = 13,
                           .num_spare_experts = 3};
    struct layers layers = {{ep_world_create(&spec)}};
    spec.num_experts = 6;
    spec.num_spare_experts = 10;
    layers.worlds[1] = ep_world_create(&spec);
    assert_int_equal(ranks_run(RANKS_THREADS, 4, alternate, &layers), 0);
    ep_world_destroy(layers.worlds[0]);
    ep_world_destroy(layers.worlds[1]);
}
