/* SPDX-License-Identifier: MIT */
/* Handles used many times, filled again, and many at once. */
#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/memory.h"
#include "oracle/ep_trials.h"

static const struct ep_case usual = {.seed = 30,
                                     .num_ranks = 4,
                                     .max_tokens = 12,
                                     .num_topk = 3,
                                     .num_experts = 9,
                                     .tokens = EP_TOKENS_RAGGED,
                                     .num_blocks = 2,
                                     .num_warps = 2,
                                     .num_channels = 2,
                                     .num_staging_slots = 2,
                                     .staging_slot_bytes = 512};

enum { NUM_ROUNDS = 12 };

/* One filling, then dispatches and combines with other data, none waited for. */
static int many_uses(struct ranks_context *context)
{
    struct ep_pass passes[NUM_ROUNDS];
    const struct ep_world *world = context->argument;
    struct ep_rank self;
    if (ep_rank_open(&self, context, world->spec.num_nodes, 4 << 20) ||
        ep_rank_enter(&self, world) || ep_route(&self))
        return 1;
    for (int i = 0; i < NUM_ROUNDS; i++) {
        struct ep_dispatch_shape dispatch = ep_dispatch_shape_of(i % 2 == 0 ? 64 : 33);
        struct ep_combine_shape combine =
            ep_combine_shape_of((weft_dtype)(WEFT_BF16 + i % 3), 20 + i);
        dispatch.round = combine.round = (uint64_t)i;
        /* Some rounds dispatch twice or not at all: uses come in any order. */
        if (i % 4 != 3 && ep_dispatch_issue(&self, &dispatch, &passes[i].dispatch))
            return 1;
        if (i % 4 != 2 && ep_combine_issue(&self, &combine, &passes[i].combine))
            return 1;
    }
    CHECK_OK(weft_stream_synchronize(self.stream));
    for (int i = 0; i < NUM_ROUNDS; i++)
        if ((i % 4 != 3 && ep_dispatch_verify(&self, &passes[i].dispatch)) ||
            (i % 4 != 2 && ep_combine_verify(&self, &passes[i].combine)))
            return 1;
    return ep_rank_leave(&self) || ep_rank_close(&self);
}

TEST(one_filling_many_uses)
{
    const int32_t max_nodes = tests_max_nodes(4);
    for (int32_t num_nodes = 1; num_nodes <= max_nodes; num_nodes *= 2) {
        struct ep_case spec = usual;
        spec.num_nodes = num_nodes;
        assert_int_equal(ep_case_run(&spec, RANKS_THREADS, many_uses), 0);
        assert_int_equal(ep_case_run(&spec, RANKS_PROCESSES, many_uses), 0);
    }
}

enum { NUM_WORLDS = 10 };

static void make_worlds(struct ep_world **worlds, int32_t num_nodes, enum ep_room room)
{
    for (int i = 0; i < NUM_WORLDS; i++) {
        struct ep_case spec = usual;
        spec.seed = 2 * (uint64_t)i;
        spec.num_nodes = num_nodes;
        spec.room = room;
        if (room == EP_ROOM_GROWS)
            spec.max_tokens = 1 + 7 * i;
        spec.tokens = (enum ep_tokens)(i % EP_NUM_TOKENS);
        spec.routing = (enum ep_routing)(i % EP_NUM_ROUTINGS);
        worlds[i] = ep_world_create(&spec);
    }
}

static void destroy_worlds(struct ep_world **worlds)
{
    for (int i = 0; i < NUM_WORLDS; i++)
        ep_world_destroy(worlds[i]);
}

static int fill_again(struct ranks_context *context)
{
    struct ep_world **worlds = context->argument;
    const struct ep_dispatch_shape dispatch = ep_dispatch_shape_of(40);
    const struct ep_combine_shape combine = ep_combine_shape_of(WEFT_FP16, 21);
    struct ep_rank self;
    if (ep_rank_open(&self, context, worlds[0]->spec.num_nodes, 1 << 20) ||
        ep_rank_enter(&self, worlds[0]))
        return 1;
    for (int i = 0; i < 3 * NUM_WORLDS; i++) {
        self.world = worlds[i * 7 % NUM_WORLDS];
        if (ep_check_layout(&self) || ep_check_notify(&self) ||
            ep_check_dispatch(&self, &dispatch) || ep_check_combine(&self, &combine))
            return 1;
    }
    return ep_rank_leave(&self) || ep_rank_close(&self);
}

/* The same, but the host runs ahead: each filling is enqueued behind uses of the one before. */
static int fill_again_ahead(struct ranks_context *context)
{
    struct ep_world **worlds = context->argument;
    struct ep_pass passes[NUM_WORLDS];
    struct ep_rank self;
    if (ep_rank_open(&self, context, worlds[0]->spec.num_nodes, 2 << 20) ||
        ep_rank_enter(&self, worlds[0]))
        return 1;
    for (int i = 0; i < NUM_WORLDS; i++) {
        self.world = worlds[i];
        if (ep_route(&self) || ep_pass_issue(&self, ep_dispatch_shape_of(40),
                                             ep_combine_shape_of(WEFT_FP16, 21), 0, &passes[i]))
            return 1;
    }
    CHECK_OK(weft_stream_synchronize(self.stream));
    for (int i = 0; i < NUM_WORLDS; i++) {
        self.world = worlds[i];
        if (ep_pass_verify(&self, &passes[i]))
            return 1;
    }
    return ep_rank_leave(&self) || ep_rank_close(&self);
}

static void run_filled_again(enum ep_room room)
{
    const int32_t max_nodes = tests_max_nodes(4);
    for (int32_t num_nodes = 1; num_nodes <= max_nodes; num_nodes *= 2) {
        struct ep_world *worlds[NUM_WORLDS];
        make_worlds(worlds, num_nodes, room);
        assert_int_equal(ranks_run(RANKS_THREADS, 4, fill_again, &worlds), 0);
        assert_int_equal(ranks_run(RANKS_THREADS, 4, fill_again_ahead, &worlds), 0);
        assert_int_equal(ranks_run(RANKS_PROCESSES, 4, fill_again_ahead, &worlds), 0);
        destroy_worlds(worlds);
    }
}

TEST_CALL(handles_filled_again, run_filled_again(EP_ROOM_GIVEN))
TEST_CALL(handles_that_grow, run_filled_again(EP_ROOM_GROWS))

/* A handle per world, all filled before the first is used, and used in another order. */
struct batch {
    struct ep_rank rank; /* shares everything but world and handle */
    struct ep_pass pass;
};

static int fill_all(struct ep_rank *self, struct ep_world **worlds, struct batch *batches)
{
    for (int i = 0; i < NUM_WORLDS; i++) {
        const weft_ep_handle_config config = ep_rank_handle_config(worlds[i]);
        batches[i].rank = *self;
        batches[i].rank.world = worlds[i];
        CHECK_OK(weft_ep_handle_create(self->ep, &config, &batches[i].rank.handle));
        if (ep_route(&batches[i].rank))
            return 1;
    }
    return 0;
}

static int use_all(struct ep_rank *self, struct batch *batches)
{
    const struct ep_dispatch_shape dispatch = ep_dispatch_shape_of(24);
    const struct ep_combine_shape combine = ep_combine_shape_of(WEFT_BF16, 18);
    for (int i = 0; i < NUM_WORLDS; i++) {
        struct batch *first = &batches[i * 3 % NUM_WORLDS];
        struct batch *second = &batches[NUM_WORLDS - 1 - i];
        if (ep_dispatch_issue(&first->rank, &dispatch, &first->pass.dispatch) ||
            ep_combine_issue(&second->rank, &combine, &second->pass.combine))
            return 1;
    }
    CHECK_OK(weft_stream_synchronize(self->stream));
    for (int i = 0; i < NUM_WORLDS; i++)
        if (ep_pass_verify(&batches[i].rank, &batches[i].pass))
            return 1;
    return 0;
}

static int many_at_once(struct ranks_context *context)
{
    struct ep_world **worlds = context->argument;
    struct batch *batches = tests_alloc(sizeof *batches * NUM_WORLDS);
    struct ep_rank self;
    if (ep_rank_open(&self, context, worlds[0]->spec.num_nodes, 4 << 20) ||
        ep_rank_enter(&self, worlds[0]) || fill_all(&self, worlds, batches) ||
        use_all(&self, batches) || use_all(&self, batches))
        return 1;
    for (int i = 0; i < NUM_WORLDS; i++)
        CHECK_OK(weft_ep_handle_destroy(batches[i].rank.handle));
    tests_free(batches);
    return ep_rank_leave(&self) || ep_rank_close(&self);
}

TEST(many_handles_at_once)
{
    const int32_t max_nodes = tests_max_nodes(4);
    for (int32_t num_nodes = 1; num_nodes <= max_nodes; num_nodes *= 2) {
        struct ep_world *worlds[NUM_WORLDS];
        make_worlds(worlds, num_nodes, EP_ROOM_GIVEN);
        assert_int_equal(ranks_run(RANKS_THREADS, 4, many_at_once, &worlds), 0);
        assert_int_equal(ranks_run(RANKS_PROCESSES, 4, many_at_once, &worlds), 0);
        destroy_worlds(worlds);
    }
}
