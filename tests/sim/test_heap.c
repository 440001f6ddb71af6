/* SPDX-License-Identifier: MIT */
/* Whose memory a heap is, when one rank is done with it and another is not: the life of a block in
 * one communicator, told and awaited through another. */
#include <string.h>

#include "harness/cmocka.h"
#include "job.h"
#include "launch/programs.h"

/* Blocks are as long as they are aligned, so that the allocator puts them side by side. */
enum { NUM_SEEDS = 50, WRITER = 0, OWNER = 1, BLOCK_BYTES = 4096 };

static struct weft__sim_result result; /* large */

/* Before the writer writes. */
enum fate {
    FATE_KEPT,
    FATE_FREED,
    FATE_FREED_THEN_DESTROYED,
    FATE_FREED_AFTER_FAILURE, /* that the writer has not looked at */
    FATE_DESTROYED_BY_OWNER,
    FATE_DESTROYED_BY_WRITER,
    FATE_BEHIND /* which nobody has allocated */
};

struct heap_job {
    enum fate fate;
    enum weft__sim_fault fault; /* of the writer, at the start */
    weft_unique_id ids[2];
};

struct heap_rank {
    int32_t number;
    weft_comm *comm, *other_comm; /* the block is in the heap of the second */
    weft_stream *stream;
    void *block;
    void *next_block; /* whoever writes behind the block does not get there */
};

static int open_rank(struct heap_rank *rank, const struct heap_job *job)
{
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    config.timeout_ms = 2 * 60 * 60 * 1000; /* longer than a stall */
    return weft_comm_create(&job->ids[0], rank->number, JOB_RANKS, &config, &rank->comm) !=
               WEFT_OK ||
           weft_comm_create(&job->ids[1], rank->number, JOB_RANKS, &config, &rank->other_comm) !=
               WEFT_OK ||
           weft_heap_alloc(rank->other_comm, BLOCK_BYTES, &rank->block) != WEFT_OK ||
           weft_heap_alloc(rank->other_comm, BLOCK_BYTES, &rank->next_block) != WEFT_OK ||
           weft_stream_create(rank->comm, &rank->stream) != WEFT_OK ||
           weft_comm_host_barrier(rank->comm) != WEFT_OK;
}

static int destroy_other(struct heap_rank *rank)
{
    weft_comm *comm = rank->other_comm;
    rank->other_comm = NULL;
    return comm != NULL && weft_comm_destroy(comm) != WEFT_OK;
}

static int meet_fate(struct heap_rank *rank, enum fate fate)
{
    const int is_owner = rank->number == OWNER;
    int failed = 0;
    if (is_owner && fate == FATE_FREED_AFTER_FAILURE)
        failed |= weft_comm_abort(rank->other_comm) != WEFT_OK;
    if (is_owner && (fate == FATE_FREED || fate == FATE_FREED_THEN_DESTROYED ||
                     fate == FATE_FREED_AFTER_FAILURE))
        failed |= weft_heap_free(rank->other_comm, rank->block) != WEFT_OK;
    if ((is_owner && (fate == FATE_DESTROYED_BY_OWNER || fate == FATE_FREED_THEN_DESTROYED)) ||
        (!is_owner && fate == FATE_DESTROYED_BY_WRITER))
        failed |= destroy_other(rank);
    return failed;
}

static int launch(struct heap_rank *rank, weft__program_fn *function, const struct job_args *args)
{
    const struct weft__program program = {"test", function};
    const struct weft__launch request = {.program = &program,
                                         .args = args,
                                         .args_bytes = sizeof *args,
                                         .grid = {.num_blocks = 1, .num_warps = 1},
                                         .comm = rank->comm,
                                         .on_failure = weft__program_failed};
    return rank->stream->machine->launch(rank->stream, &request) != WEFT_OK ||
           weft_stream_synchronize(rank->stream) != WEFT_OK;
}

static int write_late(struct heap_rank *rank, void *block)
{
    const struct job_args args = {.other = block, .rank = rank->number};
    return launch(rank, weft__sim_late_write, &args);
}

static int close_rank(struct heap_rank *rank)
{
    int failed = weft_comm_host_barrier(rank->comm) != WEFT_OK;
    failed |= destroy_other(rank);
    failed |= weft_stream_destroy(rank->stream) != WEFT_OK;
    return failed | (weft_comm_destroy(rank->comm) != WEFT_OK);
}

static int meet_and_write(int32_t number, void *argument)
{
    const struct heap_job *job = argument;
    struct heap_rank rank = {.number = number};
    if (open_rank(&rank, job))
        return 1;
    char *block = weft_heap_ptr(rank.other_comm, rank.block, OWNER);
    int failed = meet_fate(&rank, job->fate);
    failed |= weft_comm_host_barrier(rank.comm) != WEFT_OK;
    failed |= write_late(&rank, job->fate == FATE_BEHIND ? block + BLOCK_BYTES : block);
    return failed | close_rank(&rank);
}

/* The values of signals begin anew in a block that is freed and allocated again. */
static int signal_twice(int32_t number, void *argument)
{
    struct heap_rank rank = {.number = number};
    struct job_state state = {.num_wrong = 0};
    int failed = open_rank(&rank, argument);
    for (int32_t i = 0; i < 2 && !failed; i++) {
        struct job_args args = {.own = rank.block,
                                .other = weft_heap_ptr(rank.other_comm, rank.block, 1 - number),
                                .state = &state,
                                .rank = number,
                                .form = FORM_CORRECTED};
        weft__sim_host_writes(rank.block, sizeof(struct job_area));
        memset(rank.block, 0, sizeof(struct job_area));
        failed |= weft_comm_host_barrier(rank.comm) != WEFT_OK;
        for (args.sequence = 1; args.sequence <= 3; args.sequence++)
            failed |= launch(&rank, weft__sim_planted_signal, &args);
        failed |= weft_comm_host_barrier(rank.comm) != WEFT_OK;
        failed |= weft_heap_free(rank.other_comm, rank.block) != WEFT_OK;
        failed |= weft_heap_alloc(rank.other_comm, BLOCK_BYTES, &rank.block) != WEFT_OK;
    }
    return failed | state.num_wrong | close_rank(&rank);
}

static void run(int (*rank_main)(int32_t, void *), struct heap_job *job, uint64_t seed)
{
    const struct weft__sim_config config = {.seed = seed,
                                            .policy = WEFT__SIM_MIXED,
                                            .num_ranks = JOB_RANKS,
                                            .rank_main = rank_main,
                                            .argument = job,
                                            .weakened_site = WEFT__SIM_NO_SITE,
                                            .fault = job->fault,
                                            .fault_rank = WRITER};
    assert_ok(weft_unique_id_create(&job->ids[0]));
    assert_ok(weft_unique_id_create(&job->ids[1]));
    assert_int_equal(weft__sim_run(&config, &result), 0);
    assert_int_equal(result.num_wrong + result.num_hangs, 0);
}

/* told: by the report; "": nothing at all. */
static void check_job(struct heap_job job, const char *told)
{
    for (uint64_t seed = 0; seed < NUM_SEEDS; seed++) {
        run(meet_and_write, &job, seed);
        assert_int_equal(result.num_races, told[0] != '\0');
        if (told[0] == '\0')
            assert_string_equal(result.report, "");
        else
            assert_non_null(strstr(result.report, told));
    }
}

static void check_fate(enum fate fate, const char *told)
{
    check_job((struct heap_job){.fate = fate}, told);
}

TEST(a_word_that_is_allocated_again_has_no_past)
{
    struct heap_job job = {.fate = FATE_FREED};
    for (uint64_t seed = 0; seed < NUM_SEEDS; seed++) {
        run(signal_twice, &job, seed);
        assert_string_equal(result.report, "");
    }
}

TEST(a_block_can_be_written_until_it_is_freed)
{
    check_fate(FATE_KEPT, "");
    check_fate(FATE_FREED, "has been freed");
    check_fate(FATE_FREED_THEN_DESTROYED, "has been freed");
    check_fate(FATE_BEHIND, "not allocated");
}

TEST_CALL(a_rank_that_was_stalled_may_no_more_than_others,
          check_job((struct heap_job){.fate = FATE_FREED, .fault = WEFT__SIM_STALL},
                    "has been freed"))
TEST_CALL(what_is_freed_after_a_failure_is_nobodys, check_fate(FATE_FREED_AFTER_FAILURE, ""))

TEST(a_heap_is_mapped_until_the_one_who_maps_it_has_gone)
{
    check_fate(FATE_DESTROYED_BY_OWNER, "");
    check_fate(FATE_DESTROYED_BY_WRITER, "communicator that the rank has destroyed");
}
