/* SPDX-License-Identifier: MIT */
/*
 * Measures weft's operations on the ranks that it is started as, and prints a JSON line per figure.
 *
 *     weft run -n 8 -- ep_bench --measure rows
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "plan.h"
#include "spans.h"
#include "workload/clock.h"
#include "workload/ep_check.h"
#include "workload/failure.h"
#include "workload/of_ranks.h"
#include "workload/try.h"

/* Low latency is there for MEASURE_DECODE and MEASURE_LATENCY alone. */
enum layer_kind { NORMAL, BY_RANK, BY_EXPERT, NUM_LAYERS };

struct bench {
    struct bench_options options;
    weft_comm *comm;
    weft_stream *stream;
    int32_t rank, num_ranks;
    struct ep_routing routing;
    struct ep_layer_options shapes[NUM_LAYERS];
    struct ep_layer layers[NUM_LAYERS];
    struct plan plan; /* of MEASURE_ROWS alone, as the next */
    char **peer_recv; /* [num_ranks] where recv_x of each rank is mapped here */
};

static void print_figure(const struct bench *bench, const char *name, double value,
                         const char *unit)
{
    const struct bench_options *options = &bench->options;
    if (bench->rank != 0)
        return;
    printf("{\"name\": \"%s\", \"value\": %.3f, \"unit\": \"%s\", \"configuration\": "
           "\"cpu machine, %d ranks, tokens per rank %d, hidden %d bf16, top-%d of %d experts\"}\n",
           name, value, unit, bench->num_ranks, options->num_tokens, options->hidden,
           options->num_topk, options->num_experts);
}

/* The row of a token of this rank at another, as mapped here; NULL: it has none. */
static char *row_at(const struct bench *bench, int32_t token, int32_t rank)
{
    const int32_t row = plan_row(&bench->plan, bench->rank, token, rank);
    return row == PLAN_NO_ROW ? NULL : bench->peer_recv[rank] + (size_t)row * bench->plan.row_bytes;
}

/* Dispatch must do this at the least: each row to its place at each rank. */
static void memcpy_dispatch(void *argument)
{
    const struct bench *bench = argument;
    const size_t row_bytes = bench->plan.row_bytes;
    for (int32_t i = 0; i < bench->options.num_tokens * bench->num_ranks; i++) {
        const int32_t token = i / bench->num_ranks;
        char *row = row_at(bench, token, i % bench->num_ranks);
        if (row != NULL)
            memcpy(row, bench->layers[NORMAL].x[0] + (size_t)token * row_bytes, row_bytes);
    }
}

/* Combine must read this at the least: each row that a token has anywhere. */
static void memcpy_combine(void *argument)
{
    const struct bench *bench = argument;
    const size_t row_bytes = bench->plan.row_bytes;
    for (int32_t i = 0; i < bench->options.num_tokens * bench->num_ranks; i++) {
        const int32_t token = i / bench->num_ranks;
        const char *row = row_at(bench, token, i % bench->num_ranks);
        if (row != NULL)
            memcpy(bench->layers[NORMAL].out + (size_t)token * row_bytes, row, row_bytes);
    }
}

/* ---------------------------------------------------------------- time */

/* A callback, or an operation, several times in a row. */
struct step {
    void (*callback)(void *bench);
    enum layer_kind kind;
    enum ep_op op;
    int32_t num_calls;
};

enum { MAX_STEPS = 4 };

static weft_result enqueue_step(struct bench *bench, const struct step *step)
{
    if (step->callback)
        return weft_stream_call(bench->stream, step->callback, bench);
    for (int32_t i = 0; i < step->num_calls; i++)
        TRY(ep_layer_enqueue(&bench->layers[step->kind], step->op));
    return WEFT_OK;
}

/* Times the steps in turn, iteration after iteration, so that disturbances meet all of them. */
static weft_result time_steps(struct bench *bench, const struct step *steps, int num_steps,
                              struct spans *spans)
{
    for (int32_t i = -bench->options.num_warmups; i < bench->options.num_iters; i++) {
        for (int step = 0; step < num_steps; step++) {
            const int32_t span = i < 0 ? 0 : i; /* warm-ups are overwritten */
            TRY(spans_begin(&spans[step], span, bench->comm, bench->stream));
            TRY(enqueue_step(bench, &steps[step]));
            TRY(spans_end(&spans[step], span, bench->stream));
        }
        TRY(weft_stream_synchronize(bench->stream));
    }
    return WEFT_OK;
}

static weft_result measure_steps(struct bench *bench, const struct step *steps, int num_steps,
                                 struct figures *us)
{
    struct spans spans[MAX_STEPS] = {0};
    weft_result result = WEFT_OK;
    for (int step = 0; step < num_steps && result == WEFT_OK; step++)
        result = spans_init(&spans[step], bench->options.num_iters);
    if (result == WEFT_OK)
        result = time_steps(bench, steps, num_steps, spans);
    for (int step = 0; step < num_steps; step++) {
        if (result == WEFT_OK)
            result = spans_figures(&spans[step], bench->comm, &us[step]);
        spans_destroy(&spans[step]);
    }
    return result;
}

/* ---------------------------------------------------------------- measurements */

static weft_result measure_rows(struct bench *bench)
{
    enum { MEMCPY_DISPATCH, DISPATCH, MEMCPY_COMBINE, COMBINE, NUM_STEPS };
    const struct step steps[NUM_STEPS] = {{.callback = memcpy_dispatch},
                                          {NULL, NORMAL, EP_DISPATCH, 1},
                                          {.callback = memcpy_combine},
                                          {NULL, NORMAL, EP_COMBINE, 1}};
    struct figures us[NUM_STEPS];
    TRY(measure_steps(bench, steps, NUM_STEPS, us));
    print_figure(bench, "memcpy_dispatch_us", us[MEMCPY_DISPATCH].median, "us");
    print_figure(bench, "dispatch_us", us[DISPATCH].median, "us");
    print_figure(bench, "memcpy_combine_us", us[MEMCPY_COMBINE].median, "us");
    print_figure(bench, "combine_us", us[COMBINE].median, "us");
    print_figure(bench, "dispatch_vs_memcpy", us[MEMCPY_DISPATCH].median / us[DISPATCH].median,
                 "ratio of rates");
    print_figure(bench, "combine_vs_memcpy", us[MEMCPY_COMBINE].median / us[COMBINE].median,
                 "ratio of rates");
    return WEFT_OK;
}

static weft_result measure_layer(struct bench *bench)
{
    const struct step step = {NULL, NORMAL, EP_LAYER, 1};
    struct figures us;
    TRY(measure_steps(bench, &step, 1, &us));
    print_figure(bench, "layer_us", us.median, "us");
    return WEFT_OK;
}

/* In turns with the normal step, and with nothing else, whose rows would be in the cache in their
 * place. */
static weft_result time_against_normal(struct bench *bench, enum layer_kind kind,
                                       struct figures us[2])
{
    const struct step steps[2] = {{NULL, NORMAL, EP_LAYER, 1}, {NULL, kind, EP_LL_LAYER, 1}};
    return measure_steps(bench, steps, 2, us);
}

/* A decode step: by low latency in both layouts, and by the normal operations. */
static weft_result measure_decode(struct bench *bench)
{
    enum { OF_NORMAL, LOW_LATENCY };
    struct figures rank[2], expert[2];
    TRY(time_against_normal(bench, BY_RANK, rank));
    TRY(time_against_normal(bench, BY_EXPERT, expert));
    print_figure(bench, "normal_step_us", rank[OF_NORMAL].median, "us");
    print_figure(bench, "ll_step_us", rank[LOW_LATENCY].median, "us");
    print_figure(bench, "ll_step_by_expert_us", expert[LOW_LATENCY].median, "us");
    print_figure(bench, "ll_step_vs_normal", rank[LOW_LATENCY].median / rank[OF_NORMAL].median,
                 "ratio of times");
    print_figure(bench, "ll_step_by_expert_vs_normal",
                 expert[LOW_LATENCY].median / expert[OF_NORMAL].median, "ratio of times");
    return WEFT_OK;
}

/* One token: dispatches, and decode steps, one behind the other. */
static weft_result measure_latency(struct bench *bench)
{
    enum { NUM_CALLS = 50 };
    const struct step steps[NUM_LAYERS] = {{NULL, NORMAL, EP_DISPATCH, NUM_CALLS},
                                           {NULL, BY_RANK, EP_LL_LAYER, NUM_CALLS},
                                           {NULL, BY_EXPERT, EP_LL_LAYER, NUM_CALLS}};
    struct figures us[NUM_LAYERS];
    TRY(measure_steps(bench, steps, NUM_LAYERS, us));
    print_figure(bench, "dispatch_1token_us", us[NORMAL].median / NUM_CALLS, "us");
    print_figure(bench, "ll_step_1token_us", us[BY_RANK].median / NUM_CALLS, "us");
    print_figure(bench, "ll_step_by_expert_1token_us", us[BY_EXPERT].median / NUM_CALLS, "us");
    return WEFT_OK;
}

/* GB/s of rows that leave a node, and the bytes of a message, for the engine to be compared
 * with. */
static weft_result measure_rail(struct bench *bench)
{
    enum { DISPATCH, COMBINE, NUM_STEPS };
    const struct step steps[NUM_STEPS] = {{NULL, NORMAL, EP_DISPATCH, 1},
                                          {NULL, NORMAL, EP_COMBINE, 1}};
    struct figures us[NUM_STEPS];
    weft_net_info before = WEFT_INIT(weft_net_info), after = WEFT_INIT(weft_net_info);
    const double node_bytes = (double)bench->shapes[NORMAL].row_bytes * bench->options.num_tokens *
                              bench->num_ranks / bench->layers[NORMAL].num_nodes;
    TRY(weft_net_query(bench->comm, &before));
    TRY(ep_layer_enqueue(&bench->layers[NORMAL], EP_DISPATCH));
    TRY(weft_stream_synchronize(bench->stream));
    TRY(weft_net_query(bench->comm, &after));
    TRY(measure_steps(bench, steps, NUM_STEPS, us));
    print_figure(bench, "rail_dispatch_gbps", node_bytes / us[DISPATCH].median / 1000, "GB/s");
    print_figure(bench, "rail_combine_gbps", node_bytes / us[COMBINE].median / 1000, "GB/s");
    /* For each that brings rows the partner, which sends as many, gets one that returns the
     * credit. */
    const double num_messages = (double)(after.sent_messages - before.sent_messages) / 2;
    const double put_bytes = (double)((after.sent_bytes - after.sent_header_bytes) -
                                      (before.sent_bytes - before.sent_header_bytes));
    print_figure(bench, "rail_message_bytes", put_bytes / num_messages, "bytes");
    return WEFT_OK;
}

static double processor_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

/* All other ranks wait in an operation for rank 0, which sleeps. */
static weft_result measure_idle(struct bench *bench)
{
    const unsigned sleep_s = 3;
    TRY(weft_comm_host_barrier(bench->comm));
    const double start_us = clock_us();
    double used_s = -processor_seconds();
    if (bench->rank == 0)
        sleep(sleep_s);
    TRY(ep_layer_enqueue(&bench->layers[NORMAL], EP_DISPATCH));
    TRY(weft_stream_synchronize(bench->stream));
    used_s += processor_seconds();
    const double wall_s = (clock_us() - start_us) * 1e-6;
    int64_t used_us = (int64_t)(used_s * 1e6);
    TRY(sum_of_ranks(bench->comm, &used_us, 1));
    print_figure(bench, "idle_cpu_percent", 1e-4 * (double)used_us / wall_s, "% of one core");
    return WEFT_OK;
}

/* ---------------------------------------------------------------- set-up */

static struct ep_layer_options shape_of(const struct bench_options *options, enum layer_kind kind)
{
    const int is_whole = options->measure == MEASURE_LAYER || options->measure == MEASURE_DECODE;
    struct ep_layer_options shape = bench_layer_options(options);
    shape.gate = options->measure == MEASURE_RAIL ? EP_GATE_PARTNERS : EP_GATE_SEEDED;
    shape.carried = is_whole ? EP_CARRY_ALL : EP_CARRY_ROWS;
    shape.mode = kind == NORMAL ? EP_MODE_NORMAL : EP_MODE_LOW_LATENCY;
    shape.ll_layout = kind == BY_RANK ? WEFT_LL_BY_RANK : WEFT_LL_BY_EXPERT;
    shape.ll_answer = WEFT_LL_ANSWER_IN_SLOTS;
    return shape;
}

/* Each layer is checked before anything is measured. */
static weft_result open_layer(struct bench *bench, enum layer_kind kind)
{
    struct ep_layer *layer = &bench->layers[kind];
    struct ep_tally tallies[EP_NUM_OPS] = {{0, 0}};
    TRY(ep_layer_open(layer, bench->comm, bench->stream, &bench->shapes[kind], &bench->routing));
    TRY(ep_check(layer, tallies));
    for (int op = 0; op < EP_NUM_OPS; op++)
        if (tallies[op].errors != 0)
            return WEFT_ERROR_MISMATCH;
    return WEFT_OK;
}

/* For memcpy. */
static weft_result find_rows(struct bench *bench)
{
    bench->peer_recv = calloc((size_t)bench->num_ranks, sizeof *bench->peer_recv);
    if (plan_init(&bench->plan, &bench->options, bench->num_ranks) != 0 || !bench->peer_recv)
        return LACKS_MEMORY("the places of rows");
    for (int32_t rank = 0; rank < bench->num_ranks; rank++)
        bench->peer_recv[rank] = weft_heap_ptr(bench->comm, bench->layers[NORMAL].recv_x[0], rank);
    return WEFT_OK;
}

static weft_result open_bench(struct bench *bench)
{
    const enum bench_measure measure = bench->options.measure;
    const int num_layers = measure == MEASURE_DECODE || measure == MEASURE_LATENCY ? NUM_LAYERS : 1;
    bench->rank = weft_comm_rank(bench->comm);
    bench->num_ranks = weft_comm_num_ranks(bench->comm);
    for (int kind = 0; kind < NUM_LAYERS; kind++)
        bench->shapes[kind] = shape_of(&bench->options, (enum layer_kind)kind);
    TRY(ep_layer_open_routing(&bench->routing, &bench->shapes[NORMAL], bench->comm,
                              EP_ROUTING_ALL));
    TRY(weft_stream_create(bench->comm, &bench->stream));
    for (int kind = 0; kind < num_layers; kind++) {
        /* A step combines its result before the next one, so one is enough, and takes less memory;
         * but between nodes the next step would wait until the network has told that there is
         * room. */
        bench->shapes[kind].num_results = bench->routing.problem.num_nodes > 1 ? 2 : 1;
        TRY(open_layer(bench, (enum layer_kind)kind));
    }
    return measure == MEASURE_ROWS ? find_rows(bench) : WEFT_OK;
}

static void close_bench(struct bench *bench)
{
    for (int kind = 0; kind < NUM_LAYERS; kind++)
        ep_layer_close(&bench->layers[kind]);
    if (bench->stream)
        weft_stream_destroy(bench->stream);
    ep_routing_close(&bench->routing);
    weft_comm_destroy(bench->comm);
    plan_destroy(&bench->plan);
    free(bench->peer_recv);
}

static weft_result run(struct bench *bench)
{
    static weft_result (*const measures[])(struct bench *) = {
        [MEASURE_ROWS] = measure_rows,       [MEASURE_LAYER] = measure_layer,
        [MEASURE_LATENCY] = measure_latency, [MEASURE_DECODE] = measure_decode,
        [MEASURE_IDLE] = measure_idle,       [MEASURE_RAIL] = measure_rail};
    TRY(open_bench(bench));
    const int32_t num_nodes = bench->routing.problem.num_nodes;
    if (bench->options.measure == MEASURE_ROWS && num_nodes > 1) {
        fprintf(stderr,
                "ep_bench: the ranks are on %d nodes; --measure rows compares with memcpy into "
                "their memory, which one node's alone have mapped\n",
                num_nodes);
        return WEFT_ERROR_UNSUPPORTED;
    }
    return measures[bench->options.measure](bench);
}

int main(int argc, char **argv)
{
    struct bench bench = {0};
    bench_options_parse(&bench.options, argc, argv);
    /* The references, memcpy and MPI, are on the host. */
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    config.machine = WEFT_MACHINE_CPU;
    if (weft_comm_create_from_env(&config, &bench.comm) != WEFT_OK) {
        fprintf(stderr, "ep_bench: %s\n", weft_last_error());
        return EXIT_FAILURE;
    }
    const weft_result result = run(&bench);
    if (result != WEFT_OK)
        fprintf(stderr, "ep_bench: %s: %s\n", weft_result_string(result), failure_text(result));
    close_bench(&bench);
    return result == WEFT_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
