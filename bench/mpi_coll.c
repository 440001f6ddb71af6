/* SPDX-License-Identifier: MIT */
/* Times collectives of Open MPI as coll_bench times weft's, and prints a JSON line for each and
 * its size. An iteration is several calls in a row, from the first rank's start to the last
 * rank's end. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coll_options.h"
#include "mpi_library.h"
#include "workload/clock.h"

struct run {
    const struct coll_bench_options *options;
    struct collective collective;
    int rank;
    float *send, *recv;
    double *starts, *ends; /* [num_iters] */
};

static void call(const struct run *run)
{
    const struct collective *collective = &run->collective;
    const int count = (int)collective->count;
    void *buffer = run->rank == collective->root ? run->send : run->recv; /* of a broadcast */
    switch (collective->kind) {
    case WEFT_ALL_REDUCE:
        MPI_Allreduce(run->send, run->recv, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
    case WEFT_REDUCE_SCATTER:
        MPI_Reduce_scatter_block(run->send, run->recv, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
    case WEFT_ALL_GATHER:
        MPI_Allgather(run->send, count, MPI_FLOAT, run->recv, count, MPI_FLOAT, MPI_COMM_WORLD);
        break;
    case WEFT_BROADCAST:
        MPI_Bcast(buffer, count, MPI_FLOAT, collective->root, MPI_COMM_WORLD);
        break;
    default:
        fprintf(stderr, "mpi_coll: no %s here\n", collective_names[collective->kind]);
        MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    }
}

static struct figures measure(const struct run *run)
{
    const int32_t num_iters = run->options->num_iters;
    const int32_t num_calls = coll_bench_calls(collective_bytes(&run->collective));
    for (int32_t i = -run->options->num_warmups; i < num_iters; i++) {
        const int32_t span = i < 0 ? 0 : i; /* warm-ups are overwritten */
        MPI_Barrier(MPI_COMM_WORLD);
        run->starts[span] = clock_us();
        for (int32_t k = 0; k < num_calls; k++)
            call(run);
        run->ends[span] = clock_us();
    }
    MPI_Allreduce(MPI_IN_PLACE, run->starts, num_iters, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, run->ends, num_iters, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    for (int32_t i = 0; i < num_iters; i++)
        run->ends[i] = (run->ends[i] - run->starts[i]) / num_calls;
    return figures_of(run->ends, (size_t)num_iters);
}

/* One call into an output that was wiped; wrong elements of all ranks. */
static uint64_t check(const struct run *run, void *expected)
{
    const struct collective *collective = &run->collective;
    const uint64_t bytes = collective_recv_bytes(collective, run->rank);
    uint64_t first_wrong, num_wrong;
    memset(run->recv, 0xff, bytes);
    call(run);
    collective_expect(collective, run->rank, 0, bytes, expected);
    const int is_sent_from = collective->kind == WEFT_BROADCAST && run->rank == collective->root;
    num_wrong = elements_count_wrong(WEFT_FP32, is_sent_from ? run->send : run->recv, expected,
                                     bytes / sizeof(float), &first_wrong);
    MPI_Allreduce(MPI_IN_PLACE, &num_wrong, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    return num_wrong;
}

static void *alloc(size_t bytes)
{
    void *block = NULL;
    if (posix_memalign(&block, 64, bytes) != 0) {
        fprintf(stderr, "mpi_coll: out of memory\n");
        MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    }
    return block;
}

static uint64_t run_size(const struct coll_bench_options *options, weft_collective kind,
                         uint64_t bytes)
{
    char library[64];
    int rank, num_ranks;
    name_mpi_library(library, sizeof(library));
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &num_ranks);
    struct run run = {.options = options,
                      .collective = coll_bench_collective(kind, bytes, num_ranks),
                      .rank = rank,
                      .send = alloc(bytes),
                      .recv = alloc(bytes),
                      .starts = alloc(2 * (size_t)options->num_iters * sizeof(double))};
    void *expected = alloc(bytes);
    run.ends = run.starts + options->num_iters;
    elements_fill(&run.collective.source, rank, 0,
                  collective_send_bytes(&run.collective, rank) / sizeof(float), run.send);
    const struct coll_bench_result result = {.library = library,
                                             .options = options,
                                             .collective = &run.collective,
                                             .us = measure(&run),
                                             .num_wrong = (int64_t)check(&run, expected)};
    if (rank == 0)
        coll_bench_print(&result);
    free(run.send);
    free(run.recv);
    free(run.starts);
    free(expected);
    return (uint64_t)result.num_wrong;
}

int main(int argc, char **argv)
{
    struct coll_bench_options options;
    uint64_t num_wrong = 0;
    MPI_Init(&argc, &argv);
    coll_bench_options_parse(&options, "Collectives of Open MPI.", argc, argv);
    for (int32_t kind = 0; kind < options.kinds.count; kind++)
        for (int32_t size = 0; size < options.sizes.count; size++)
            num_wrong += run_size(&options, (weft_collective)options.kinds.values[kind],
                                  (uint64_t)options.sizes.values[size]);
    MPI_Finalize();
    return num_wrong == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
