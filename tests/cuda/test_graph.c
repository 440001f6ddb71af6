/* SPDX-License-Identifier: MIT */
/* Operations captured into CUDA graphs: each replay delivers, for what its inputs then are, the
 * bytes of machine cpu; what waits on the host is refused during a capture, which it does not
 * harm. */
#include "cuda/driver.h"
#include "cuda/layer.h"
#include "harness/cmocka.h"

enum { MAX_PLAYERS = 2, DIRECT_EVERY = 10, MAX_REPLAYS = 2 };

struct plan {
    int32_t num_players;
    int32_t num_rounds;
    CUstreamCaptureMode mode;
};

/* A layer in a graph, and the same on machine cpu. */
struct player {
    struct layer gpu, cpu;
    CUstream native;
    weft_stream *wrapped;         /* native */
    weft_stream *on_gpu, *on_cpu; /* weft's own */
    CUgraphExec graph;
};

struct stage {
    struct ranks_context *context;
    weft_comm *gpu, *cpu;
    struct player players[MAX_PLAYERS];
};

/* ---------------------------------------------------------------- capture */

static int check_refusals(struct player *player)
{
    weft_ep_counts counts = WEFT_INIT(weft_ep_counts);
    CHECK_ERROR(weft_stream_synchronize(player->wrapped), WEFT_ERROR_INVALID_ARGUMENT, "capture");
    CHECK_ERROR(weft_ep_wait_counts(player->gpu.handle, &counts), WEFT_ERROR_INVALID_ARGUMENT,
                "captured");
    return 0;
}

static int capture(struct player *player, CUstreamCaptureMode mode)
{
    CUgraph graph = NULL;
    DRIVER_CHECK(driver.stream_begin_capture(player->native, mode));
    if (layer_route(&player->gpu, player->wrapped) || check_refusals(player) ||
        layer_move(&player->gpu, player->wrapped))
        return 1;
    DRIVER_CHECK(driver.stream_end_capture(player->native, &graph));
    CHECK(graph != NULL, "the capture gave no graph");
    DRIVER_CHECK(driver.graph_instantiate(&player->graph, graph, 0));
    DRIVER_CHECK(driver.graph_destroy(graph));
    return 0;
}

/* ---------------------------------------------------------------- life */

/* Blocks of several layers, and of several ranks of a GPU, must fit at once. */
static struct layer_shape shape_of(int32_t player_idx)
{
    return (struct layer_shape){.max_tokens = 32 + 8 * player_idx,
                                .num_topk = 3 + player_idx,
                                .num_experts = 16,
                                .capacity = 56,
                                .hidden = 136 - 3 * player_idx, /* with and without vectors */
                                .num_blocks = 3,
                                .num_warps = 4};
}

static int open_player(struct stage *stage, struct player *player, int32_t player_idx)
{
    struct ranks_context *context = stage->context;
    const struct layer_shape shape = shape_of(player_idx);
    DRIVER_CHECK(driver.stream_create(&player->native, CU_STREAM_NON_BLOCKING));
    CHECK_OK(weft_stream_wrap(stage->gpu, player->native, &player->wrapped));
    CHECK_OK(weft_stream_create(stage->gpu, &player->on_gpu));
    CHECK_OK(weft_stream_create(stage->cpu, &player->on_cpu));
    return layer_open(&player->gpu, context, stage->gpu, &shape) ||
           layer_open(&player->cpu, context, stage->cpu, &shape);
}

static int close_player(struct player *player)
{
    DRIVER_CHECK(driver.graph_exec_destroy(player->graph));
    if (layer_close(&player->gpu) || layer_close(&player->cpu))
        return 1;
    CHECK_OK(weft_stream_destroy(player->wrapped));
    CHECK_OK(weft_stream_destroy(player->on_gpu));
    CHECK_OK(weft_stream_destroy(player->on_cpu));
    DRIVER_CHECK(driver.stream_destroy(player->native));
    return 0;
}

static int open_stage(struct stage *stage, struct ranks_context *context)
{
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    stage->context = context;
    if (driver_use_device(context->rank))
        return 1;
    config.machine = WEFT_MACHINE_CUDA;
    CHECK_OK(ranks_comm_create(context, &config, &stage->gpu));
    weft_unique_id *second = context->shared;
    if (context->rank == 0)
        CHECK_OK(weft_unique_id_create(second));
    ranks_barrier(context);
    config.machine = WEFT_MACHINE_CPU;
    CHECK_OK(weft_comm_create(second, context->rank, context->num_ranks, &config, &stage->cpu));
    return 0;
}

static int close_stage(struct stage *stage)
{
    CHECK_OK(weft_comm_destroy(stage->gpu));
    CHECK_OK(weft_comm_destroy(stage->cpu));
    ranks_barrier(stage->context); /* rank 0's process serves the second */
    return driver_leave_device(stage->context->rank);
}

/* ---------------------------------------------------------------- rounds */

static int replay(struct player *player, uint64_t round)
{
    if (layer_fill(&player->gpu, round))
        return 1;
    /* One behind the other: the host is not needed in between. */
    for (uint64_t i = 0; i < 1 + round % MAX_REPLAYS; i++)
        DRIVER_CHECK(driver.graph_launch(player->graph, player->native));
    return 0;
}

static int finish(struct player *player, uint64_t round)
{
    if (layer_fill(&player->cpu, round) || layer_issue(&player->cpu, player->on_cpu))
        return 1;
    CHECK_OK(weft_stream_synchronize(player->on_cpu));
    CHECK_OK(weft_stream_synchronize(player->wrapped));
    CHECK_OK(weft_stream_synchronize(player->on_gpu));
    CHECK_OK(weft_comm_status(player->gpu.comm, NULL));
    return layer_compare(&player->gpu, &player->cpu);
}

/* The same operations without the graph, on the wrapped stream or on one of weft's. */
static int issue_directly(struct player *player, uint64_t round)
{
    const int is_even = round / DIRECT_EVERY % 2 == 0;
    weft_ep_counts counts = WEFT_INIT(weft_ep_counts);
    int32_t num_rows = -1;
    weft_ep_device_counts of_cpu = WEFT_INIT(weft_ep_device_counts);
    if (layer_fill(&player->gpu, round) ||
        layer_issue(&player->gpu, is_even ? player->wrapped : player->on_gpu))
        return 1;
    CHECK_OK(weft_ep_wait_counts(player->gpu.handle, &counts));
    if (finish(player, round))
        return 1;
    CHECK_OK(weft_ep_query_device_counts(player->cpu.handle, &of_cpu));
    CHECK_OK(weft_memory_copy(player->cpu.comm, &num_rows, of_cpu.num_recv_tokens, 4));
    CHECK(counts.num_recv_tokens == num_rows, "%d rows, on machine cpu %d", counts.num_recv_tokens,
          num_rows);
    return 0;
}

/* Odd and even ranks start the layers in different orders: only that within a layer is promised. */
static int play_round(struct stage *stage, int32_t num_players, uint64_t round)
{
    for (int32_t i = 0; i < num_players; i++) {
        const int32_t player_idx = stage->context->rank % 2 == 0 ? i : num_players - 1 - i;
        if (replay(&stage->players[player_idx], round))
            return 1;
    }
    for (int32_t i = 0; i < num_players; i++)
        if (finish(&stage->players[i], round))
            return 1;
    for (int32_t i = 0; round % DIRECT_EVERY == 0 && i < num_players; i++)
        if (issue_directly(&stage->players[i], round + 1000))
            return 1;
    return 0;
}

static int play(struct ranks_context *context)
{
    const struct plan *plan = context->argument;
    struct stage stage = {.context = context};
    if (open_stage(&stage, context))
        return 1;
    for (int32_t i = 0; i < plan->num_players; i++)
        if (open_player(&stage, &stage.players[i], i) || capture(&stage.players[i], plan->mode))
            return 1;
    for (int32_t round = 0; round < plan->num_rounds; round++)
        if (play_round(&stage, plan->num_players, (uint64_t)round))
            return 1;
    for (int32_t i = 0; i < plan->num_players; i++)
        if (close_player(&stage.players[i]))
            return 1;
    return close_stage(&stage);
}

static void run(int32_t num_ranks, struct plan plan)
{
    const struct ranks_options options = {.mode = RANKS_PROCESSES,
                                          .num_ranks = num_ranks,
                                          RANKS_ARGUMENT(&plan),
                                          .shared_bytes = sizeof(weft_unique_id)};
    assert_int_equal(ranks_run_with(&options, play), 0);
}

TEST_CALL(replays_of_2_ranks,
          run(2, (struct plan){
                     .num_players = 1, .num_rounds = 200, .mode = CU_STREAM_CAPTURE_MODE_GLOBAL}))
TEST_CALL(replays_of_4_ranks,
          run(4, (struct plan){
                     .num_players = 1, .num_rounds = 200, .mode = CU_STREAM_CAPTURE_MODE_RELAXED}))

TEST(graphs_of_several_eps_at_once)
{
    for (int32_t num_ranks = 2; num_ranks <= 4; num_ranks += 2)
        run(num_ranks, (struct plan){.num_players = MAX_PLAYERS,
                                     .num_rounds = 50,
                                     .mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL});
}
