/* SPDX-License-Identifier: MIT */
/*
 * Times collectives on machine cpu, and prints a JSON line for each and its size.
 *
 *     weft run -n 4 --no-prefix -- coll_bench
 *
 * An iteration is several calls in a row, from the first rank's start to the last rank's end.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coll_options.h"
#include "spans.h"
#include "workload/of_ranks.h"
#include "workload/try.h"

struct bench {
    struct coll_bench_options options;
    weft_comm *comm;
    weft_coll *coll;
    weft_stream *stream;
};

/* One size. */
struct run {
    struct bench *bench;
    struct collective collective;
    void *send, *recv; /* in the heap; of a broadcast one array, as MPI has it */
};

static weft_result call(const struct run *run)
{
    const struct bench *bench = run->bench;
    return collective_enqueue(&run->collective, weft_comm_rank(bench->comm), bench->coll, run->send,
                              run->recv, bench->stream);
}

static weft_result time_calls(const struct run *run, struct spans *spans)
{
    const struct bench *bench = run->bench;
    const int32_t num_calls = coll_bench_calls(collective_bytes(&run->collective));
    for (int32_t i = -bench->options.num_warmups; i < bench->options.num_iters; i++) {
        const int32_t span = i < 0 ? 0 : i; /* warm-ups are overwritten */
        TRY(spans_begin(spans, span, bench->comm, bench->stream));
        for (int32_t k = 0; k < num_calls; k++)
            TRY(call(run));
        TRY(spans_end(spans, span, bench->stream));
        TRY(weft_stream_synchronize(bench->stream));
    }
    return WEFT_OK;
}

static weft_result measure(const struct run *run, struct figures *us)
{
    struct spans spans = {0};
    const double num_calls = coll_bench_calls(collective_bytes(&run->collective));
    weft_result result = spans_init(&spans, run->bench->options.num_iters);
    if (result == WEFT_OK)
        result = time_calls(run, &spans);
    if (result == WEFT_OK)
        result = spans_figures(&spans, run->bench->comm, us);
    spans_destroy(&spans);
    *us = (struct figures){us->min / num_calls, us->median / num_calls, us->max / num_calls};
    return result;
}

/* One call into an output that was wiped; wrong elements of all ranks. */
static weft_result check(const struct run *run, int64_t *num_wrong)
{
    const struct collective *collective = &run->collective;
    const int32_t rank = weft_comm_rank(run->bench->comm);
    const uint64_t bytes = collective_recv_bytes(collective, rank);
    uint64_t first_wrong;
    void *expected = malloc(bytes);
    if (expected == NULL)
        return WEFT_ERROR_OUT_OF_MEMORY;
    if (run->recv != run->send || rank != collective->root)
        memset(run->recv, 0xff, bytes);
    weft_result result = call(run);
    if (result == WEFT_OK)
        result = weft_stream_synchronize(run->bench->stream);
    collective_expect(collective, rank, 0, bytes, expected);
    *num_wrong = (int64_t)elements_count_wrong(WEFT_FP32, run->recv, expected,
                                               bytes / sizeof(float), &first_wrong);
    free(expected);
    return result == WEFT_OK ? sum_of_ranks(run->bench->comm, num_wrong, 1) : result;
}

static weft_result run_once(struct run *run)
{
    struct bench *bench = run->bench;
    const struct collective *collective = &run->collective;
    const int32_t rank = weft_comm_rank(bench->comm);
    struct coll_bench_result result = {
        .library = "weft", .options = &bench->options, .collective = collective};
    elements_fill(&collective->source, rank, 0,
                  collective_send_bytes(collective, rank) / sizeof(float), run->send);
    TRY(measure(run, &result.us));
    TRY(check(run, &result.num_wrong));
    if (rank == 0)
        coll_bench_print(&result);
    return result.num_wrong == 0 ? WEFT_OK : WEFT_ERROR_MISMATCH;
}

static weft_result run_size(struct bench *bench, weft_collective kind, uint64_t bytes)
{
    struct run run = {.bench = bench,
                      .collective =
                          coll_bench_collective(kind, bytes, weft_comm_num_ranks(bench->comm))};
    weft_result result = weft_heap_alloc(bench->comm, bytes, &run.send);
    if (result == WEFT_OK && kind != WEFT_BROADCAST)
        result = weft_heap_alloc(bench->comm, bytes, &run.recv);
    else
        run.recv = run.send;
    if (result == WEFT_OK)
        result = run_once(&run);
    if (run.recv != run.send)
        weft_heap_free(bench->comm, run.recv);
    weft_heap_free(bench->comm, run.send);
    return result;
}

static weft_result run_all(struct bench *bench)
{
    const struct option_list *kinds = &bench->options.kinds, *sizes = &bench->options.sizes;
    TRY(weft_coll_create(bench->comm, NULL, &bench->coll));
    TRY(weft_stream_create(bench->comm, &bench->stream));
    for (int32_t kind = 0; kind < kinds->count; kind++)
        for (int32_t size = 0; size < sizes->count; size++)
            TRY(run_size(bench, (weft_collective)kinds->values[kind],
                         (uint64_t)sizes->values[size]));
    return WEFT_OK;
}

int main(int argc, char **argv)
{
    struct bench bench = {0};
    coll_bench_options_parse(&bench.options, "Collectives of weft on machine cpu.", argc, argv);
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    config.machine = WEFT_MACHINE_CPU;
    if (weft_comm_create_from_env(&config, &bench.comm) != WEFT_OK) {
        fprintf(stderr, "coll_bench: %s\n", weft_last_error());
        return EXIT_FAILURE;
    }
    const weft_result result = run_all(&bench);
    if (result != WEFT_OK)
        fprintf(stderr, "coll_bench: %s: %s\n", weft_result_string(result), weft_last_error());
    if (bench.stream != NULL)
        weft_stream_destroy(bench.stream);
    if (bench.coll != NULL)
        weft_coll_destroy(bench.coll);
    weft_comm_destroy(bench.comm);
    return result == WEFT_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
