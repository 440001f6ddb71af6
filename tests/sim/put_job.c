/* SPDX-License-Identifier: MIT */
#include "put_job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "machine/host.h"
#include "ops/programs.h"

weft__program_fn weft__sim_planted_puts;

/* Virtual time. The survivors of a fault come to their meeting up to a deadline apart. */
enum { TIMEOUT_MS = 1000, SURVIVORS_TIMEOUT_MS = 60000 };

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

static int32_t num_ranks(const struct put_job *job)
{
    return job->num_nodes * job->ranks_per_node;
}

static void fill_row(unsigned char *row, int32_t rank, int32_t number)
{
    for (int32_t i = 0; i < PUT_ROW_BYTES; i++)
        row[i] = (unsigned char)(1 + 64 * rank + 7 * number + i);
}

static weft_result open_comm(struct put_rank *rank)
{
    const struct put_job *job = rank->job;
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    config.timeout_ms = TIMEOUT_MS;
    config.num_nodes = job->num_nodes;
    return weft_comm_create(&job->id, rank->number, num_ranks(job), &config, &rank->comm);
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
    weft_result result = open_comm(rank);
    if (result == WEFT_OK)
        result = alloc_area(rank);
    if (result == WEFT_OK)
        result = weft_stream_create(rank->comm, &rank->stream);
    if (result != WEFT_OK)
        return result;
    weft__sim_host_writes(rank->rows, sizeof rank->rows);
    for (int32_t row = 0; row < PUT_MAX_ROWS; row++)
        fill_row(rank->rows[row], rank->number, row);
    return weft_host_barrier(rank->comm);
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
                            .num_nodes = job->num_nodes,
                            .ranks_per_node = job->ranks_per_node,
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
    int num_wrong = 0;
    weft__sim_host_reads(rank->received, sizeof rank->received);
    for (int32_t node = 0; node < job->num_nodes; node++) {
        const int32_t sender = node * job->ranks_per_node + rank->number % job->ranks_per_node;
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
    const int32_t ranks_per_node = rank->job->ranks_per_node;
    int num_wrong = 0;
    for (int32_t other = 0; other < num_ranks(rank->job); other++) {
        const int is_near = other / ranks_per_node == rank->number / ranks_per_node;
        num_wrong += is_near != (weft_ptr(rank->comm, rank->area, other) != NULL);
    }
    return num_wrong > 0;
}

static int blames_another(struct put_rank *rank)
{
    int32_t failed_rank = -1;
    rank->job->num_failed++;
    return weft_comm_status(rank->comm, &failed_rank) == WEFT_OK ||
           failed_rank != rank->job->fault_rank;
}

/* So that no survivor takes another's leaving for the fault. */
static int meet_survivors(const struct put_rank *rank)
{
    weft_comm *comm;
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    config.timeout_ms = SURVIVORS_TIMEOUT_MS;
    const int32_t number = rank->number - (rank->number > rank->job->fault_rank);
    return weft_comm_create(&rank->job->survivors_id, number, num_ranks(rank->job) - 1, &config,
                            &comm) != WEFT_OK ||
           weft_comm_destroy(comm) != WEFT_OK;
}

static int close_rank(struct put_rank *rank)
{
    int failed = rank->stream != NULL && weft_stream_destroy(rank->stream) != WEFT_OK;
    if (rank->area != NULL)
        free_area(rank);
    return failed | (rank->comm != NULL && weft_comm_destroy(rank->comm) != WEFT_OK);
}

static int run_rank(int32_t number, void *argument)
{
    struct put_rank rank = {.job = argument, .number = number};
    weft_result result = open_rank(&rank);
    const int is_open = result == WEFT_OK;
    int failed = is_open && is_wrongly_mapped(&rank);
    if (result == WEFT_OK)
        result = launch_all(&rank);
    failed |= result == WEFT_OK && has_wrong_rows(&rank);
    if (rank.job->fault == WEFT__SIM_NO_FAULT) {
        failed |= result != WEFT_OK || weft_host_barrier(rank.comm) != WEFT_OK;
    } else if (number != rank.job->fault_rank) {
        failed |= is_open && result != WEFT_OK && blames_another(&rank);
        failed |= meet_survivors(&rank);
    }
    return failed | close_rank(&rank);
}

void put_job_run(struct put_job *job, uint64_t seed, struct weft__sim_result *result)
{
    const struct weft__sim_config config = {.seed = seed,
                                            .policy = WEFT__SIM_MIXED,
                                            .num_ranks = num_ranks(job),
                                            .rank_main = run_rank,
                                            .argument = job,
                                            .weakened_site = job->weakened_site,
                                            .fault = job->fault,
                                            .fault_rank = job->fault_rank,
                                            .fault_step = job->fault_step};
    job->num_failed = 0;
    assert_int_equal(weft_unique_id_create(&job->id), WEFT_OK);
    assert_int_equal(weft_unique_id_create(&job->survivors_id), WEFT_OK);
    assert_int_equal(weft__sim_run(&config, result), 0);
}
