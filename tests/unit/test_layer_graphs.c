/* SPDX-License-Identifier: MIT */
/* The graphs of a layer (weft ep --graph), on a machine that records launches as CUDA does and is
 * the host's else: each operation gives what it gives without a graph, on one node and on two. */
#include "harness/cmocka.h"
#include "harness/ranks.h"
#include "recording.h"
#include "workload/ep_check.h"

enum { NUM_RANKS = 4, HIDDEN = 64, ROW_BYTES = 2 * HIDDEN, NUM_REPLAYS = 2 };

/* ---------------------------------------------------------------- graphs of the machine */

struct weft_recorded_graph {
    struct weft_graph base;
    struct graph graph;
};

static weft_result begin(weft_stream *stream)
{
    (void)stream;
    recorded = calloc(1, sizeof *recorded);
    return recorded != NULL ? WEFT_OK : WEFT_ERROR_OUT_OF_MEMORY;
}

static weft_result end(weft_stream *stream, weft_graph **graph)
{
    struct weft_recorded_graph *created = calloc(1, sizeof *created);
    if (created == NULL)
        return WEFT_ERROR_OUT_OF_MEMORY;
    *created = (struct weft_recorded_graph){{stream->machine}, *recorded};
    free(recorded);
    recorded = NULL;
    *graph = &created->base;
    return WEFT_OK;
}

static weft_result launch_graph(weft_graph *graph, weft_stream *stream)
{
    return launch_recorded(stream, &((struct weft_recorded_graph *)graph)->graph);
}

static void destroy(weft_graph *graph)
{
    forget(&((struct weft_recorded_graph *)graph)->graph);
    free(graph);
}

/* ---------------------------------------------------------------- a layer */

static const struct ep_layer_options usual = {.program = "test_layer_graphs",
                                              .num_tokens = 12,
                                              .num_topk = 3,
                                              .num_experts = 9,
                                              .hidden = HIDDEN,
                                              .kind = WEFT_BF16,
                                              .row_bytes = ROW_BYTES,
                                              .num_planes = 1,
                                              .plane_bytes = {ROW_BYTES},
                                              .seed = 1,
                                              .start = EP_START_GRAPH,
                                              .num_phases = 1,
                                              .check = EP_CHECK_FULL};

/* The operations one after the other, as weft ep times them. */
static int replay(struct ep_layer *layer)
{
    for (int i = 0; i < NUM_REPLAYS * EP_NUM_OPS; i++) {
        const enum ep_op op = (enum ep_op)(i % EP_NUM_OPS);
        if (!ep_op_is_timed(op, layer->options))
            continue;
        const int waits = (ep_op_parts(op, layer->options) & EP_PART_COUNTS) != 0;
        CHECK((layer->graphs[op] == NULL) == waits, "%s is in no graph", ep_op_names[op]);
        CHECK_OK(ep_layer_prepare(layer, op));
        CHECK_OK(ep_layer_enqueue(layer, op));
        CHECK_OK(ep_layer_finish(layer, op));
        CHECK_OK(weft_stream_synchronize(layer->stream));
    }
    return 0;
}

static int run_layer(weft_comm *comm, weft_stream *stream, const struct ep_layer_options *options)
{
    struct ep_routing routing;
    struct ep_layer layer;
    struct ep_tally tallies[EP_NUM_OPS] = {{0, 0}};
    CHECK_OK(ep_layer_open_routing(&routing, options, comm, EP_ROUTING_ALL));
    CHECK_OK(ep_layer_open(&layer, comm, stream, options, &routing));
    if (replay(&layer))
        return 1;
    CHECK_OK(ep_check(&layer, tallies));
    for (int op = 0; op < EP_NUM_OPS; op++)
        CHECK(tallies[op].errors == 0, "%s: %lld of %lld differ", ep_op_names[op],
              (long long)tallies[op].errors, (long long)tallies[op].checked_rows);
    ep_layer_close(&layer);
    ep_routing_close(&routing);
    return 0;
}

static int run_layers(struct ranks_context *context, int32_t num_nodes)
{
    static const struct weft__graphs graphs = {begin, end, launch_graph, destroy};
    const struct option_list all = {6,
                                    {EP_LAYOUT, EP_DISPATCH, EP_COMBINE, EP_DISPATCH_COUNTED,
                                     EP_DISPATCH_CAPACITY, EP_DISPATCH_COMBINE}};
    struct ep_layer_options rows = usual, planes = usual, low_latency = usual;
    weft_comm *const comm =
        ranks_comm(context, WEFT_ARGS(weft_comm_config, .num_nodes = num_nodes));
    use_recording_machine(comm);
    machine.graphs = &graphs;
    weft_stream *const stream = ranks_stream(context);
    stream->machine = &machine;
    rows.ops = all;
    rows.carried = EP_CARRY_ROWS;
    planes.kind = WEFT_UINT8;
    planes.num_planes = 2;
    planes.plane_bytes[0] = ROW_BYTES - 24;
    planes.plane_bytes[1] = 24;
    low_latency.mode = EP_MODE_LOW_LATENCY;
    low_latency.num_phases = 2;
    const struct ep_layer_options *const list[] = {&usual, &rows, &planes, &low_latency};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (run_layer(comm, stream, list[i]))
            return 1;
    return 0;
}

TEST_ON_RANKS(replays_on_one_node, RANKS_THREADS, NUM_RANKS)
{
    return run_layers(context, 1);
}

TEST_ON_RANKS(replays_on_two_nodes, RANKS_THREADS, NUM_RANKS)
{
    return run_layers(context, 2);
}
