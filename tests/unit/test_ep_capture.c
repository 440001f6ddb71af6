/* SPDX-License-Identifier: MIT */
/* Dispatches and combines between nodes that run after another notify than the one they were
 * recorded after, on a machine that records launches as CUDA does and is the host's else. */
#include "harness/cmocka.h"
#include "harness/ranks.h"
#include "recording.h"

enum { NUM_RANKS = 4, NUM_NODES = 2, NUM_TOKENS = 12, NUM_TOPK = 2, HIDDEN = 4 };
enum {
    CAPACITY = NUM_RANKS * NUM_TOKENS,
    ROW_BYTES = HIDDEN * sizeof(float),
    NUM_ROUTINGS = 5,
    NUM_BLOCKS = 4
};

/* ---------------------------------------------------------------- a rank */

struct layer {
    struct ranks_context *context;
    weft_comm *comm;
    weft_stream *stream;
    weft_ep *ep;
    weft_ep_handle *handle;
    struct graph graph;
    int32_t topk_idx[NUM_TOKENS * NUM_TOPK];
    float src[NUM_TOKENS * HIDDEN], out[NUM_TOKENS * HIDDEN];
    float *x; /* [CAPACITY][HIDDEN], in the heap */
};

static int open_layer(struct layer *layer, struct ranks_context *context)
{
    weft_ep_config ep = WEFT_INIT(weft_ep_config);
    weft_ep_handle_config handle = WEFT_INIT(weft_ep_handle_config);
    void *memory;
    ep.num_experts = NUM_RANKS;
    ep.num_blocks = NUM_BLOCKS;
    ep.num_warps = 1;
    handle.max_tokens = NUM_TOKENS;
    handle.num_topk = NUM_TOPK;
    memset(layer, 0, sizeof *layer);
    layer->context = context;
    layer->comm = ranks_comm(context, WEFT_ARGS(weft_comm_config, .num_nodes = NUM_NODES));
    use_recording_machine(layer->comm);
    layer->stream = ranks_stream(context);
    layer->stream->machine = &machine;
    CHECK_OK(weft_ep_create(layer->comm, &ep, &layer->ep));
    CHECK_OK(weft_ep_handle_create(layer->ep, &handle, &layer->handle));
    CHECK_OK(weft_heap_alloc(layer->comm, CAPACITY * ROW_BYTES, &memory));
    layer->x = memory;
    return 0;
}

static int close_layer(struct layer *layer)
{
    forget(&layer->graph);
    return 0;
}

/* ---------------------------------------------------------------- what it should give */

/* The experts, one on each rank, that a token chooses in a routing. */
static int32_t choice(int routing, int32_t source, int32_t token, int32_t k)
{
    return (source + token * (routing + 1) + k * (routing + token) + routing) % NUM_RANKS;
}

static int goes_to(int routing, int32_t source, int32_t token, int32_t rank)
{
    return choice(routing, source, token, 0) == rank || choice(routing, source, token, 1) == rank;
}

/* Where the token's row is at a rank that has it: rows are in (source, token) order. */
static int32_t row_of(int routing, int32_t source, int32_t token, int32_t rank)
{
    int32_t row = 0;
    for (int32_t s = 0; s <= source; s++)
        for (int32_t t = 0; t < (s < source ? NUM_TOKENS : token); t++)
            row += goes_to(routing, s, t, rank);
    return row;
}

/* Small integers, whose sums are exact in any order. */
static float value_of(int32_t rank, int32_t row)
{
    return (float)(1000 * (rank + 1) + row);
}

static float expected_sum(int routing, int32_t source, int32_t token)
{
    float sum = 0;
    for (int32_t rank = 0; rank < NUM_RANKS; rank++)
        if (goes_to(routing, source, token, rank))
            sum += value_of(rank, row_of(routing, source, token, rank));
    return sum;
}

/* ---------------------------------------------------------------- operations */

static int notify(struct layer *layer, int routing)
{
    struct ranks_context *context = layer->context;
    for (int32_t i = 0; i < NUM_TOKENS * NUM_TOPK; i++)
        layer->topk_idx[i] = choice(routing, context->rank, i / NUM_TOPK, i % NUM_TOPK);
    CHECK_OK(weft_ep_layout(layer->handle,
                            WEFT_ARGS(weft_ep_layout_args, .num_tokens = NUM_TOKENS,
                                      .index_type = WEFT_INT32, .topk_idx = layer->topk_idx),
                            layer->stream));
    CHECK_OK(weft_ep_notify(layer->handle, layer->stream));
    CHECK_OK(weft_stream_synchronize(layer->stream));
    return 0;
}

static int dispatch_by(struct layer *layer, int32_t num_blocks)
{
    const weft_plane plane = {
        .size = sizeof(weft_plane), .src = layer->src, .dst = layer->x, .row_bytes = ROW_BYTES};
    CHECK_OK(weft_ep_dispatch(layer->handle,
                              WEFT_ARGS(weft_ep_dispatch_args, .num_planes = 1, .planes = &plane,
                                        .capacity = CAPACITY, .num_blocks = num_blocks),
                              layer->stream));
    return 0;
}

static int dispatch(struct layer *layer)
{
    return dispatch_by(layer, 0);
}

static int combine_by(struct layer *layer, int32_t num_blocks)
{
    CHECK_OK(weft_ep_combine(layer->handle,
                             WEFT_ARGS(weft_ep_combine_args, .dtype = WEFT_FP32, .hidden = HIDDEN,
                                       .capacity = CAPACITY, .x = layer->x, .out = layer->out,
                                       .num_blocks = num_blocks),
                             layer->stream));
    return 0;
}

static int combine(struct layer *layer)
{
    return combine_by(layer, 0);
}

static int run_graph(struct layer *layer)
{
    CHECK_OK(launch_recorded(layer->stream, &layer->graph));
    return 0;
}

/* Before a combine, when no rank reads the rows. */
static int fill_rows(struct layer *layer)
{
    struct ranks_context *context = layer->context;
    CHECK_OK(weft_stream_synchronize(layer->stream));
    CHECK_OK(weft_comm_host_barrier(layer->comm));
    for (int32_t i = 0; i < CAPACITY * HIDDEN; i++)
        layer->x[i] = value_of(context->rank, i / HIDDEN);
    return 0;
}

static int check_sums(struct layer *layer, int routing)
{
    struct ranks_context *context = layer->context;
    CHECK_OK(weft_stream_synchronize(layer->stream));
    for (int32_t i = 0; i < NUM_TOKENS * HIDDEN; i++) {
        const float expected = expected_sum(routing, context->rank, i / HIDDEN);
        CHECK(layer->out[i] == expected, "routing %d: token %d is %g, not %g", routing, i / HIDDEN,
              (double)layer->out[i], (double)expected);
    }
    return 0;
}

/* ---------------------------------------------------------------- tests */

/* The dispatch that came before the combine when it was recorded is of another notify. */
TEST_ON_RANKS(combines_are_of_the_notify_that_ran_before, RANKS_THREADS, NUM_RANKS)
{
    struct layer layer;
    if (open_layer(&layer, context) || notify(&layer, 0) || dispatch(&layer))
        return 1;
    recorded = &layer.graph;
    const int failed = combine(&layer);
    recorded = NULL;
    if (failed || fill_rows(&layer) || run_graph(&layer) || check_sums(&layer, 0))
        return 1;
    for (int routing = 1; routing < NUM_ROUTINGS; routing++) {
        if (notify(&layer, routing) || fill_rows(&layer) || run_graph(&layer) ||
            run_graph(&layer) || check_sums(&layer, routing))
            return 1;
    }
    return close_layer(&layer);
}

/* A dispatch that was recorded, and does not run, has told nobody anything. */
TEST_ON_RANKS(dispatches_that_do_not_run_relay_nothing, RANKS_THREADS, NUM_RANKS)
{
    struct layer layer;
    if (open_layer(&layer, context) || notify(&layer, 0) || dispatch(&layer))
        return 1;
    for (int routing = 1; routing < NUM_ROUTINGS; routing++) {
        if (notify(&layer, routing))
            return 1;
        recorded = &layer.graph;
        const int failed = dispatch(&layer);
        recorded = NULL;
        if (failed || (routing % 2 == 0 && run_graph(&layer)) || fill_rows(&layer) ||
            combine(&layer) || check_sums(&layer, routing))
            return 1;
        forget(&layer.graph);
    }
    return close_layer(&layer);
}

/* Rings have as many blocks more, whatever the rest has. */
TEST_ON_RANKS(operations_have_the_blocks_that_they_ask_for, RANKS_THREADS, NUM_RANKS)
{
    int (*const operations[])(struct layer *, int32_t) = {dispatch_by, combine_by};
    struct layer layer;
    if (open_layer(&layer, context) || notify(&layer, 0))
        return 1;
    for (int i = 0; i < 2; i++) {
        int32_t usual = 0;
        for (int32_t num_blocks = 0; num_blocks <= NUM_BLOCKS; num_blocks++) {
            recorded = &layer.graph;
            const int failed = operations[i](&layer, num_blocks);
            recorded = NULL;
            if (failed)
                return 1;
            const int32_t found =
                layer.graph.launches[layer.graph.num_launches - 1].grid.num_blocks;
            usual = num_blocks == 0 ? found : usual;
            const int32_t fewer = num_blocks == 0 ? 0 : NUM_BLOCKS - num_blocks;
            CHECK(found == usual - fewer, "%d blocks for %d, %d for all", found, num_blocks, usual);
            forget(&layer.graph);
        }
    }
    return close_layer(&layer);
}

/* Its memory may move, which a graph would not see. */
TEST_ON_RANKS(handles_that_grow_are_not_captured, RANKS_THREADS, NUM_RANKS)
{
    struct layer layer;
    weft_ep_layout_args args = WEFT_INIT(weft_ep_layout_args);
    weft_ep_handle *handle;
    if (open_layer(&layer, context))
        return 1;
    CHECK_OK(weft_ep_handle_create(layer.ep, WEFT_ARGS(weft_ep_handle_config, .num_topk = NUM_TOPK),
                                   &handle));
    args.index_type = WEFT_INT32;
    recorded = &layer.graph;
    const weft_result result = weft_ep_layout(handle, &args, layer.stream);
    recorded = NULL;
    CHECK_ERROR(result, WEFT_ERROR_INVALID_ARGUMENT, "its max_tokens is 0");
    CHECK_OK(weft_ep_layout(handle, &args, layer.stream));
    return close_layer(&layer);
}
