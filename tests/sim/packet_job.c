/* SPDX-License-Identifier: MIT */
#include "packet_job.h"

#include <string.h>

#include "launch/programs.h"
#include "machine/float_bits.h"
#include "machine/host.h"

weft__program_fn weft__sim_planted_packets;

struct packet_rank {
    struct packet_job *job;
    int32_t number;
    weft_comm *comm;
    weft_stream *streams[PACKET_MAX_STREAMS];
    weft_event *event;
    void *area;
    int32_t num_wrong;
    /* By launch, from 1. */
    unsigned char own[PACKET_MAX_LAUNCHES + 1][PACKET_ROW_BYTES];
    unsigned char rows[PACKET_MAX_LAUNCHES + 1][PACKET_RANKS][PACKET_ROW_BYTES];
};

/* Some of the packets are the two that cannot be stored as they are; the last element's sum tells
 * in which order it was made. */
static void fill_row(unsigned char *row, int32_t rank, int32_t launch)
{
    static const float last[PACKET_RANKS] = {1.0f, 1e8f, -1e8f};
    const uint64_t escaped[] = {WP_PACKET_KEY(0), WP_PACKET_KEY(0) ^ WP_PACKET_ESCAPE};
    for (int32_t i = 0; i < PACKET_ROW_BYTES; i++)
        row[i] = (unsigned char)(64 * rank + 16 * launch + i);
    for (int32_t i = 0; i < 2; i++)
        memcpy(row + (size_t)((rank + launch + i) % 3) * WP_PACKET_BYTES, &escaped[i],
               WP_PACKET_BYTES);
    memcpy(row + PACKET_ROW_BYTES - sizeof(float), &last[rank], sizeof(float));
}

static int32_t num_streams(const struct packet_job *job)
{
    return job->streams == PACKETS_ONE_STREAM ? 1 : PACKET_MAX_STREAMS;
}

static weft_result open_rank(struct packet_rank *rank)
{
    weft_result result = sim_job_open(&rank->job->sim, rank->number, &rank->comm);
    if (result == WEFT_OK)
        result = weft_heap_alloc(rank->comm, sizeof(struct packet_area), &rank->area);
    for (int32_t i = 0; i < num_streams(rank->job) && result == WEFT_OK; i++)
        result = weft_stream_create(rank->comm, &rank->streams[i]);
    if (result == WEFT_OK)
        result = weft_event_create(rank->comm, &rank->event);
    if (result != WEFT_OK)
        return result;
    weft__sim_host_writes(rank->area, sizeof(struct packet_area));
    memset(rank->area, rank->job->form == PACKETS_DIRTY, sizeof(struct packet_area));
    for (int32_t launch = 1; launch <= rank->job->num_launches; launch++) {
        fill_row(rank->own[launch], rank->number, launch);
        fill_row(rank->rows[launch][rank->number], rank->number, launch);
    }
    weft__sim_host_writes(rank->own, sizeof rank->own);
    weft__sim_host_writes(rank->rows, sizeof rank->rows);
    weft__sim_host_writes(&rank->num_wrong, sizeof rank->num_wrong);
    return weft_comm_host_barrier(rank->comm);
}

static weft_result launch_one(struct packet_rank *rank, int32_t number)
{
    const struct packet_job *job = rank->job;
    const struct weft__program program = {"packets", weft__sim_planted_packets};
    struct packet_args args = {.own = rank->own[number],
                               .rows = rank->rows[number][0],
                               .num_wrong = &rank->num_wrong,
                               .rank = rank->number,
                               .form = job->form,
                               .sequence = (uint64_t)number,
                               .num_launches = (uint64_t)job->num_launches};
    const struct weft__launch launch = {
        .program = &program,
        .args = &args,
        .args_bytes = sizeof args,
        .grid = {.num_blocks = 1, .num_warps = job->form == PACKETS_TWO_TAKERS ? 2 : 1},
        .comm = rank->comm,
        .on_failure = weft__program_failed};
    for (int32_t other = 0; other < PACKET_RANKS; other++)
        args.areas[other] = weft_heap_ptr(rank->comm, rank->area, other);
    weft_stream *stream = rank->streams[number % num_streams(job)];
    weft_result result = WEFT_OK;
    if (job->streams == PACKETS_ORDERED_STREAMS)
        result = weft_stream_wait_event(stream, rank->event);
    if (result == WEFT_OK)
        result = stream->machine->launch(stream, &launch);
    return result == WEFT_OK ? weft_event_record(rank->event, stream) : result;
}

static weft_result launch_all(struct packet_rank *rank)
{
    weft_result result = WEFT_OK;
    for (int32_t i = 1; i <= rank->job->num_launches && result == WEFT_OK; i++)
        result = launch_one(rank, i);
    for (int32_t i = 0; i < num_streams(rank->job) && result == WEFT_OK; i++)
        result = weft_stream_synchronize(rank->streams[i]);
    return result;
}

static int is_wrong_row(const struct packet_rank *rank, int32_t launch, int32_t sender)
{
    unsigned char row[PACKET_ROW_BYTES];
    fill_row(row, sender, launch);
    return memcmp(row, rank->rows[launch][sender], sizeof row) != 0;
}

static int is_wrong_sum(const struct packet_rank *rank, int32_t launch)
{
    float rows[PACKET_RANKS][PACKET_ROW_BYTES / sizeof(float)];
    uint32_t sums[PACKET_ROW_BYTES / sizeof(float)];
    for (int32_t sender = 0; sender < PACKET_RANKS; sender++)
        fill_row((unsigned char *)rows[sender], sender, launch);
    for (size_t i = 0; i < PACKET_ROW_BYTES / sizeof(float); i++)
        sums[i] = weft__canonical_float_bits(rows[0][i] + rows[1][i] + rows[2][i]);
    return memcmp(sums, rank->rows[launch][rank->number], sizeof sums) != 0;
}

static int has_wrong_rows(const struct packet_rank *rank)
{
    int num_wrong = 0;
    weft__sim_host_reads(rank->rows, sizeof rank->rows);
    for (int32_t launch = 1; launch <= rank->job->num_launches; launch++) {
        if (rank->job->form == PACKETS_CHAIN)
            continue; /* not all come */
        if (rank->job->form == PACKETS_REDUCED) {
            num_wrong += is_wrong_sum(rank, launch);
            continue;
        }
        for (int32_t sender = 0; sender < PACKET_RANKS; sender++)
            num_wrong += is_wrong_row(rank, launch, sender);
    }
    return num_wrong > 0;
}

static int close_rank(struct packet_rank *rank)
{
    int failed = 0;
    for (int32_t i = 0; i < num_streams(rank->job); i++)
        failed |= rank->streams[i] != NULL && weft_stream_destroy(rank->streams[i]) != WEFT_OK;
    failed |= rank->event != NULL && weft_event_destroy(rank->event) != WEFT_OK;
    failed |= rank->area != NULL && rank->job->form != PACKETS_UNTAKEN_LEFT &&
              weft_heap_free(rank->comm, rank->area) != WEFT_OK;
    return failed | (rank->comm != NULL && weft_comm_destroy(rank->comm) != WEFT_OK);
}

static int run_rank(int32_t number, void *argument)
{
    struct packet_rank rank = {.job = argument, .number = number};
    struct sim_job *sim = &rank.job->sim;
    weft_result result = open_rank(&rank);
    int failed = 0;
    if (result == WEFT_OK) {
        result = launch_all(&rank);
        failed |= result == WEFT_OK ? has_wrong_rows(&rank)
                                    : sim_job_blames_another(sim, number, rank.comm);
    }
    failed |= rank.num_wrong > 0;
    failed |= sim_job_part(sim, number, rank.comm, result);
    return failed | close_rank(&rank);
}

void packet_job_run(struct packet_job *job, uint64_t seed, struct weft__sim_result *result)
{
    job->sim.num_nodes = 1;
    job->sim.ranks_per_node = PACKET_RANKS;
    job->sim.weakened_site = WEFT__SIM_NO_SITE;
    sim_job_run(&job->sim, run_rank, job, seed, result);
}
