/* SPDX-License-Identifier: MIT */
/*
 * Measures the cost of records: CPU time of collectives with and without them, as JSON lines.
 *
 *     weft run -n 2 --no-prefix -- records_bench --bytes 1K
 *
 * Runs of a job differ by more than records cost. So the ranks of one job have communicators of
 * both kinds, and measure them in turns, in blocks of calls. The cost is the median, over turns, of
 * the difference to two communicators without records, which were made before and after the one
 * with records. The difference between these two shows what is chance. CPU time does not count what
 * other processes do.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "coll_options.h"
#include "workload/failure.h"
#include "workload/of_ranks.h"
#include "workload/try.h"

enum side_name { WITHOUT, WITH, CONTROL, NUM_SIDES };

struct side {
    weft_comm *comm;
    weft_coll *coll;
    weft_stream *stream;
    void *send, *recv;
};

struct bench {
    struct coll_bench_options options;
    weft_comm *world; /* in which all sides meet */
    struct side sides[NUM_SIDES];
    int64_t *cpu_ns; /* [num_iters][NUM_SIDES] */
};

static weft_result create_comm(struct bench *bench, const char *num_records, weft_comm **comm)
{
    const int32_t rank = weft_comm_rank(bench->world);
    const int32_t num_ranks = weft_comm_num_ranks(bench->world);
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    weft_unique_id own = {0}, *ids = calloc((size_t)num_ranks, sizeof *ids);
    if (ids == NULL)
        return LACKS_MEMORY("the ids of %d ranks", num_ranks);
    config.machine = WEFT_MACHINE_CPU;
    setenv("WEFT_RECORDS", num_records, 1);
    weft_result result = rank == 0 ? weft_unique_id_create(&own) : WEFT_OK;
    if (result == WEFT_OK)
        result = weft_comm_host_all_gather(bench->world, &own, sizeof own, ids);
    if (result == WEFT_OK)
        result = weft_comm_create(&ids[0], rank, num_ranks, &config, comm);
    free(ids);
    return result;
}

static weft_result open_side(struct bench *bench, enum side_name name)
{
    struct side *side = &bench->sides[name];
    int64_t most_bytes = 0;
    for (int32_t i = 0; i < bench->options.sizes.count; i++)
        if (bench->options.sizes.values[i] > most_bytes)
            most_bytes = bench->options.sizes.values[i];
    TRY(create_comm(bench, name == WITH ? "512" : "0", &side->comm));
    TRY(weft_coll_create(side->comm, NULL, &side->coll));
    TRY(weft_stream_wrap(side->comm, NULL, &side->stream)); /* without a thread of its own */
    TRY(weft_heap_alloc(side->comm, (uint64_t)most_bytes, &side->send));
    TRY(weft_heap_alloc(side->comm, (uint64_t)most_bytes, &side->recv));
    memset(side->send, 0, (size_t)most_bytes);
    return WEFT_OK;
}

static int64_t own_cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static weft_result run_block(const struct side *side, const struct collective *collective,
                             int64_t *cpu_ns)
{
    const int32_t num_calls = coll_bench_calls(collective_bytes(collective));
    TRY(weft_comm_barrier(side->comm, side->stream));
    TRY(weft_stream_synchronize(side->stream));
    const int64_t begin_ns = own_cpu_ns();
    for (int32_t i = 0; i < num_calls; i++)
        TRY(collective_enqueue(collective, weft_comm_rank(side->comm), side->coll, side->send,
                               side->recv, side->stream));
    TRY(weft_stream_synchronize(side->stream));
    *cpu_ns = own_cpu_ns() - begin_ns;
    return WEFT_OK;
}

/* The order of the sides rotates, so that none gains by its place. */
static weft_result run_turns(struct bench *bench, const struct collective *collective)
{
    const int32_t num_warmups = bench->options.num_warmups, num_iters = bench->options.num_iters;
    for (int32_t i = 0; i < num_warmups + num_iters; i++)
        for (int32_t k = 0; k < NUM_SIDES; k++) {
            const int32_t side = (i + k) % NUM_SIDES, turn = i < num_warmups ? 0 : i - num_warmups;
            TRY(run_block(&bench->sides[side], collective,
                          &bench->cpu_ns[turn * NUM_SIDES + side]));
        }
    return sum_of_ranks(bench->world, bench->cpu_ns, (size_t)num_iters * NUM_SIDES);
}

/* The median, over turns, of a weighted sum of the sides' times. */
static double median_ns(const struct bench *bench, const double weights[NUM_SIDES], double *samples)
{
    const int32_t num_turns = bench->options.num_iters;
    for (int32_t turn = 0; turn < num_turns; turn++) {
        samples[turn] = 0;
        for (int side = 0; side < NUM_SIDES; side++)
            samples[turn] += weights[side] * (double)bench->cpu_ns[turn * NUM_SIDES + side];
    }
    return figures_of(samples, (size_t)num_turns).median;
}

static void print_figure(const struct bench *bench, const struct collective *collective,
                         const char *name, double value, const char *unit)
{
    const uint64_t bytes = collective_bytes(collective);
    printf("{\"name\": \"%s_%lluk_%dranks\", \"value\": %.2f, \"unit\": \"%s\", "
           "\"configuration\": \"CPU time of a rank for %s of %llu bytes, %d ranks, median of %d "
           "turns of %d calls\"}\n",
           name, (unsigned long long)bytes >> 10, collective->num_ranks, value, unit,
           collective_names[collective->kind], (unsigned long long)bytes, collective->num_ranks,
           bench->options.num_iters, coll_bench_calls(bytes));
}

static void print_figures(const struct bench *bench, const struct collective *collective,
                          double *samples)
{
    const double num_calls =
        (double)coll_bench_calls(collective_bytes(collective)) * collective->num_ranks;
    static const double without[] = {0.5, 0, 0.5}, cost[] = {-0.5, 1, -0.5}, control[] = {-1, 0, 1};
    const double without_ns = median_ns(bench, without, samples);
    const double cost_ns = median_ns(bench, cost, samples);
    const double control_ns = median_ns(bench, control, samples);
    print_figure(bench, collective, "records_ns", cost_ns / num_calls, "ns");
    print_figure(bench, collective, "records_percent", 100 * cost_ns / without_ns, "%");
    print_figure(bench, collective, "records_control_percent", 100 * control_ns / without_ns, "%");
}

static weft_result run_all(struct bench *bench)
{
    const struct coll_bench_options *options = &bench->options;
    const int32_t num_ranks = weft_comm_num_ranks(bench->world);
    double *samples = calloc((size_t)options->num_iters, sizeof *samples);
    bench->cpu_ns = calloc((size_t)options->num_iters * NUM_SIDES, sizeof *bench->cpu_ns);
    weft_result result = samples != NULL && bench->cpu_ns != NULL
                             ? WEFT_OK
                             : LACKS_MEMORY("%d iterations", options->num_iters);
    for (int name = WITHOUT; name < NUM_SIDES && result == WEFT_OK; name++)
        result = open_side(bench, (enum side_name)name);
    for (int32_t kind = 0; kind < options->kinds.count; kind++)
        for (int32_t size = 0; size < options->sizes.count && result == WEFT_OK; size++) {
            const struct collective collective =
                coll_bench_collective((weft_collective)options->kinds.values[kind],
                                      (uint64_t)options->sizes.values[size], num_ranks);
            result = run_turns(bench, &collective);
            if (result == WEFT_OK && weft_comm_rank(bench->world) == 0)
                print_figures(bench, &collective, samples);
        }
    free(bench->cpu_ns);
    free(samples);
    return result;
}

int main(int argc, char **argv)
{
    struct bench bench = {.world = NULL};
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    coll_bench_options_parse(&bench.options, "The cost of records on machine cpu.", argc, argv);
    config.machine = WEFT_MACHINE_CPU;
    weft_result result = weft_comm_create_from_env(&config, &bench.world);
    if (result == WEFT_OK)
        result = run_all(&bench);
    if (result != WEFT_OK)
        fprintf(stderr, "records_bench: %s: %s\n", weft_result_string(result),
                failure_text(result));
    for (int name = WITHOUT; name < NUM_SIDES; name++)
        if (bench.sides[name].comm != NULL)
            weft_comm_destroy(bench.sides[name].comm);
    if (bench.world != NULL)
        weft_comm_destroy(bench.world);
    return result == WEFT_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
