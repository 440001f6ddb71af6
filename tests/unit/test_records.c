/* SPDX-License-Identifier: MIT */
/* The ring of records: what stays in it, what readers see while threads write, the counters, and
 * the rule that names the slowest rank, on lateness that is drawn. */
#include <pthread.h>
#include <string.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "record/record.h"
#include "workload/rng.h"

enum { US = 1000, MS = 1000 * 1000 };

static struct weft__records *make_records(int32_t num_records, int32_t num_ranks)
{
    return weft__records_create((struct weft__records_size){num_records, num_ranks, 1});
}

static struct weft__record some_record(uint64_t mark)
{
    return (struct weft__record){.call = "weft_ep_dispatch",
                                 .num_bytes = mark,
                                 .stream_id = mark,
                                 .sequence = mark,
                                 .issued_ns = (int64_t)mark,
                                 .last_rank = WEFT__RECORD_NOBODY};
}

TEST(the_last_records_stay)
{
    enum { NUM_SLOTS = 4, NUM_ISSUED = 11 };
    struct weft__records *records = make_records(NUM_SLOTS, 2);
    struct weft__record record;
    assert_int_equal(weft__records_range(records).last, 0);
    for (uint64_t i = 1; i <= NUM_ISSUED; i++) {
        const struct weft__record issued = some_record(100 + i);
        assert_int_equal(weft__records_issue(records, &issued), i);
    }
    const struct weft__record_range range = weft__records_range(records);
    assert_int_equal(range.first, NUM_ISSUED - NUM_SLOTS + 1);
    assert_int_equal(range.last, NUM_ISSUED);
    for (uint64_t id = range.first; id <= range.last; id++) {
        assert_true(weft__records_read(records, id, &record));
        assert_int_equal(record.sequence, 100 + id);
        assert_int_equal(record.state, WEFT__RECORD_ISSUED);
    }
    assert_false(weft__records_read(records, range.first - 1, &record));
    weft__records_destroy(records);
}

/* One that ends when a newer one has its slot still counts. */
TEST(an_operation_that_fell_out_of_the_ring_is_only_counted)
{
    struct weft__records *records = make_records(1, 3);
    const struct weft__record first = some_record(1), second = some_record(2);
    const struct weft__record end = {
        .ended_ns = 7, .late_ns = 5, .last_rank = 2, .state = WEFT__RECORD_DONE};
    struct weft__record record;
    struct weft__record_totals totals;
    struct weft__peer_counters peer;
    const uint64_t old = weft__records_issue(records, &first);
    const uint64_t id = weft__records_issue(records, &second);
    weft__records_start(records, old, 3);
    weft__records_end(records, old, &end);
    assert_true(weft__records_read(records, id, &record));
    assert_int_equal(record.state, WEFT__RECORD_ISSUED);
    assert_int_equal(record.started_ns, 0);
    assert_int_equal(record.ended_ns, 0);
    weft__records_totals(records, &totals);
    assert_int_equal(totals.num_issued, 2);
    assert_int_equal(totals.num_failed, 0);
    assert_int_equal(totals.num_bytes, 3);
    weft__records_peer(records, 2, &peer);
    assert_int_equal(peer.num_last, 1);
    assert_int_equal(peer.late_ns, 5);
    weft__records_destroy(records);
}

TEST(without_records_nothing_is_counted)
{
    const struct weft__record record = some_record(1);
    struct weft__record_totals totals;
    assert_int_equal(weft__records_issue(NULL, &record), 0);
    weft__records_start(NULL, 0, 1);
    weft__records_end(NULL, 0, &record);
    weft__records_totals(NULL, &totals);
    assert_int_equal(totals.num_issued, 0);
    assert_int_equal(weft__records_find_slowest(NULL).rank, WEFT__RECORD_NOBODY);
}

TEST(waits_are_counted_by_their_time)
{
    struct weft__records *records = make_records(1, 2);
    const int64_t waits_ns[] = {1,          1 * US,         1 * US + 1, 2 * US,
                                16384 * US, 16384 * US + 1, 1000 * MS};
    struct weft__peer_counters peer;
    for (size_t i = 0; i < sizeof waits_ns / sizeof *waits_ns; i++)
        weft__records_add_wait(records, 1, waits_ns[i]);
    weft__records_peer(records, 1, &peer);
    assert_int_equal(peer.num_waits, 7);
    assert_int_equal(peer.buckets[0], 2);
    assert_int_equal(peer.buckets[1], 2);
    assert_int_equal(peer.buckets[14], 1);
    assert_int_equal(peer.buckets[15], 2);
    weft__records_peer(records, 0, &peer);
    assert_int_equal(peer.num_waits, 0);
    weft__records_destroy(records);
}

/* ---------------------------------------------------------------- while threads write */

enum { NUM_WRITERS = 3, NUM_WRITES = 30000 };

static void *write_many(void *argument)
{
    struct weft__records *records = argument;
    for (int i = 0; i < NUM_WRITES; i++) {
        const struct weft__record record = some_record((uint64_t)i);
        const uint64_t id = weft__records_issue(records, &record);
        const struct weft__record end = {
            .ended_ns = 9, .last_rank = WEFT__RECORD_NOBODY, .state = WEFT__RECORD_DONE};
        weft__records_end(records, id, &end);
    }
    return NULL;
}

/* Every field that a record was issued with is of the same record. */
TEST(readers_see_whole_records)
{
    struct weft__records *records = make_records(64, 1);
    pthread_t writers[NUM_WRITERS];
    struct weft__record_totals totals;
    int num_seen = 0;
    for (int i = 0; i < NUM_WRITERS; i++)
        assert_int_equal(pthread_create(&writers[i], NULL, write_many, records), 0);
    do { /* once more when all have been issued */
        weft__records_totals(records, &totals);
        const struct weft__record_range range = weft__records_range(records);
        for (uint64_t id = range.first; id <= range.last; id++) {
            struct weft__record record;
            if (!weft__records_read(records, id, &record))
                continue;
            num_seen++;
            assert_int_equal(record.id, id);
            assert_int_equal(record.sequence, record.num_bytes);
            assert_int_equal(record.stream_id, record.num_bytes);
            assert_int_equal(record.issued_ns, (int64_t)record.num_bytes);
        }
    } while (totals.num_issued < (uint64_t)NUM_WRITERS * NUM_WRITES);
    for (int i = 0; i < NUM_WRITERS; i++)
        pthread_join(writers[i], NULL);
    assert_true(num_seen > 0);
    weft__records_destroy(records);
}

static int num_times(void)
{
    return tests_grid_size(2000000, 200000);
}

/* The time of issue is the mark of a record: its end is after it by as much as all others'. Every
 * other record does not end, so that times of another one would stay in it. */
static void *write_times(void *argument)
{
    struct weft__records *records = argument;
    const int last = num_times();
    for (int i = 1; i <= last; i++) {
        const struct weft__record record = some_record((uint64_t)i);
        const struct weft__record end = {.ended_ns = i + 1,
                                         .waited_ns = i + 2,
                                         .last_rank = WEFT__RECORD_NOBODY,
                                         .state = WEFT__RECORD_DONE};
        const uint64_t id = weft__records_issue(records, &record);
        if (i % 2 == 0)
            continue;
        weft__records_start(records, id, i);
        weft__records_end(records, id, &end);
    }
    return NULL;
}

static void check_times(const struct weft__record *record)
{
    assert_int_equal(record->sequence, (uint64_t)record->issued_ns);
    assert_true(record->started_ns == 0 || record->started_ns == record->issued_ns);
    assert_true(record->ended_ns == 0 || record->ended_ns == record->issued_ns + 1);
    if (record->state == WEFT__RECORD_DONE) {
        assert_int_equal(record->ended_ns, record->issued_ns + 1);
        assert_int_equal(record->waited_ns, record->issued_ns + 2);
    }
}

/* However small the ring is, no record has a time of another one. */
TEST(a_record_has_its_own_times)
{
    struct weft__records *records = make_records(1, 1);
    pthread_t writers[NUM_WRITERS];
    struct weft__record_totals totals;
    for (int i = 0; i < NUM_WRITERS; i++)
        assert_int_equal(pthread_create(&writers[i], NULL, write_times, records), 0);
    do {
        struct weft__record record;
        if (weft__records_read(records, weft__records_range(records).last, &record))
            check_times(&record);
        weft__records_totals(records, &totals);
    } while (totals.num_issued < (uint64_t)NUM_WRITERS * (uint64_t)num_times());
    for (int i = 0; i < NUM_WRITERS; i++)
        pthread_join(writers[i], NULL);
    weft__records_destroy(records);
}

/* ---------------------------------------------------------------- the slowest rank */

/* A job of layers, each of a dispatch and a combine. Each rank comes later by chance, up to
 * spread_ns; some come later in every dispatch. */
struct job {
    int32_t num_ranks, num_layers;
    int64_t step_ns, spread_ns;
    int64_t slow_ns[64]; /* of each rank */
    uint64_t seed;
};

static void draw_operation(struct weft__records *records, const struct job *job, const char *call,
                           struct rng *rng, int64_t *now_ns)
{
    int64_t last_ns = -1, second_ns = -1;
    struct weft__record record = {.call = call, .meeting = WEFT__MEETS_ALL};
    struct weft__record end = {.state = WEFT__RECORD_DONE};
    const int is_slowed = strcmp(call, "weft_ep_dispatch") == 0;
    for (int32_t rank = 0; rank < job->num_ranks; rank++) {
        const int64_t came_ns = (int64_t)rng_below(rng, (uint32_t)job->spread_ns + 1) +
                                (is_slowed ? job->slow_ns[rank] : 0);
        if (came_ns > last_ns) {
            second_ns = last_ns;
            last_ns = came_ns;
            end.last_rank = rank;
        } else if (came_ns > second_ns) {
            second_ns = came_ns;
        }
    }
    *now_ns += job->step_ns + last_ns;
    end.late_ns = last_ns - second_ns;
    record.started_ns = *now_ns;
    weft__records_end(records, weft__records_issue(records, &record), &end);
}

/* The rank that is named at the end, or at any time: then *is_wrong unless it is that one. */
static struct weft__slowest run_job(const struct job *job, int32_t expected, int *is_wrong)
{
    struct weft__records *records = make_records(512, job->num_ranks);
    struct rng rng = {job->seed};
    struct weft__slowest found = {.rank = WEFT__RECORD_NOBODY};
    int64_t now_ns = MS;
    for (int32_t i = 0; i < job->num_layers; i++) {
        draw_operation(records, job, "weft_ep_dispatch", &rng, &now_ns);
        draw_operation(records, job, "weft_ep_combine", &rng, &now_ns);
        found = weft__records_find_slowest(records);
        *is_wrong |= found.rank != WEFT__RECORD_NOBODY && found.rank != expected;
    }
    weft__records_destroy(records);
    return found;
}

TEST(lateness_by_chance_names_nobody)
{
    static const int32_t worlds[] = {2, 3, 8, 64};
    for (uint64_t seed = 0; seed < 1000; seed += (uint64_t)tests_grid_size(1, 11)) {
        const struct job job = {.num_ranks = worlds[seed % 4],
                                .num_layers = 200,
                                .step_ns = 200 * US,
                                .spread_ns = seed % 3 == 0   ? 100 * MS
                                             : seed % 3 == 1 ? MS
                                                             : 0,
                                .seed = seed};
        int is_wrong = 0;
        (void)run_job(&job, WEFT__RECORD_NOBODY, &is_wrong);
        assert_false(is_wrong);
    }
}

/* By 1 ms, while all come up to half of that late by chance. */
TEST(a_slow_rank_is_named_within_50_layers)
{
    for (uint64_t seed = 0; seed < 100; seed += (uint64_t)tests_grid_size(1, 7)) {
        struct job job = {
            .num_ranks = 8, .num_layers = 50, .step_ns = 5 * MS, .spread_ns = MS / 2, .seed = seed};
        int is_wrong = 0;
        job.slow_ns[5] = MS;
        const struct weft__slowest found = run_job(&job, 5, &is_wrong);
        assert_false(is_wrong);
        assert_int_equal(found.rank, 5);
        assert_string_equal(found.call, "weft_ep_dispatch");
        assert_int_equal(found.num_operations, 50);
        assert_true(found.num_late > 45);
        assert_in_range(found.late_ns, MS / 2, MS + MS / 2);
    }
}

/* Neither comes after the other. */
TEST(two_ranks_that_are_as_slow_are_not_told_apart)
{
    for (uint64_t seed = 0; seed < 100; seed += (uint64_t)tests_grid_size(1, 7)) {
        struct job job = {
            .num_ranks = 8, .num_layers = 100, .step_ns = MS, .spread_ns = 50 * US, .seed = seed};
        int is_wrong = 0;
        job.slow_ns[2] = job.slow_ns[6] = MS;
        (void)run_job(&job, WEFT__RECORD_NOBODY, &is_wrong);
        assert_false(is_wrong);
    }
}

TEST(the_slower_one_of_two_is_named)
{
    struct job job = {.num_ranks = 16, .num_layers = 60, .step_ns = MS, .spread_ns = 50 * US};
    int is_wrong = 0;
    job.slow_ns[3] = MS;
    job.slow_ns[12] = 2 * MS;
    assert_int_equal(run_job(&job, 12, &is_wrong).rank, 12);
    assert_false(is_wrong);
}

/* 0.15 ms of each 100 ms. */
TEST(lateness_that_costs_nothing_names_nobody)
{
    struct job job = {.num_ranks = 8, .num_layers = 100, .step_ns = 50 * MS, .spread_ns = 10 * US};
    int is_wrong = 0;
    job.slow_ns[1] = 150 * US;
    (void)run_job(&job, WEFT__RECORD_NOBODY, &is_wrong);
    assert_false(is_wrong);
}
