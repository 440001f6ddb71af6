/* SPDX-License-Identifier: MIT */
/* The progress thread and its queue: ranks as threads of one process, each with a progress thread,
 * and several threads that post. */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/host/error.h"
#include "comm/host/thread.h"
#include "harness/cmocka.h"
#include "harness/machine.h"
#include "net/progress.h"
#include "net_job.h"
#include "net_world.h"

enum { NUM_STUCK_PUTS = 3 * NUM_QUEUE_SLOTS, NUM_DEVICE_SLOTS = 8 };

struct poster {
    struct rank *rank;
    int32_t number;
    int failed_line;
    pthread_t thread;
};

static int64_t deadline(void)
{
    return weft__now_ns() + DEADLINE_MS * WEFT__NS_PER_MS;
}

/* Sizes of four puts in a row share four slots. */
static size_t put_bytes(int index)
{
    static const size_t bytes[] = {8, 1000, 64, SLOT_BYTES - 1072};
    return bytes[index % 4];
}

static size_t put_offset(int32_t rank, int32_t poster, int index)
{
    static const size_t offsets[] = {0, 8, 1008, 1072};
    return ((size_t)(rank * NUM_POSTERS + poster) * NUM_PUTS + (size_t)index / 4 * 4) *
               (SLOT_BYTES / 4) +
           offsets[index % 4];
}

/* ---------------------------------------------------------------- traffic */

static uint64_t word_place(int32_t number)
{
    return weft__net_place(2, (uint64_t)number * sizeof(uint64_t));
}

/* A put, and an add alone, which the queue may send together with it; in both orders. */
static weft_result post_both(struct poster *poster, const struct wp_access *put, int index)
{
    const struct wp_access credit = {.operation = WP_ACCESS_PUT_SIGNAL,
                                     .rank = put->rank,
                                     .word = put->word + FIRST_CREDIT_WORD * sizeof(uint64_t),
                                     .add = 1};
    struct weft__progress *progress = poster->rank->progress;
    WEFT__TRY(
        weft__progress_post(progress, index % 2 == 0 ? put : &credit, WEFT__POSTER_WAITS, NULL));
    return weft__progress_post(progress, index % 2 == 0 ? &credit : put, WEFT__POSTER_WAITS, NULL);
}

static void *post_all(void *argument)
{
    struct poster *poster = argument;
    struct rank *rank = poster->rank;
    uint64_t number = 0;
    for (int index = 0; index < NUM_PUTS; index++) {
        size_t offset = put_offset(rank->rank, poster->number, index);
        memset(rank->staging + offset, 1 + (index + rank->rank) % 250, put_bytes(index));
        for (int32_t peer = 0; peer < NUM_RANKS; peer++) {
            const struct wp_access request = {
                .operation = WP_ACCESS_PUT_SIGNAL,
                .rank = peer,
                .source = weft__net_place(1, offset),
                .target = weft__net_place(0, offset),
                .num_bytes = put_bytes(index),
                .word = word_place(rank->rank * NUM_POSTERS + poster->number),
                .add = 1};
            if (peer != rank->rank && post_both(poster, &request, index) != WEFT_OK)
                poster->failed_line = __LINE__;
        }
    }
    const struct wp_access flush = {.operation = WP_ACCESS_FLUSH, .rank = WEFT__NET_ALL_PEERS};
    if (weft__progress_post(rank->progress, &flush, WEFT__POSTER_WAITS, &number) != WEFT_OK ||
        weft__progress_await(rank->progress, number, deadline()) != WEFT_OK)
        poster->failed_line = __LINE__;
    /* Flushed: all is there, whoever looks. */
    for (int32_t peer = 0; peer < NUM_RANKS; peer++) {
        const _Atomic uint64_t *words =
            &rank->job->ranks[peer].words[rank->rank * NUM_POSTERS + poster->number];
        if (peer != rank->rank &&
            (atomic_load_explicit(&words[0], memory_order_acquire) != NUM_PUTS ||
             atomic_load_explicit(&words[FIRST_CREDIT_WORD], memory_order_acquire) != NUM_PUTS))
            poster->failed_line = __LINE__;
    }
    return NULL;
}

static void wait_for_word(const struct rank *rank, int word, uint64_t at_least)
{
    int64_t end_ns = deadline();
    while (atomic_load_explicit(&rank->words[word], memory_order_acquire) < at_least &&
           weft__now_ns() < end_ns)
        poll(NULL, 0, 1);
    CHECK(atomic_load_explicit(&rank->words[word], memory_order_acquire) == at_least);
}

static void check_puts(const struct rank *target, int32_t from, int32_t poster)
{
    for (int index = 0; index < NUM_PUTS; index++) {
        const unsigned char *bytes = target->heap + put_offset(from, poster, index);
        for (size_t byte = 0; byte < put_bytes(index); byte++)
            CHECK(bytes[byte] == 1 + (index + from) % 250);
    }
}

static void all_that_is_posted_arrives(struct job *job)
{
    struct poster posters[NUM_RANKS * NUM_POSTERS];
    for (int32_t index = 0; index < NUM_RANKS * NUM_POSTERS; index++) {
        posters[index] = (struct poster){.rank = &job->ranks[index / NUM_POSTERS],
                                         .number = index % NUM_POSTERS};
        pthread_create(&posters[index].thread, NULL, post_all, &posters[index]);
    }
    for (int32_t index = 0; index < NUM_RANKS * NUM_POSTERS && failed_line == 0; index++)
        for (int32_t rank = 0; rank < NUM_RANKS && failed_line == 0; rank++)
            if (rank != index / NUM_POSTERS) {
                wait_for_word(&job->ranks[rank], index, NUM_PUTS);
                if (failed_line == 0)
                    check_puts(&job->ranks[rank], index / NUM_POSTERS, index % NUM_POSTERS);
            }
    for (int32_t index = 0; index < NUM_RANKS * NUM_POSTERS; index++) {
        pthread_join(posters[index].thread, NULL);
        if (posters[index].failed_line != 0)
            failed_line = posters[index].failed_line;
    }
    for (int32_t rank = 0; rank < NUM_RANKS; rank++)
        CHECK(weft__progress_error(job->ranks[rank].progress) == WEFT_OK);
}

/* ---------------------------------------------------------------- others that drive */

/* Drives the net of a rank in bursts of several lengths, with pauses in which it falls to the
 * thread again, by being handed back or not. */
struct driver {
    struct weft__progress *progress;
    _Atomic int must_end;
    pthread_t thread;
};

static void *drive_in_bursts(void *argument)
{
    struct driver *driver = argument;
    for (int burst = 0; !atomic_load(&driver->must_end); burst++) {
        for (int i = 0; i < 1 << burst % 8; i++)
            weft__progress_drive(driver->progress);
        if (burst % 3 == 0)
            weft__progress_hand_back(driver->progress);
        if (burst % 2 == 0)
            poll(NULL, 0, burst % 5);
    }
    return NULL;
}

static void post_signal(struct rank *rank, int32_t peer, enum weft__work_poster poster)
{
    const struct wp_access signal = {
        .operation = WP_ACCESS_SIGNAL, .rank = peer, .word = word_place(DONE_WORD), .add = 1};
    CHECK(weft__progress_post(rank->progress, &signal, poster, NULL) == WEFT_OK);
}

static uint64_t done_word(const struct rank *rank)
{
    return atomic_load_explicit(&rank->words[DONE_WORD], memory_order_acquire);
}

static void drive_until(struct rank *rank, uint64_t at_least)
{
    const int64_t end_ns = deadline();
    while (done_word(rank) < at_least && weft__now_ns() < end_ns)
        weft__progress_drive(rank->progress);
    CHECK(done_word(rank) >= at_least);
}

/* Only rank 0 drives; then it stops, in all ways, and its thread must send and receive instead. */
static void the_thread_takes_over(struct job *job)
{
    enum { NUM_TRIPS = 50 };
    struct rank *rank = &job->ranks[0], *peer = &job->ranks[1];
    uint64_t num_here = done_word(rank), num_there = done_word(peer);
    for (int trip = 0; trip < NUM_TRIPS && failed_line == 0; trip++) {
        post_signal(peer, 0, WEFT__POSTER_WAITS);
        drive_until(rank, ++num_here);
        if (trip % 3 == 0)
            weft__progress_hand_back(rank->progress);
        post_signal(rank, 1, trip % 2 == 0 ? WEFT__POSTER_DRIVES : WEFT__POSTER_WAITS);
        if (trip % 5 == 0)
            weft__progress_drive_posted(rank->progress);
        wait_for_word(peer, DONE_WORD, ++num_there);
        poll(NULL, 0, trip % 4); /* in 3 ms it falls asleep */
        weft__progress_drive(rank->progress);
        post_signal(peer, 0, WEFT__POSTER_WAITS);
        wait_for_word(rank, DONE_WORD, ++num_here);
    }
}

/* ---------------------------------------------------------------- the rest */

static void who_waits_sleeps(struct job *job)
{
    enum { IDLE_MS = 300, MANY_ROUNDS = 2000 };
    poll(NULL, 0, IDLE_MS); /* what was under way is done then, or else there are more rounds */
    uint64_t before = weft__progress_num_rounds(job->ranks[0].progress);
    poll(NULL, 0, IDLE_MS);
    CHECK(weft__progress_num_rounds(job->ranks[0].progress) - before < MANY_ROUNDS);
}

/* Fetches the heap of rank 1, as all_that_is_posted_arrives left it, and a word. */
static void what_is_fetched_comes(struct job *job)
{
    uint64_t number, value;
    struct rank *rank = &job->ranks[0];
    memset(rank->staging, 0, heap_bytes());
    const struct wp_access get = {.operation = WP_ACCESS_GET,
                                  .loss = WP_ACCESS_MUST_NOT_BE_LOST,
                                  .rank = 1,
                                  .target = weft__net_place(1, 8),
                                  .num_bytes = heap_bytes() - 8};
    const struct wp_access fetch_add = {.operation = WP_ACCESS_FETCH_ADD,
                                        .loss = WP_ACCESS_MUST_NOT_BE_LOST,
                                        .rank = 2,
                                        .word = word_place(DONE_WORD),
                                        .add = UINT64_MAX,
                                        .target = weft__net_place(1, 0)};
    atomic_store(&job->ranks[2].words[DONE_WORD], 41);
    CHECK(weft__progress_post(rank->progress, &get, WEFT__POSTER_WAITS, NULL) == WEFT_OK);
    CHECK(weft__progress_post(rank->progress, &fetch_add, WEFT__POSTER_WAITS, &number) == WEFT_OK);
    CHECK(weft__progress_await(rank->progress, number, deadline()) == WEFT_OK);
    CHECK(memcmp(rank->staging + 8, job->ranks[1].heap, heap_bytes() - 8) == 0);
    memcpy(&value, rank->staging, sizeof(value));
    CHECK(value == 41);
    CHECK(atomic_load(&job->ranks[2].words[DONE_WORD]) == 40);
}

static void a_bad_request_is_an_error_and_holds_nobody_up(struct job *job)
{
    uint64_t number;
    struct weft__progress *progress = job->ranks[1].progress;
    const uint64_t before = done_word(&job->ranks[0]);
    const struct wp_access bad[] = {
        {.operation = WP_ACCESS_SIGNAL, .rank = 0, .word = word_place(NUM_WORDS), .add = 1},
        {.operation = (enum wp_access_operation)77, .rank = 0},
        {.operation = WP_ACCESS_PUT, .rank = 1},
        {.operation = WP_ACCESS_PUT, .rank = 0, .num_bytes = UINT64_MAX},
        /* Each with a good one that could share a message with it. */
        {.operation = WP_ACCESS_PUT_SIGNAL, .rank = 0, .num_bytes = 8, .word = 4},
        {.operation = WP_ACCESS_PUT_SIGNAL, .rank = 0, .word = word_place(DONE_WORD), .add = 1},
        {.operation = WP_ACCESS_PUT_SIGNAL, .rank = 0, .word = word_place(NUM_WORDS), .add = 1},
        {.operation = WP_ACCESS_PUT_SIGNAL, .rank = 0, .word = word_place(DONE_WORD), .add = 1}};
    for (size_t index = 0; index < sizeof(bad) / sizeof(bad[0]); index++)
        CHECK(weft__progress_post(progress, &bad[index], WEFT__POSTER_WAITS, &number) == WEFT_OK);
    CHECK(weft__progress_await(progress, number, deadline()) == WEFT_OK);
    CHECK(weft__progress_error(progress) == WEFT_ERROR_INVALID_ARGUMENT);
    CHECK(atomic_load(&job->ranks[1].own_failure) == WEFT_ERROR_INVALID_ARGUMENT);
    CHECK(strstr(weft__last_error(),
                 "word is byte 104 of region 2, 8 bytes; rank 0 has 104 there") != NULL);
    CHECK(atomic_load(&job->ranks[1].num_failures) == 0);
    CHECK(atomic_load(&job->ranks[1].num_own_failures) == 1); /* the first one is told */
    wait_for_word(&job->ranks[0], DONE_WORD, before + 2);
}

/* The net does not notice it by itself, since the peer lives, and would do what it is asked. */
static void a_peer_that_is_known_to_be_dead_has_failed(struct job *job)
{
    uint64_t number;
    struct weft__progress *progress = job->ranks[0].progress;
    const struct wp_access flush = {.operation = WP_ACCESS_FLUSH, .rank = 2};
    weft__status_lose_rank(&job->ranks[0].status, 2, "rank 2 does not answer");
    CHECK(weft__progress_post(progress, &flush, WEFT__POSTER_WAITS, &number) == WEFT_OK);
    CHECK(weft__progress_await(progress, number, deadline()) == WEFT_OK);
    CHECK(weft__progress_error(progress) == WEFT_ERROR_RANK_FAILED);
    CHECK(atomic_load(&job->ranks[0].failed_peer) == 2);
    CHECK(strcmp(job->ranks[0].message, "rank 2 does not answer") == 0);
    CHECK(atomic_load(&job->ranks[0].num_failures) == 1);
    /* What must not be lost is told each time, not only as the first failure. */
    const struct wp_access important = {
        .operation = WP_ACCESS_FLUSH, .loss = WP_ACCESS_MUST_NOT_BE_LOST, .rank = 2};
    for (int i = 0; i < 2; i++) {
        CHECK(weft__progress_post(progress, &important, WEFT__POSTER_WAITS, &number) == WEFT_OK);
        CHECK(weft__progress_await(progress, number, deadline()) == WEFT_OK);
        CHECK(atomic_load(&job->ranks[0].num_failures) == 2 + i);
    }
}

/* The same where objects of the communicator go on without it. */
static void a_death_that_is_no_failure_ends_what_was_sent(struct job *job)
{
    uint64_t number;
    struct rank *rank = &job->ranks[1];
    const struct wp_access flush = {.operation = WP_ACCESS_FLUSH, .rank = 2};
    atomic_fetch_add(&rank->status.num_tolerant, 1);
    weft__status_lose_rank(&rank->status, 2, "rank 2 does not answer");
    CHECK(weft__progress_post(rank->progress, &flush, WEFT__POSTER_WAITS, &number) == WEFT_OK);
    CHECK(weft__progress_await(rank->progress, number, deadline()) == WEFT_OK);
    CHECK(atomic_load(&rank->failed_peer) == 2);
    CHECK(strcmp(rank->message, "rank 2 has died") == 0);
    CHECK(weft__status_check(&rank->status) == WEFT_OK);
}

/* While nobody moves the net of rank 2: more than sockets hold, by more puts than the queue has
 * slots. */
static weft_result send_past_one_that_takes_nothing(struct weft__net *net, void *context)
{
    enum { PUT_BYTES = 1 << 19 };
    struct job *job = context;
    struct weft__progress *progress = job->ranks[0].progress;
    const struct wp_access put = {.operation = WP_ACCESS_PUT_SIGNAL,
                                  .rank = 2,
                                  .source = weft__net_place(1, 0),
                                  .target = weft__net_place(0, 0),
                                  .num_bytes = PUT_BYTES,
                                  .word = word_place(DONE_WORD),
                                  .add = 1};
    const uint64_t before = done_word(&job->ranks[1]);
    (void)net;
    for (int index = 0; index < NUM_STUCK_PUTS; index++)
        WEFT__TRY(weft__progress_post(progress, &put, WEFT__POSTER_WAITS, NULL));
    post_signal(&job->ranks[0], 1, WEFT__POSTER_WAITS);
    wait_for_word(&job->ranks[1], DONE_WORD, before + 1);
    return WEFT_OK;
}

static void who_takes_nothing_holds_up_nobody_else(struct job *job)
{
    const uint64_t before = done_word(&job->ranks[2]);
    CHECK(weft__progress_act(job->ranks[2].progress, send_past_one_that_takes_nothing, job) ==
          WEFT_OK);
    wait_for_word(&job->ranks[2], DONE_WORD, before + NUM_STUCK_PUTS);
}

static weft_result fill_queue(struct weft__net *net, void *context)
{
    struct weft__progress *progress = context;
    const struct wp_access flush = {.operation = WP_ACCESS_FLUSH, .rank = 1};
    (void)net;
    for (int index = 0; index < NUM_QUEUE_SLOTS; index++)
        WEFT__TRY(weft__progress_post(progress, &flush, WEFT__POSTER_WAITS, NULL));
    const weft_result result = weft__progress_post(progress, &flush, WEFT__POSTER_WAITS, NULL);
    return result == WEFT_ERROR_TIMEOUT ? WEFT_OK : WEFT_ERROR_SYSTEM;
}

/* A net that does not come back leaves all posts where they are. */
static void a_full_queue_that_nobody_takes_from_ends_by_the_deadline(struct job *job)
{
    uint64_t number;
    struct weft__progress *progress = job->ranks[0].progress;
    const struct wp_access flush = {.operation = WP_ACCESS_FLUSH, .rank = 1};
    CHECK(weft__progress_act(progress, fill_queue, progress) == WEFT_OK);
    CHECK(atomic_load(&job->ranks[0].own_failure) == WEFT_ERROR_TIMEOUT);
    /* What was not posted is in nobody's way. */
    CHECK(weft__progress_post(progress, &flush, WEFT__POSTER_WAITS, &number) == WEFT_OK);
    CHECK(weft__progress_await(progress, number, deadline()) == WEFT_OK);
}

static void what_is_posted_before_a_stop_arrives(struct job *job)
{
    struct weft__progress *progress = job->ranks[0].progress;
    const struct wp_access signal = {
        .operation = WP_ACCESS_SIGNAL, .rank = 1, .word = word_place(DONE_WORD), .add = 3};
    const uint64_t before = done_word(&job->ranks[1]);
    for (int index = 0; index < 4 * NUM_QUEUE_SLOTS; index++)
        CHECK(weft__progress_post(progress, &signal, WEFT__POSTER_WAITS, NULL) == WEFT_OK);
    weft__progress_stop(progress);
    job->ranks[0].progress = NULL;
    wait_for_word(&job->ranks[1], DONE_WORD, before + (uint64_t)3 * 4 * NUM_QUEUE_SLOTS);
}

enum drivers { THREADS_ALONE, THREADS_AND_OTHERS };

static void run_part(struct job *job, void (*part)(struct job *), enum drivers who)
{
    struct driver drivers[NUM_RANKS] = {0};
    const int32_t num_drivers = who == THREADS_AND_OTHERS ? NUM_RANKS : 0;
    for (int32_t rank = 0; rank < num_drivers; rank++) {
        drivers[rank].progress = job->ranks[rank].progress;
        pthread_create(&drivers[rank].thread, NULL, drive_in_bursts, &drivers[rank]);
    }
    part(job);
    for (int32_t rank = 0; rank < num_drivers; rank++) {
        atomic_store(&drivers[rank].must_end, 1);
        pthread_join(drivers[rank].thread, NULL);
    }
}

static int run_all(const char *engine, enum drivers who)
{
    const struct {
        void (*run)(struct job *);
        enum drivers who;
    } parts[] = {{all_that_is_posted_arrives, who},
                 {what_is_fetched_comes, who},
                 {the_thread_takes_over, THREADS_ALONE},
                 {who_waits_sleeps, THREADS_ALONE},
                 {a_full_queue_that_nobody_takes_from_ends_by_the_deadline, THREADS_ALONE},
                 {a_bad_request_is_an_error_and_holds_nobody_up, who},
                 {who_takes_nothing_holds_up_nobody_else, THREADS_ALONE},
                 {a_peer_that_is_known_to_be_dead_has_failed, who},
                 {a_death_that_is_no_failure_ends_what_was_sent, who},
                 {what_is_posted_before_a_stop_arrives, THREADS_ALONE}};
    static struct job job;
    start_job(&job, engine, 0);
    for (size_t part = 0; part < sizeof(parts) / sizeof(parts[0]) && failed_line == 0; part++)
        run_part(&job, parts[part].run, parts[part].who);
    if (failed_line != 0)
        fprintf(stderr, "%s: line %d: %s\n", engine, failed_line, weft__last_error());
    stop_job(&job);
    return failed_line != 0;
}

/* ---------------------------------------------------------------- beside a device */

/* As a launch does, which rings nobody's bell. */
static void post_from_device(struct rank *rank, uint64_t number, const struct wp_access *access)
{
    struct wp_access *slot = &rank->device_queue->slots[number % NUM_DEVICE_SLOTS];
    /* The thread may look at `ready` just now. */
    memcpy(slot, access, offsetof(struct wp_access, ready));
    __atomic_store_n(&slot->ready, number + 1, __ATOMIC_RELEASE);
}

/* What it puts is long, so that it is not there by chance. The thread naps when the flush wakes
 * it. */
static void a_flush_waits_for_what_a_device_has_posted(struct job *job)
{
    enum { NUM_FLUSHES = 20, NAP_MS = 2 };
    struct rank *rank = &job->ranks[0];
    const struct wp_access flush = {.operation = WP_ACCESS_FLUSH, .rank = WEFT__NET_ALL_PEERS};
    for (uint64_t i = 0; i < NUM_FLUSHES && failed_line == 0; i++) {
        const struct wp_access put = {.operation = WP_ACCESS_PUT_SIGNAL,
                                      .rank = 1,
                                      .source = weft__net_place(1, 0),
                                      .target = weft__net_place(0, 0),
                                      .num_bytes = heap_bytes(),
                                      .word = word_place(0),
                                      .add = 1};
        uint64_t number;
        poll(NULL, 0, NAP_MS);
        post_from_device(rank, i, &put);
        CHECK(weft__progress_post(rank->progress, &flush, WEFT__POSTER_WAITS, &number) == WEFT_OK);
        CHECK(weft__progress_await(rank->progress, number, deadline()) == WEFT_OK);
        CHECK(atomic_load_explicit(&job->ranks[1].words[0], memory_order_acquire) == i + 1);
    }
}

static int run_beside_device(const char *engine)
{
    static struct job job;
    start_job(&job, engine, NUM_DEVICE_SLOTS);
    if (failed_line == 0)
        a_flush_waits_for_what_a_device_has_posted(&job);
    if (failed_line != 0)
        fprintf(stderr, "%s: line %d: %s\n", engine, failed_line, weft__last_error());
    stop_job(&job);
    return failed_line != 0;
}

enum parts { ALL_PARTS, BESIDE_A_DEVICE };

/* In a process of its own, where UCX can stay. */
static void run_engine(const char *engine, enum parts parts, enum drivers who)
{
    int status = -1;
    if (!net_engine_is_there(engine))
        skip();
    pid_t pid = fork();
    if (pid == 0) {
        int failed = parts == ALL_PARTS ? run_all(engine, who) : run_beside_device(engine);
        fflush(NULL);
        exit(failed);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

TEST_OVER_ENGINES(threads_drive)
{
    run_engine(engine, ALL_PARTS, THREADS_ALONE);
}

TEST_OVER_ENGINES(others_drive_too)
{
    run_engine(engine, ALL_PARTS, THREADS_AND_OTHERS);
}

TEST_OVER_ENGINES(a_device_posts_too)
{
    run_engine(engine, BESIDE_A_DEVICE, THREADS_ALONE);
}
