/* SPDX-License-Identifier: MIT */
/* Times one MoE layer's dispatch and combine done with Open MPI, over the routing that ep_bench
 * --measure layer uses, and prints one JSON line. An iteration lasts from the first rank's start
 * to the last rank's end. */
#include <stdio.h>
#include <stdlib.h>

#include "mpi_exchange.h"
#include "mpi_library.h"
#include "options.h"
#include "plan.h"
#include "workload/clock.h"
#include "workload/figures.h"

struct measurement {
    struct mpi_exchange exchange;
    struct mpi_batch batch;
    uint16_t *x, *out;
    double *starts, *ends; /* [num_iters] */
};

static int measurement_init(struct measurement *m, const struct bench_options *options,
                            const struct plan *plan, int32_t rank)
{
    const struct mpi_exchange_shape shape = {.num_ranks = plan->num_ranks,
                                             .rank = rank,
                                             .num_tokens = plan->num_tokens,
                                             .hidden = options->hidden,
                                             .num_topk = options->num_topk,
                                             .num_experts = options->num_experts};
    const size_t bytes = (size_t)(plan->num_tokens + 1) * plan->row_bytes;
    const int64_t first_token = (int64_t)rank * plan->num_tokens;
    m->x = malloc(bytes);
    m->out = malloc(bytes);
    m->starts = malloc(2 * (size_t)options->num_iters * sizeof(double));
    if (m->x == NULL || m->out == NULL || m->starts == NULL)
        return -1;
    m->ends = m->starts + options->num_iters;
    m->batch =
        (struct mpi_batch){.x = m->x,
                           .topk_idx = ep_routing_topk_idx(&plan->routing, first_token),
                           .topk_weights = ep_routing_topk_weights(&plan->routing, first_token)};
    plan_fill(plan, rank, m->x);
    return mpi_exchange_init(&m->exchange, &shape);
}

static void measure(struct measurement *m, const struct bench_options *options)
{
    for (int32_t i = -options->num_warmups; i < options->num_iters; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        const double start = clock_us();
        mpi_dispatch(&m->exchange, &m->batch);
        mpi_combine(&m->exchange, m->exchange.recv_rows, m->out);
        const double end = clock_us();
        if (i < 0)
            continue;
        m->starts[i] = start;
        m->ends[i] = end;
    }
}

static void print_figures(struct measurement *m, const struct bench_options *options,
                          int32_t num_ranks, int64_t num_errors)
{
    for (int32_t i = 0; i < options->num_iters; i++)
        m->ends[i] -= m->starts[i];
    const struct figures us = figures_of(m->ends, (size_t)options->num_iters);
    char library[64];
    name_mpi_library(library, sizeof(library));
    printf("{\"op\": \"layer\", \"library\": \"%s\", \"ranks\": %d, "
           "\"tokens\": %d, \"hidden\": %d, \"topk\": %d, \"experts\": %d, \"iters\": %d, "
           "\"us_min\": %.1f, \"us_median\": %.1f, \"us_max\": %.1f, \"errors\": %lld}\n",
           library, num_ranks, options->num_tokens, options->hidden, options->num_topk,
           options->num_experts, options->num_iters, us.min, us.median, us.max,
           (long long)num_errors);
}

/* Collects on rank 0 when each iteration began and ended, and how many rows are wrong. */
static int64_t gather_results(struct measurement *m, const struct bench_options *options,
                              const struct plan *plan, int32_t rank)
{
    int64_t num_errors = plan_check_received(plan, rank, m->exchange.recv_rows);
    num_errors += plan_check_combined(plan, rank, m->out);
    int64_t total = 0;
    MPI_Allreduce(&num_errors, &total, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, m->starts, options->num_iters, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, m->ends, options->num_iters, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return total;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int num_ranks;
    int rank;
    MPI_Comm_size(MPI_COMM_WORLD, &num_ranks);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    struct bench_options options;
    bench_options_parse(&options, argc, argv);

    struct plan plan;
    struct measurement m = {0};
    if (plan_init(&plan, &options, num_ranks) != 0 ||
        measurement_init(&m, &options, &plan, rank) != 0) {
        fprintf(stderr, "mpi_layer: out of memory\n");
        MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    }
    measure(&m, &options);
    const int64_t num_errors = gather_results(&m, &options, &plan, rank);
    if (rank == 0)
        print_figures(&m, &options, num_ranks, num_errors);

    mpi_exchange_destroy(&m.exchange);
    free(m.x);
    free(m.out);
    free(m.starts);
    plan_destroy(&plan);
    MPI_Finalize();
    return num_errors == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
