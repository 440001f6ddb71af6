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

#include "ep_setup.h"
#include "ll_setup.h"
#include "spans.h"
#include "workload/clock.h"
#include "workload/of_ranks.h"

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

/* What dispatch must do at the least: each row to its place at each rank. */
static void memcpy_dispatch(void *argument)
{
    const struct bench *bench = argument;
    const size_t row_bytes = bench->plan.row_bytes;
    for (int32_t token = 0; token < bench->plan.num_tokens; token++) {
        for (int32_t rank = 0; rank < bench->num_ranks; rank++) {
            const int32_t row = plan_row(&bench->plan, bench->rank, token, rank);
            if (row != PLAN_NO_ROW)
                memcpy(bench->peer_recv[rank] + (size_t)row * row_bytes,
                       bench->x + (size_t)token * row_bytes, row_bytes);
        }
    }
}

/* What combine must read at the least: each row that a token has anywhere. */
static void memcpy_combine(void *argument)
{
    const struct bench *bench = argument;
    const size_t row_bytes = bench->plan.row_bytes;
    for (int32_t token = 0; token < bench->plan.num_tokens; token++) {
        for (int32_t rank = 0; rank < bench->num_ranks; rank++) {
            const int32_t row = plan_row(&bench->plan, bench->rank, token, rank);
            if (row != PLAN_NO_ROW)
                memcpy(bench->out + (size_t)token * row_bytes,
                       bench->peer_recv[rank] + (size_t)row * row_bytes, row_bytes);
        }
    }
}

static weft_result enqueue_memcpy_dispatch(struct bench *bench)
{
    return weft_stream_call(bench->stream, memcpy_dispatch, bench);
}

static weft_result enqueue_memcpy_combine(struct bench *bench)
{
    return weft_stream_call(bench->stream, memcpy_combine, bench);
}

static weft_result enqueue_layer(struct bench *bench)
{
    TRY(bench_route(bench));
    TRY(bench_dispatch_all(bench));
    return bench_combine(bench);
}

enum { LATENCY_BATCH = 50 };

static weft_result enqueue_latency_batch(struct bench *bench)
{
    for (int i = 0; i < LATENCY_BATCH; i++)
        TRY(bench_dispatch_rows(bench));
    return WEFT_OK;
}

typedef weft_result step_fn(struct bench *bench);

enum { MAX_STEPS = 4 };

/* Times the steps in turn, iteration after iteration, so that disturbances meet all of them. */
static weft_result time_steps(struct bench *bench, step_fn *const *steps, int num_steps,
                              struct spans *spans)
{
    for (int32_t i = -bench->options.num_warmups; i < bench->options.num_iters; i++) {
        for (int step = 0; step < num_steps; step++) {
            const int32_t span = i < 0 ? 0 : i; /* warm-ups are overwritten */
            TRY(spans_begin(&spans[step], span, bench->comm, bench->stream));
            TRY(steps[step](bench));
            TRY(spans_end(&spans[step], span, bench->stream));
        }
        TRY(weft_stream_synchronize(bench->stream));
    }
    return WEFT_OK;
}

static weft_result measure_steps(struct bench *bench, step_fn *const *steps, int num_steps,
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

static weft_result measure_rows(struct bench *bench)
{
    enum { MEMCPY_DISPATCH, DISPATCH, MEMCPY_COMBINE, COMBINE, NUM_STEPS };
    step_fn *const steps[NUM_STEPS] = {enqueue_memcpy_dispatch, bench_dispatch_rows,
                                       enqueue_memcpy_combine, bench_combine};
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
    step_fn *const steps[] = {enqueue_layer};
    struct figures us;
    TRY(measure_steps(bench, steps, 1, &us));
    print_figure(bench, "layer_us", us.median, "us");
    return WEFT_OK;
}

/* A decode step: by low latency in both layouts, and by the normal operations. */
static struct ll_bench by_rank, by_expert;

static weft_result enqueue_by_rank(struct bench *bench)
{
    (void)bench;
    return ll_bench_step(&by_rank);
}

static weft_result enqueue_by_expert(struct bench *bench)
{
    (void)bench;
    return ll_bench_step(&by_expert);
}

static weft_result check_step(struct ll_bench *ll)
{
    int64_t num_errors;
    TRY(ll_bench_check(ll, &num_errors));
    if (num_errors == 0)
        return WEFT_OK;
    fprintf(stderr, "ep_bench: %lld rows of low latency are wrong\n", (long long)num_errors);
    return WEFT_ERROR_MISMATCH;
}

static weft_result create_and_check(struct bench *bench)
{
    TRY(ll_bench_init(&by_rank, bench, WEFT_LL_BY_RANK));
    TRY(ll_bench_init(&by_expert, bench, WEFT_LL_BY_EXPERT));
    TRY(check_step(&by_rank));
    return check_step(&by_expert);
}

/* In turns with the normal step, and with nothing else, whose rows would be in the cache in their
 * place. */
static weft_result time_against_normal(struct bench *bench, step_fn *step, struct figures us[2])
{
    step_fn *const steps[2] = {enqueue_layer, step};
    return measure_steps(bench, steps, 2, us);
}

static weft_result time_decode(struct bench *bench)
{
    enum { NORMAL, LOW_LATENCY };
    struct figures rank[2], expert[2];
    TRY(create_and_check(bench));
    TRY(time_against_normal(bench, enqueue_by_rank, rank));
    TRY(time_against_normal(bench, enqueue_by_expert, expert));
    print_figure(bench, "normal_step_us", rank[NORMAL].median, "us");
    print_figure(bench, "ll_step_us", rank[LOW_LATENCY].median, "us");
    print_figure(bench, "ll_step_by_expert_us", expert[LOW_LATENCY].median, "us");
    print_figure(bench, "ll_step_vs_normal", rank[LOW_LATENCY].median / rank[NORMAL].median,
                 "ratio of times");
    print_figure(bench, "ll_step_by_expert_vs_normal",
                 expert[LOW_LATENCY].median / expert[NORMAL].median, "ratio of times");
    return WEFT_OK;
}

static weft_result measure_decode(struct bench *bench)
{
    const weft_result result = time_decode(bench);
    ll_bench_destroy(&by_rank);
    ll_bench_destroy(&by_expert);
    return result;
}

/* One token: dispatches, and decode steps, one behind the other. */
static weft_result enqueue_by_rank_batch(struct bench *bench)
{
    for (int i = 0; i < LATENCY_BATCH; i++)
        TRY(enqueue_by_rank(bench));
    return WEFT_OK;
}

static weft_result enqueue_by_expert_batch(struct bench *bench)
{
    for (int i = 0; i < LATENCY_BATCH; i++)
        TRY(enqueue_by_expert(bench));
    return WEFT_OK;
}

static weft_result time_latency(struct bench *bench)
{
    enum { DISPATCH, BY_RANK, BY_EXPERT, NUM_STEPS };
    step_fn *const steps[NUM_STEPS] = {enqueue_latency_batch, enqueue_by_rank_batch,
                                       enqueue_by_expert_batch};
    struct figures us[NUM_STEPS];
    TRY(create_and_check(bench));
    TRY(measure_steps(bench, steps, NUM_STEPS, us));
    print_figure(bench, "dispatch_1token_us", us[DISPATCH].median / LATENCY_BATCH, "us");
    print_figure(bench, "ll_step_1token_us", us[BY_RANK].median / LATENCY_BATCH, "us");
    print_figure(bench, "ll_step_by_expert_1token_us", us[BY_EXPERT].median / LATENCY_BATCH, "us");
    return WEFT_OK;
}

static weft_result measure_latency(struct bench *bench)
{
    const weft_result result = time_latency(bench);
    ll_bench_destroy(&by_rank);
    ll_bench_destroy(&by_expert);
    return result;
}

/* GB/s of rows that leave a node, and the bytes of a message, for the engine to be compared
 * with. */
static weft_result measure_rail(struct bench *bench)
{
    enum { DISPATCH, COMBINE, NUM_STEPS };
    step_fn *const steps[NUM_STEPS] = {bench_dispatch_rows, bench_combine};
    struct figures us[NUM_STEPS];
    weft_net_info before = WEFT_INIT(weft_net_info), after = WEFT_INIT(weft_net_info);
    const double node_bytes = (double)bench->plan.row_bytes * bench->plan.num_tokens *
                              bench->num_ranks / bench->num_nodes;
    TRY(weft_net_query(bench->comm, &before));
    TRY(bench_dispatch_rows(bench));
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
    TRY(bench_dispatch_rows(bench));
    TRY(weft_stream_synchronize(bench->stream));
    used_s += processor_seconds();
    const double wall_s = (clock_us() - start_us) * 1e-6;
    int64_t used_us = (int64_t)(used_s * 1e6);
    TRY(sum_of_ranks(bench->comm, &used_us, 1));
    print_figure(bench, "idle_cpu_percent", 1e-4 * (double)used_us / wall_s, "% of one core");
    return WEFT_OK;
}

/* One dispatch and combine, checked, before anything is measured. */
static weft_result run(struct bench *bench)
{
    static weft_result (*const measures[])(struct bench *) = {
        [MEASURE_ROWS] = measure_rows,       [MEASURE_LAYER] = measure_layer,
        [MEASURE_LATENCY] = measure_latency, [MEASURE_DECODE] = measure_decode,
        [MEASURE_IDLE] = measure_idle,       [MEASURE_RAIL] = measure_rail};
    TRY(bench_init(bench));
    if (bench->options.measure == MEASURE_ROWS && bench->num_nodes > 1) {
        fprintf(stderr,
                "ep_bench: the ranks are on %d nodes; --measure rows compares with memcpy into "
                "their memory, which one node's alone have mapped\n",
                bench->num_nodes);
        return WEFT_ERROR_UNSUPPORTED;
    }
    TRY(bench_dispatch_all(bench));
    TRY(bench_combine(bench));
    TRY(weft_stream_synchronize(bench->stream));
    int64_t num_errors;
    TRY(bench_check(bench, &num_errors));
    if (num_errors != 0) {
        fprintf(stderr, "ep_bench: %lld rows are wrong\n", (long long)num_errors);
        return WEFT_ERROR_MISMATCH;
    }
    return measures[bench->options.measure](bench);
}

int main(int argc, char **argv)
{
    struct bench bench = {0};
    bench_options_parse(&bench.options, argc, argv);
    /* What it is compared with, memcpy and MPI, is on the host. */
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    config.machine = WEFT_MACHINE_CPU;
    if (weft_comm_create_from_env(&config, &bench.comm) != WEFT_OK) {
        fprintf(stderr, "ep_bench: %s\n", weft_last_error());
        return EXIT_FAILURE;
    }
    const weft_result result = run(&bench);
    if (result != WEFT_OK)
        fprintf(stderr, "ep_bench: %s: %s\n", weft_result_string(result), weft_last_error());
    bench_destroy(&bench);
    return result == WEFT_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
