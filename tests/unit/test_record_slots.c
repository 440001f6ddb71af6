/* SPDX-License-Identifier: MIT */
/* Slots that kernels write become times of the host's clock, say who came last, and count each run
 * once. The test plays the devices of three ranks, whose clocks are apart. */
#include <string.h>

#include "harness/cmocka.h"
#include "record/record.h"
#include "record/record_slots.h"

enum { NUM_RANKS = 3, US = 1000, MS = 1000 * US, OPERATION = 77 };
static const int64_t offset_ns = 1000 * (int64_t)MS;

struct scene {
    struct weft__records *records;
    struct weft__record_fold *fold;
    struct weft__record_slot slots[NUM_RANKS][WEFT__NUM_RECORD_SLOTS];
    int32_t num_reachable;
    int num_reads;
    struct {
        struct weft__record_slot *slot;
        int after_reads;
    } ends; /* a launch, when slots have been read so often */
};

static int read_slots(void *context, int32_t rank, struct weft__record_slot *slots)
{
    struct scene *scene = context;
    if (scene->num_reads++ == scene->ends.after_reads && scene->ends.slot != NULL)
        scene->ends.slot->num_running = 0;
    if (rank >= scene->num_reachable)
        return 0;
    memcpy(slots, scene->slots[rank], sizeof scene->slots[rank]);
    return 1;
}

static int64_t now_ns;

static int64_t read_clock(void)
{
    return now_ns;
}

static void fold_at(struct scene *scene, int64_t ns)
{
    const struct weft__slot_source source = {scene, read_slots, read_clock, 0, NUM_RANKS};
    now_ns = ns;
    weft__record_fold_slots(scene->fold, &source);
}

static void fold(struct scene *scene)
{
    fold_at(scene, INT64_MAX);
}

static void open_scene(struct scene *scene)
{
    memset(scene, 0, sizeof *scene);
    scene->num_reachable = NUM_RANKS;
    scene->records = weft__records_create((struct weft__records_size){512, NUM_RANKS, 2});
    scene->fold = weft__record_fold_create(scene->records, offset_ns);
    assert_non_null(scene->fold);
}

static void close_scene(struct scene *scene)
{
    weft__record_fold_destroy(scene->fold);
    weft__records_destroy(scene->records);
}

#define TEST_OF_SLOTS(name) TEST_WITH(name, struct scene, scene, open_scene, close_scene)

static uint64_t issue(struct scene *scene, int32_t state)
{
    return weft__records_issue(scene->records,
                               &(struct weft__record){.call = "weft_ep_dispatch",
                                                      .num_bytes = 10,
                                                      .meeting = WEFT__MEETS_ALL,
                                                      .issued_ns = 1,
                                                      .last_rank = WEFT__RECORD_NOBODY,
                                                      .state = state,
                                                      .call_idx = 1});
}

static struct weft__record_slot *slot_of(struct scene *scene, int32_t rank, uint64_t id)
{
    return &scene->slots[rank][id % WEFT__NUM_RECORD_SLOTS];
}

/* As a kernel does that came at a time of its device. */
static void run(struct weft__record_slot *slot, uint64_t id, uint64_t operation, uint64_t started,
                uint64_t ended)
{
    slot->record_id = id;
    slot->operation = operation;
    slot->started = started;
    slot->ended = ended;
    slot->num_runs++;
}

static struct weft__record record_of(struct scene *scene, uint64_t id)
{
    struct weft__record record;
    assert_true(weft__records_read(scene->records, id, &record));
    return record;
}

static struct weft__peer_counters peer_of(struct scene *scene, int32_t rank)
{
    struct weft__peer_counters peer;
    weft__records_peer(scene->records, rank, &peer);
    return peer;
}

TEST_OF_SLOTS(times_become_those_of_the_host)
{
    const uint64_t id = issue(scene, WEFT__RECORD_ISSUED);
    struct weft__record_slot *slot = slot_of(scene, 0, id);
    fold(scene);
    assert_int_equal(record_of(scene, id).state, WEFT__RECORD_ISSUED);
    slot->record_id = id;
    slot->started = 5 * US;
    slot->num_running = 4;
    fold(scene);
    assert_int_equal(record_of(scene, id).state, WEFT__RECORD_RUNNING);
    assert_int_equal(record_of(scene, id).started_ns, offset_ns + 5 * US);
    slot->num_running = 0;
    slot->ended = 9 * US;
    fold(scene);
    const struct weft__record record = record_of(scene, id);
    assert_int_equal(record.state, WEFT__RECORD_DONE);
    assert_int_equal(record.ended_ns, offset_ns + 9 * US);
    assert_int_equal(record.waited_ns, 0);
    assert_int_equal(record.last_rank, WEFT__RECORD_NOBODY);
    assert_int_equal(record.late_ns, 0);
}

/* All its blocks have subtracted themselves, but the first one has not added them yet, or the other
 * way round; or the times are those of the launch before. */
TEST_OF_SLOTS(what_has_not_ended_has_no_end)
{
    const uint64_t id = issue(scene, WEFT__RECORD_ISSUED);
    struct weft__record_slot *slot = slot_of(scene, 0, id);
    run(slot, id, 0, 7 * US, 6 * US);
    fold(scene);
    assert_int_equal(record_of(scene, id).state, WEFT__RECORD_RUNNING);
    assert_int_equal(record_of(scene, id).ended_ns, 0);
    slot->ended = 8 * US;
    slot->num_running = (uint32_t)-1;
    fold(scene);
    assert_int_equal(record_of(scene, id).state, WEFT__RECORD_RUNNING);
}

/* Clocks of the devices differ by hours. Slots of the ranks differ, too. */
TEST_OF_SLOTS(who_was_there_for_the_shortest_time_came_last)
{
    const uint64_t id = issue(scene, WEFT__RECORD_ISSUED);
    run(slot_of(scene, 0, id), id, OPERATION, 100 * MS, 103 * MS);
    run(slot_of(scene, 1, id + 40), id + 40, OPERATION, 9000000 * (uint64_t)MS,
        9000000 * (uint64_t)MS + 400 * US);
    run(slot_of(scene, 2, id + 250), id + 250, OPERATION, 5 * MS, 7 * MS);
    fold(scene);
    assert_int_equal(record_of(scene, id).last_rank, 1);
    assert_int_equal(record_of(scene, id).late_ns, 1600 * US);
    assert_int_equal(record_of(scene, id).waited_ns, 2600 * US);
    fold(scene); /* counts it no second time */
    assert_int_equal(peer_of(scene, 1).num_last, 1);
    assert_int_equal(peer_of(scene, 1).late_ns, 1600 * US);
    assert_int_equal(peer_of(scene, 1).num_waits, 1);
    assert_int_equal(peer_of(scene, 1).waited_ns, 2600 * US);
}

/* Ends are some microseconds apart. */
TEST_OF_SLOTS(small_differences_are_no_lateness)
{
    const uint64_t id = issue(scene, WEFT__RECORD_ISSUED);
    for (int32_t rank = 0; rank < NUM_RANKS; rank++)
        run(slot_of(scene, rank, id), id, OPERATION, 100 * MS,
            100 * MS + (uint64_t)(50 + rank * 9) * US);
    fold(scene);
    assert_int_equal(record_of(scene, id).state, WEFT__RECORD_DONE);
    assert_int_equal(record_of(scene, id).late_ns, 0);
    assert_int_equal(record_of(scene, id).waited_ns, 0);
}

/* Without the word of one that is there nobody is late; ranks of other hosts do not count. */
TEST_OF_SLOTS(all_ranks_of_the_host_must_be_known)
{
    const uint64_t first = issue(scene, WEFT__RECORD_ISSUED);
    run(slot_of(scene, 0, first), first, OPERATION, 100 * MS, 103 * MS);
    run(slot_of(scene, 1, first), first, OPERATION, 100 * MS, 101 * MS);
    fold(scene);
    assert_int_equal(record_of(scene, first).state, WEFT__RECORD_DONE);
    assert_int_equal(record_of(scene, first).late_ns, 0);
    scene->num_reachable = 2;
    const uint64_t second = issue(scene, WEFT__RECORD_ISSUED);
    run(slot_of(scene, 0, second), second, OPERATION + 1, 200 * MS, 203 * MS);
    run(slot_of(scene, 1, second), second, OPERATION + 1, 200 * MS, 201 * MS);
    fold(scene);
    assert_int_equal(record_of(scene, second).last_rank, 1);
    assert_int_equal(record_of(scene, second).late_ns, 2 * MS);
}

/* Nobody reads twice what is through. */
TEST_OF_SLOTS(what_has_ended_everywhere_is_read_once)
{
    fold(scene);
    assert_int_equal(scene->num_reads, 1); /* the rank's own slots: nothing is new */
    const uint64_t id = issue(scene, WEFT__RECORD_ISSUED);
    for (int32_t rank = 0; rank < NUM_RANKS; rank++)
        run(slot_of(scene, rank, id), id, OPERATION, 100 * MS, 103 * MS);
    fold(scene);
    assert_int_equal(scene->num_reads, 1 + NUM_RANKS);
    assert_int_equal(record_of(scene, id).state, WEFT__RECORD_DONE);
}

/* One that ended on this rank, and ends on rank 1 after the first look there. */
TEST_OF_SLOTS(an_operation_that_still_ends_elsewhere_is_read_once_more)
{
    const uint64_t id = issue(scene, WEFT__RECORD_ISSUED);
    for (int32_t rank = 0; rank < NUM_RANKS; rank++)
        run(slot_of(scene, rank, id), id, OPERATION, 100 * MS, (rank == 1 ? 101 : 103) * MS);
    slot_of(scene, 1, id)->num_running = 1;
    scene->ends.slot = slot_of(scene, 1, id);
    scene->ends.after_reads = NUM_RANKS;
    fold(scene);
    assert_int_equal(record_of(scene, id).state, WEFT__RECORD_DONE);
    assert_int_equal(record_of(scene, id).last_rank, 1);
    assert_int_equal(record_of(scene, id).late_ns, 2 * MS);
    assert_int_equal(peer_of(scene, 1).num_last, 1);
}

/* It may be stuck there: no third time. */
TEST_OF_SLOTS(an_operation_that_does_not_end_elsewhere_is_read_twice)
{
    const uint64_t id = issue(scene, WEFT__RECORD_ISSUED);
    for (int32_t rank = 0; rank < NUM_RANKS; rank++)
        run(slot_of(scene, rank, id), id, OPERATION, 200 * MS, (rank == 1 ? 201 : 203) * MS);
    slot_of(scene, 2, id)->num_running = 1;
    fold(scene);
    assert_int_equal(scene->num_reads, 1 + 2 * (NUM_RANKS - 1));
    assert_int_equal(record_of(scene, id).state, WEFT__RECORD_DONE);
    assert_int_equal(record_of(scene, id).late_ns, 0);
}

/* Each run that is seen counts; ranks must be at the same one. */
TEST_OF_SLOTS(the_newest_run_of_a_graph_counts)
{
    const uint64_t operation = OPERATION | WEFT__RECORD_IS_REPLAYED;
    const uint64_t id = issue(scene, WEFT__RECORD_CAPTURED);
    for (uint64_t round = 1; round <= 2; round++) {
        for (int32_t rank = 0; rank < NUM_RANKS; rank++)
            run(slot_of(scene, rank, id), id, operation, round * 100 * MS,
                round * 100 * MS + (rank == 1 ? 1 : 2) * MS);
        fold(scene);
        assert_int_equal(record_of(scene, id).started_ns, offset_ns + (int64_t)round * 100 * MS);
        assert_int_equal(peer_of(scene, 1).num_last, round);
    }
    run(slot_of(scene, 0, id), id, operation, 300 * MS, 302 * MS);
    fold(scene);
    assert_int_equal(record_of(scene, id).started_ns, offset_ns + 300 * MS);
    assert_int_equal(record_of(scene, id).late_ns, 0);
    assert_int_equal(peer_of(scene, 1).num_last, 2);
}

/* Its slot is written by a newer graph's launch, or its record has fallen out. */
TEST_OF_SLOTS(launches_without_a_record_are_left_out)
{
    run(slot_of(scene, 0, 5), 5, OPERATION, US, 2 * US);
    fold(scene);
    assert_int_equal(peer_of(scene, 0).num_last, 0);
}

/* The host writes it when it hears of it; the kernel ends all the same. */
TEST_OF_SLOTS(a_failure_stays)
{
    struct weft__record_totals totals;
    const struct weft__record failure = {.state = WEFT__RECORD_FAILED, .call_idx = 1};
    const uint64_t id = issue(scene, WEFT__RECORD_ISSUED);
    run(slot_of(scene, 0, id), id, OPERATION, US, 2 * US);
    weft__records_end(scene->records, id, &failure);
    fold(scene);
    assert_int_equal(record_of(scene, id).state, WEFT__RECORD_FAILED);
    weft__records_totals(scene->records, &totals);
    assert_int_equal(totals.num_failed, 1);
}

/* Neither before it was issued nor after it was read. */
TEST_OF_SLOTS(the_clock_is_corrected)
{
    const uint64_t id = issue(scene, WEFT__RECORD_ISSUED);
    run(slot_of(scene, 0, id), id, 0, 10 * MS, 20 * MS);
    fold_at(scene, offset_ns + 15 * MS);
    assert_int_equal(record_of(scene, id).ended_ns, offset_ns + 15 * MS);
    assert_int_equal(record_of(scene, id).started_ns, offset_ns + 5 * MS);
    const uint64_t next = weft__records_issue(
        scene->records,
        &(struct weft__record){.call = "weft_ep_dispatch", .issued_ns = offset_ns + 40 * MS});
    run(slot_of(scene, 0, next), next, 0, 30 * MS, 31 * MS);
    fold(scene);
    assert_int_equal(record_of(scene, next).started_ns, offset_ns + 40 * MS);
}

TEST_OF_SLOTS(runs_of_graphs_are_added_once)
{
    struct weft__record_totals totals;
    struct weft__call_runs runs[2] = {[1] = {.num_runs = 4, .num_bytes = 40}};
    (void)issue(scene, WEFT__RECORD_CAPTURED);
    weft__record_fold_runs(scene->fold, runs);
    weft__record_fold_runs(scene->fold, runs);
    runs[1] = (struct weft__call_runs){5, 50};
    weft__record_fold_runs(scene->fold, runs);
    weft__records_totals(scene->records, &totals);
    assert_int_equal(totals.num_issued, 5);
    assert_int_equal(totals.num_bytes, 50);
}

/* Also on ranks that hear of it from another one: their kernels leave without a failure told. */
TEST_OF_SLOTS(a_launch_that_failed_is_not_done)
{
    struct weft__record_totals totals;
    const uint64_t id = issue(scene, WEFT__RECORD_ISSUED);
    for (int32_t rank = 0; rank < NUM_RANKS; rank++)
        run(slot_of(scene, rank, id), id, 7, 100 * US, (900 + 100 * (uint64_t)rank) * US);
    slot_of(scene, 0, id)->failed_id = id;
    fold(scene);
    fold(scene);
    weft__records_totals(scene->records, &totals);
    assert_int_equal(record_of(scene, id).state, WEFT__RECORD_FAILED);
    assert_int_equal(record_of(scene, id).waited_ns, 0);
    assert_int_equal(totals.num_failed, 1);
}

/* The counts of a slot change before its id does. */
TEST_OF_SLOTS(a_launch_that_begins_leaves_the_one_before)
{
    const uint64_t id = issue(scene, WEFT__RECORD_ISSUED);
    struct weft__record_slot *slot = slot_of(scene, 0, id);
    run(slot, id, 0, 5 * US, 9 * US);
    fold(scene);
    slot->num_runs++;
    slot->num_running = 4;
    fold(scene);
    assert_int_equal(record_of(scene, id).state, WEFT__RECORD_DONE);
}

TEST_OF_SLOTS(an_end_that_nobody_saw_leaves_no_start)
{
    const uint64_t id = issue(scene, WEFT__RECORD_ISSUED);
    struct weft__record_slot *slot = slot_of(scene, 0, id);
    run(slot, id, 0, 5 * US, 0);
    slot->num_running = 4;
    fold(scene);
    assert_int_equal(record_of(scene, id).state, WEFT__RECORD_RUNNING);
    uint64_t newer = id;
    while (newer < id + WEFT__NUM_RECORD_SLOTS)
        newer = issue(scene, WEFT__RECORD_ISSUED);
    slot->num_running = 0;
    run(slot, newer, 0, 15 * US, 19 * US);
    fold(scene);
    assert_int_equal(record_of(scene, newer).state, WEFT__RECORD_DONE);
    assert_int_equal(record_of(scene, id).state, WEFT__RECORD_ISSUED);
    assert_int_equal(record_of(scene, id).started_ns, 0);
}
