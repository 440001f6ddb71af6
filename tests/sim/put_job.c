/* SPDX-License-Identifier: MIT */
#include "put_job.h"

#include <string.h>

#include "launch/programs.h"
#include "machine/host.h"

weft__program_fn weft__sim_planted_puts;

struct put_rank {
    struct put_job *job;
    int32_t number;
    weft_comm *comm;
    weft_stream *stream;
    void *area;
    uint64_t area_offset;
    unsigned char rows[PUT_MAX_ROWS][PUT_ROW_BYTES];
    unsigned char received[PUT_MAX_NODES][PUT_MAX_ROWS][PUT_ROW_BYTES];
};

static void fill_row(unsigned char *row, int32_t rank, int32_t number)
{
    for (int32_t i = 0; i < PUT_ROW_BYTES; i++)
        row[i] = (unsigned char)(1 + 64 * rank + 7 * number + i);
}

/* Memory of the heap is the network's, too, but nothing is drained before it is freed. */
static weft_result alloc_area(struct put_rank *rank)
{
    const size_t bytes = sizeof(struct put_area);
    weft_comm *comm = rank->comm;
    if (rank->job->memory == PUT_MEMORY_OF_NETWORK)
        return weft__machine_of(comm)->network_alloc(comm, bytes, &rank->area, &rank->area_offset);
    const weft_result result = weft_heap_alloc(comm, bytes, &rank->area);
    if (result != WEFT_OK)
        return result;
    WEFT__TRY(weft__machine_zero(comm, rank->area, bytes));
    return weft__heap_offset(comm->heap, rank->area, bytes, "area", &rank->area_offset);
}

static void free_area(struct put_rank *rank)
{
    if (rank->job->memory == PUT_MEMORY_OF_NETWORK)
        weft__machine_of(rank->comm)->network_free(rank->comm, rank->area);
    else
        (void)weft_heap_free(rank->comm, rank->area);
}

static weft_result open_rank(struct put_rank *rank)
{
    weft_result result = sim_job_open(&rank->job->sim, rank->number, &rank->comm);
    if (result == WEFT_OK && rank->job->goes_on)
        atomic_fetch_add(&rank->comm->status.num_tolerant, 1);
    if (result == WEFT_OK)
        result = alloc_area(rank);
    if (result == WEFT_OK)
        result = weft_stream_create(rank->comm, &rank->stream);
    if (result != WEFT_OK)
        return result;
    weft__sim_host_writes(rank->rows, sizeof rank->rows);
    for (int32_t row = 0; row < PUT_MAX_ROWS; row++)
        fill_row(rank->rows[row], rank->number, row);
    return weft_comm_host_barrier(rank->comm);
}

static weft_result launch_all(struct put_rank *rank)
{
    const struct put_job *job = rank->job;
    const struct weft__program program = {"puts", weft__sim_planted_puts};
    struct put_args args = {.area = rank->area,
                            .area_offset = rank->area_offset,
                            .rows = rank->rows[0],
                            .received = rank->received[0][0],
                            .rank = rank->number,
                            .num_nodes = job->sim.num_nodes,
                            .ranks_per_node = job->sim.ranks_per_node,
                            .form = job->form};
    const struct weft__launch launch = {.program = &program,
                                        .args = &args,
                                        .args_bytes = sizeof args,
                                        .grid = {.num_blocks = 1, .num_warps = PUT_WARPS},
                                        .comm = rank->comm,
                                        .on_failure = weft__program_failed};
    weft_result result = WEFT_OK;
    for (args.launch = 0; args.launch < job->num_launches && result == WEFT_OK; args.launch++)
        result = rank->stream->machine->launch(rank->stream, &launch);
    return result == WEFT_OK ? weft_stream_synchronize(rank->stream) : result;
}

/* In the rows that the other nodes have sent. */
static int has_wrong_rows(const struct put_rank *rank)
{
    const struct put_job *job = rank->job;
    const int32_t ranks_per_node = job->sim.ranks_per_node;
    int num_wrong = 0;
    weft__sim_host_reads(rank->received, sizeof rank->received);
    for (int32_t node = 0; node < job->sim.num_nodes; node++) {
        const int32_t sender = node * ranks_per_node + rank->number % ranks_per_node;
        for (int32_t i = 0; i < job->num_launches * PUT_ROWS && sender != rank->number; i++) {
            unsigned char row[PUT_ROW_BYTES];
            fill_row(row, sender, i);
            num_wrong += memcmp(row, rank->received[node][i], sizeof row) != 0;
        }
    }
    return num_wrong > 0;
}

/* Only ranks of the own node are mapped. */
static int is_wrongly_mapped(const struct put_rank *rank)
{
    const int32_t ranks_per_node = rank->job->sim.ranks_per_node;
    int num_wrong = 0;
    for (int32_t other = 0; other < sim_job_num_ranks(&rank->job->sim); other++) {
        const int is_near = other / ranks_per_node == rank->number / ranks_per_node;
        num_wrong += is_near != (weft_heap_ptr(rank->comm, rank->area, other) != NULL);
    }
    return num_wrong > 0;
}

/* What this rank has freed is not given out again when one has died, who may have put something
 * there. */
static int allocates_without_the_dead(struct put_rank *rank)
{
    void *again;
    return atomic_load(&rank->comm->status.num_dead) > 0 &&
           weft_heap_alloc(rank->comm, sizeof(struct put_area), &again) == WEFT_OK;
}

/* For who goes on without it, which so does not free what it has put to others. */
static void wait_for_death(struct put_rank *rank)
{
    const struct sim_job *sim = &rank->job->sim;
    if (rank->job->goes_on && sim->fault == WEFT__SIM_KILL && sim->fault_rank == rank->number)
        (void)weft_comm_host_barrier(rank->comm);
}

static int close_rank(struct put_rank *rank)
{
    int failed = rank->stream != NULL && weft_stream_destroy(rank->stream) != WEFT_OK;
    if (rank->area != NULL)
        free_area(rank);
    if (rank->area != NULL && rank->job->goes_on)
        failed |= allocates_without_the_dead(rank);
    return failed | (rank->comm != NULL && weft_comm_destroy(rank->comm) != WEFT_OK);
}

static int run_rank(int32_t number, void *argument)
{
    struct put_rank rank = {.job = argument, .number = number};
    struct sim_job *sim = &rank.job->sim;
    weft_result result = open_rank(&rank);
    int failed = 0;
    if (result == WEFT_OK) {
        failed |= is_wrongly_mapped(&rank);
        result = launch_all(&rank);
        failed |= result == WEFT_OK ? has_wrong_rows(&rank)
                                    : sim_job_blames_another(sim, number, rank.comm);
    }
    failed |= sim_job_part(sim, number, rank.comm, result);
    wait_for_death(&rank);
    return failed | close_rank(&rank);
}

void put_job_run(struct put_job *job, uint64_t seed, struct weft__sim_result *result)
{
    sim_job_run(&job->sim, run_rank, job, seed, result);
}
