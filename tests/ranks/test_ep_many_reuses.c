/* SPDX-License-Identifier: MIT */
/* Thousands of dispatches and combines of one small handle, back to back, into the same buffers.
 * The stream itself, where it can, changes the input before each dispatch and looks at the output
 * after it, so that a peer that runs ahead and writes too early, or reads too late, is seen. */
#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/memory.h"
#include "oracle/ep_trials.h"

enum { HIDDEN = 4, NUM_BETWEEN_SYNCHRONISATIONS = 100 };

struct chain {
    struct ep_rank rank;
    int32_t num_tokens, num_rows;
    int32_t round;
    int64_t num_wrong;
    struct ep_array src; /* float [num_tokens][HIDDEN] */
    struct ep_array dst; /* float [num_rows][HIDDEN], in the heap */
    struct ep_array out; /* float [num_tokens][HIDDEN] */
    int32_t *num_copies; /* [num_tokens] how many ranks get the token */
    weft_plane plane;
};

static const struct ep_world *world_of(const struct chain *chain)
{
    return chain->rank.world;
}

/* Small integers: sums of them are exact. */
static float value_of(const struct chain *chain, int64_t global_token)
{
    return (float)(chain->round + 7 * global_token);
}

static void write_src(void *argument)
{
    struct chain *chain = argument;
    const int64_t first = world_of(chain)->problem.first_tokens[chain->rank.context->rank];
    float *src = chain->src.host;
    chain->round++;
    for (int32_t i = 0; i < chain->num_tokens * HIDDEN; i++)
        src[i] = value_of(chain, first + i / HIDDEN);
    chain->num_wrong +=
        ep_rank_copy(&chain->rank, chain->src.data, src, chain->src.bytes) != WEFT_OK;
}

/* The host's copy of what the operation has written. */
static const float *read_output(struct chain *chain, const struct ep_array *output)
{
    chain->num_wrong +=
        ep_rank_copy(&chain->rank, output->host, output->data, output->bytes) != WEFT_OK;
    return output->host;
}

static void check_dst(void *argument)
{
    struct chain *chain = argument;
    const struct ep_token *rows = world_of(chain)->received[chain->rank.context->rank].rows;
    const float *dst = read_output(chain, &chain->dst);
    for (int32_t i = 0; i < chain->num_rows * HIDDEN; i++) {
        const int64_t token = ep_oracle_number(&world_of(chain)->problem, rows[i / HIDDEN]);
        chain->num_wrong += dst[i] != value_of(chain, token);
    }
}

static void check_out(void *argument)
{
    struct chain *chain = argument;
    const int64_t first = world_of(chain)->problem.first_tokens[chain->rank.context->rank];
    const float *out = read_output(chain, &chain->out);
    for (int32_t i = 0; i < chain->num_tokens * HIDDEN; i++)
        chain->num_wrong +=
            out[i] != (float)chain->num_copies[i / HIDDEN] * value_of(chain, first + i / HIDDEN);
}

static int chain_open(struct chain *chain, struct ranks_context *context)
{
    const struct ep_world *world = context->argument;
    if (ep_rank_open(&chain->rank, context, world->spec.num_nodes, 1 << 20) ||
        ep_rank_enter(&chain->rank, world) || ep_route(&chain->rank))
        return 1;
    chain->num_tokens = ep_oracle_num_tokens(&world->problem, context->rank);
    chain->num_rows = world->received[context->rank].num_rows;
    const size_t row_bytes = HIDDEN * sizeof(float);
    const uint64_t own_bytes = (uint64_t)chain->num_tokens * row_bytes;
    if (ep_array_alloc(&chain->rank, &chain->dst, EP_HEAP, (uint64_t)chain->num_rows * row_bytes,
                       0) ||
        ep_array_alloc(&chain->rank, &chain->src, EP_INPUT, own_bytes, 0) ||
        ep_array_alloc(&chain->rank, &chain->out, EP_OWN, own_bytes, 0))
        return 1;
    chain->num_copies = tests_alloc((size_t)chain->num_tokens * sizeof(int32_t));
    for (int32_t token = 0; token < chain->num_tokens; token++)
        for (int32_t rank = 0; rank < context->num_ranks; rank++)
            chain->num_copies[token] +=
                ep_oracle_goes_to(&world->problem, (struct ep_token){context->rank, token}, rank);
    chain->plane = (weft_plane){.size = sizeof(weft_plane),
                                .src = chain->src.data,
                                .dst = chain->dst.data,
                                .row_bytes = row_bytes};
    return 0;
}

static int chain_step(struct chain *chain)
{
    struct ep_rank *rank = &chain->rank;
    if (ep_rank_call(rank, write_src, chain))
        return 1;
    CHECK_OK(weft_ep_dispatch(rank->handle,
                              WEFT_ARGS(weft_ep_dispatch_args, .num_planes = 1,
                                        .planes = &chain->plane, .capacity = chain->num_rows),
                              rank->stream));
    if (ep_rank_call(rank, check_dst, chain))
        return 1;
    CHECK_OK(weft_ep_combine(rank->handle,
                             WEFT_ARGS(weft_ep_combine_args, .dtype = WEFT_FP32, .hidden = HIDDEN,
                                       .capacity = chain->num_rows, .x = chain->dst.data,
                                       .out = chain->out.data),
                             rank->stream));
    return ep_rank_call(rank, check_out, chain);
}

/* Ranks of several processes take turns on a GPU, by the millisecond; between nodes threads of the
 * network wake each other. */
static int32_t num_steps_of(const struct ep_world *world)
{
    if (tests_on_cuda())
        return 500;
    return world->spec.num_nodes > 1 ? tests_grid_size(2000, 200) : tests_grid_size(10000, 500);
}

static int run_chain(struct ranks_context *context)
{
    const int32_t num_steps = num_steps_of(context->argument);
    struct chain chain = {0};
    if (chain_open(&chain, context))
        return 1;
    for (int32_t step = 0; step < num_steps; step++) {
        if (chain_step(&chain))
            return 1;
        if (step % NUM_BETWEEN_SYNCHRONISATIONS == 0)
            CHECK_OK(weft_stream_synchronize(chain.rank.stream));
    }
    CHECK_OK(weft_stream_synchronize(chain.rank.stream));
    CHECK(chain.round == num_steps, "%d steps ran", chain.round);
    CHECK(chain.num_wrong == 0, "%lld wrong values", (long long)chain.num_wrong);
    tests_free(chain.num_copies);
    return ep_array_check_and_free(&chain.rank, &chain.dst, "dst") ||
           ep_array_free(&chain.rank, &chain.src) ||
           ep_array_check_and_free(&chain.rank, &chain.out, "out") || ep_rank_leave(&chain.rank) ||
           ep_rank_close(&chain.rank);
}

static void run_chains(enum ranks_mode mode, int32_t num_ranks, int32_t num_nodes)
{
    const struct ep_case spec = {.seed = 51,
                                 .num_ranks = num_ranks,
                                 .num_nodes = num_nodes,
                                 .max_tokens = 3,
                                 .num_topk = 2,
                                 .num_experts = 5,
                                 .num_warps = 2,
                                 .num_staging_slots = 1,
                                 .staging_slot_bytes = 160};
    assert_int_equal(ep_case_run(&spec, mode, run_chain), 0);
}

TEST_CALL(in_threads, run_chains(RANKS_THREADS, 3, 1))
TEST_CALL(in_processes, run_chains(RANKS_PROCESSES, 2, 1))

/* Every slot is used in every operation, and by other ones in turn. */
TEST_OVER(over_nodes, "auto")
{
    run_chains(RANKS_THREADS, 3, 3);
    run_chains(RANKS_PROCESSES, 4, 2);
}
