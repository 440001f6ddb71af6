/* SPDX-License-Identifier: MIT */
/* One-sided accesses on the sim, from programs and from streams: right ones are clean, those that
 * take a put for done too early are found, and each of their ordering sites is needed. */
#include <string.h>

#include "harness/cmocka.h"
#include "launch/programs.h"
#include "machine/host.h"
#include "memory/windows.h"
#include "planted_accesses.h"
#include "sim_job.h"

weft__program_fn weft__sim_planted_accesses;

enum { NUM_SEEDS = 200, NUM_SEEDS_RIGHT = 400, LONG_BYTES = WP_ONE_SIDED_CHUNK_BYTES + 40 };

struct job {
    enum access_form form;
    struct sim_job sim;
    uint64_t tickets[2][ACCESS_MAX_RANKS]; /* of programs, of streams */
};

struct job_rank {
    struct job *job;
    int32_t number;
    weft_comm *comm;
    weft_stream *stream;
    struct access_area *area;
    unsigned char *long_row; /* in the heap */
    int32_t num_wrong[WP_WARP_SIZE];
};

static struct weft__sim_result result; /* large */

static weft_result open_rank(struct job_rank *rank)
{
    void *area, *long_row;
    WEFT__TRY(sim_job_open(&rank->job->sim, rank->number, &rank->comm));
    WEFT__TRY(weft_heap_alloc(rank->comm, sizeof *rank->area, &area));
    WEFT__TRY(weft_heap_alloc(rank->comm, 2 * LONG_BYTES, &long_row));
    rank->area = area;
    rank->long_row = long_row;
    WEFT__TRY(weft__machine_zero(rank->comm, area, sizeof *rank->area));
    WEFT__TRY(weft_stream_create(rank->comm, &rank->stream));
    weft__sim_host_writes(rank->area->call_draft, ACCESS_LETTER_BYTES);
    memset(rank->area->call_draft, 1 + rank->number, ACCESS_LETTER_BYTES);
    weft__sim_host_writes(rank->long_row, LONG_BYTES);
    memset(rank->long_row, 1 + rank->number, LONG_BYTES);
    return weft_comm_host_barrier(rank->comm);
}

static weft_result launch(struct job_rank *rank)
{
    const struct weft__program program = {"accesses", weft__sim_planted_accesses};
    struct access_args args = {
        .heaps = {rank->number, sim_job_num_ranks(&rank->job->sim), rank->comm->windows->table},
        .area = rank->area,
        .num_wrong = rank->num_wrong,
        .ticket = &rank->job->tickets[0][rank->number],
        .form = rank->job->form};
    WEFT__TRY(weft__heap_offset(rank->comm->heap, rank->area, sizeof *rank->area, "area",
                                &args.area_offset));
    const struct weft__launch request = {.program = &program,
                                         .args = &args,
                                         .args_bytes = sizeof args,
                                         .grid = {.num_blocks = 1, .num_warps = 1},
                                         .comm = rank->comm,
                                         .on_failure = weft__program_failed};
    return rank->stream->machine->launch(rank->stream, &request);
}

/* To the next rank, which reads its letter, and the draft that it was a copy of. */
static weft_result call_all(struct job_rank *rank)
{
    weft_comm *comm = rank->comm;
    weft_stream *stream = rank->stream;
    struct access_area *area = rank->area;
    const int32_t num_ranks = sim_job_num_ranks(&rank->job->sim);
    const int32_t next = (rank->number + 1) % num_ranks;
    const int32_t previous = (rank->number + num_ranks - 1) % num_ranks;
    const int is_fenced = rank->number % 2;
    WEFT__TRY(weft_rma_put(comm,
                           WEFT_ARGS(weft_rma_args, .dst = rank->long_row + LONG_BYTES,
                                     .src = rank->long_row, .bytes = LONG_BYTES, .rank = next),
                           stream));
    if (is_fenced)
        WEFT__TRY(
            weft_rma_put(comm,
                         WEFT_ARGS(weft_rma_args, .dst = area->called, .src = area->call_draft,
                                   .bytes = ACCESS_LETTER_BYTES, .rank = next),
                         stream));
    WEFT__TRY(weft_rma_fence(comm, stream));
    WEFT__TRY(is_fenced ? weft_rma_signal(comm,
                                          WEFT_ARGS(weft_rma_args, .word = &area->num_called,
                                                    .value = 1, .rank = next),
                                          stream)
                        : weft_rma_put_signal(
                              comm,
                              WEFT_ARGS(weft_rma_args, .dst = area->called, .src = area->call_draft,
                                        .bytes = ACCESS_LETTER_BYTES, .word = &area->num_called,
                                        .value = 1, .rank = next),
                              stream));
    WEFT__TRY(weft_rma_wait_until(
        comm, WEFT_ARGS(weft_rma_args, .word = &area->num_called, .value = 1), stream));
    WEFT__TRY(
        weft_rma_get(comm,
                     WEFT_ARGS(weft_rma_args, .dst = area->call_fetched, .src = area->call_draft,
                               .bytes = ACCESS_LETTER_BYTES, .rank = previous),
                     stream));
    WEFT__TRY(
        weft_rma_fetch_add(comm,
                           WEFT_ARGS(weft_rma_args, .before = &area->called_ticket,
                                     .word = &area->num_tickets, .value = 1, .rank = num_ranks - 1),
                           stream));
    WEFT__TRY(weft_rma_quiet(comm, stream));
    return weft_stream_synchronize(stream);
}

static int has_wrong_letters(struct job_rank *rank)
{
    struct access_area *area = rank->area;
    const int32_t num_ranks = sim_job_num_ranks(&rank->job->sim);
    const int from = 1 + (rank->number + num_ranks - 1) % num_ranks;
    int num_wrong = rank->num_wrong[0] + rank->num_wrong[1];
    weft__sim_host_reads(area->called, ACCESS_LETTER_BYTES);
    weft__sim_host_reads(area->call_fetched, ACCESS_LETTER_BYTES);
    weft__sim_host_reads(rank->long_row + LONG_BYTES, LONG_BYTES);
    for (int i = 0; i < ACCESS_LETTER_BYTES; i++)
        num_wrong += area->called[i] != from || area->call_fetched[i] != from;
    for (int i = 0; i < LONG_BYTES; i++)
        num_wrong += rank->long_row[LONG_BYTES + i] != from;
    weft__sim_host_reads(&area->called_ticket, sizeof area->called_ticket);
    rank->job->tickets[1][rank->number] = area->called_ticket;
    return num_wrong > 0;
}

static int run_rank(int32_t number, void *argument)
{
    struct job_rank rank = {.job = argument, .number = number};
    int failed = open_rank(&rank) != WEFT_OK || launch(&rank) != WEFT_OK ||
                 call_all(&rank) != WEFT_OK || has_wrong_letters(&rank);
    failed |= weft_comm_host_barrier(rank.comm) != WEFT_OK;
    failed |= weft_stream_destroy(rank.stream) != WEFT_OK;
    failed |= weft_heap_free(rank.comm, rank.long_row) != WEFT_OK;
    failed |= weft_heap_free(rank.comm, rank.area) != WEFT_OK;
    return failed | (weft_comm_destroy(rank.comm) != WEFT_OK);
}

static struct job job_of(enum access_form form, uint64_t seed)
{
    static const struct {
        int32_t num_nodes, ranks_per_node;
    } shapes[] = {{2, 2}, {1, 3}, {3, 1}, {4, 1}};
    return (struct job){.form = form,
                        .sim = {.num_nodes = shapes[seed % 4].num_nodes,
                                .ranks_per_node = shapes[seed % 4].ranks_per_node,
                                .weakened_site = WEFT__SIM_NO_SITE}};
}

/* Programs draw from rank 0's word, streams from the last rank's. */
static void check_tickets(const struct job *job)
{
    for (int source = 0; source < 2; source++) {
        uint32_t seen = 0;
        for (int32_t rank = 0; rank < sim_job_num_ranks(&job->sim); rank++)
            seen |= 1u << job->tickets[source][rank];
        assert_int_equal(seen, (1u << sim_job_num_ranks(&job->sim)) - 1);
    }
}

TEST(right_accesses_are_clean)
{
    for (uint64_t seed = 0; seed < NUM_SEEDS_RIGHT; seed++) {
        struct job job = job_of(ACCESSES_RIGHT, seed);
        sim_job_run(&job.sim, run_rank, &job, seed, &result);
        sim_expect_sound(&result, seed);
        check_tickets(&job);
    }
}

static void run_schedule(const void *form, uint64_t seed, int32_t weakened_site,
                         struct weft__sim_result *of_schedule)
{
    struct job job = job_of(*(const enum access_form *)form, seed);
    job.sim.weakened_site = weakened_site;
    sim_job_run(&job.sim, run_rank, &job, seed, of_schedule);
}

static void check_found(enum access_form form)
{
    const struct schedules schedules = {run_schedule, &form, NUM_SEEDS};
    assert_true(schedules_count_races(&schedules, "") > NUM_SEEDS / 4);
}

TEST_CALL(a_letter_read_before_its_signal_is_found, check_found(ACCESSES_NOT_AWAITED))
TEST_CALL(a_put_told_of_without_quiet_is_found, check_found(ACCESSES_NOT_QUIET))
TEST_CALL(a_word_that_nics_and_processors_add_to_is_found, check_found(ACCESSES_BY_ALL))

static int is_of_accesses(const struct weft__sim_site *site)
{
    static const char *const files[] = {"programs/one_sided/one_sided.h",
                                        "programs/one_sided/mapped.h",
                                        "programs/one_sided/mapped_access.c",
                                        "programs/one_sided/wait_until.c", "planted_accesses.c"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (strstr(site->file, files[i]) != NULL)
            return 1;
    return 0;
}

TEST(every_ordering_site_is_needed)
{
    const enum access_form form = ACCESSES_RIGHT;
    const struct schedules schedules = {run_schedule, &form, NUM_SEEDS};
    assert_true(schedules_expect_needed(&schedules, is_of_accesses) >= 10);
}
