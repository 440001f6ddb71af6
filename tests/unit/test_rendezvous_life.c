/* SPDX-License-Identifier: MIT */
/* Once its ranks have gone, a rendezvous leaves one thread and its descriptors for all ids of a
 * process. Each id can be used again. */
#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness/cmocka.h"
#include "harness/ranks.h"

enum { NUM_RANKS = 2, NUM_TIMES = 40, SETTLE_MS = 20000 };

struct usage {
    int num_threads, num_descriptors;
};

static int count_entries(const char *path)
{
    int num_entries = 0;
    DIR *directory = opendir(path);
    while (directory != NULL && readdir(directory) != NULL)
        num_entries++;
    if (directory != NULL)
        closedir(directory);
    return num_entries;
}

static struct usage usage_now(void)
{
    return (struct usage){count_entries("/proc/self/task"), count_entries("/proc/self/fd")};
}

/* Waits, since the rendezvous closes its sockets a moment after the ranks. */
static int settles_at(struct usage wanted, struct usage *last)
{
    const struct timespec pause = {.tv_nsec = 10000000};
    for (int ms = 0; ms < SETTLE_MS; ms += 10) {
        *last = usage_now();
        if (last->num_threads <= wanted.num_threads &&
            last->num_descriptors <= wanted.num_descriptors)
            return 1;
        nanosleep(&pause, NULL);
    }
    return 0;
}

/* Rank 0 makes the id for all ranks, as frameworks do. */
static int make_id(struct ranks_context *context, weft_unique_id *id)
{
    if (context->rank == 0)
        CHECK_OK(weft_unique_id_create(context->shared));
    ranks_barrier(context);
    memcpy(id, context->shared, sizeof(*id));
    ranks_barrier(context);
    return 0;
}

static int live(struct ranks_context *context, const weft_unique_id *id)
{
    weft_comm *comm;
    int32_t all[NUM_RANKS] = {-1};
    CHECK_OK(weft_comm_create(id, context->rank, NUM_RANKS, NULL, &comm));
    CHECK_OK(weft_comm_host_all_gather(comm, &context->rank, sizeof(int32_t), all));
    CHECK(all[0] == 0 && all[NUM_RANKS - 1] == NUM_RANKS - 1, "the gathered values are wrong");
    CHECK_OK(weft_comm_destroy(comm));
    return 0;
}

static int come_and_go(struct ranks_context *context)
{
    struct usage first = {.num_threads = 0}, last;
    weft_unique_id ids[NUM_TIMES];
    for (int i = 0; i < NUM_TIMES; i++) {
        if (make_id(context, &ids[i]) != 0 || live(context, &ids[i]) != 0)
            return 1;
        ranks_barrier(context);
        if (i == 0)
            first = usage_now();
    }
    CHECK(settles_at(first, &last),
          "%d threads and %d descriptors after %d communicators, not %d, %d", last.num_threads,
          last.num_descriptors, NUM_TIMES, first.num_threads, first.num_descriptors);
    ranks_barrier(context);
    return live(context, &ids[0]) != 0 || live(context, &ids[NUM_TIMES - 1]) != 0 ||
           live(context, &ids[0]) != 0;
}

TEST(ids_leave_nothing_and_can_be_used_again)
{
    const struct ranks_options options = {
        .num_ranks = NUM_RANKS, .id = RANKS_ID_NONE, .shared_bytes = sizeof(weft_unique_id)};
    struct ranks_options processes = options;
    processes.mode = RANKS_PROCESSES;
    assert_int_equal(ranks_run_with(&options, come_and_go), 0);
    assert_int_equal(ranks_run_with(&processes, come_and_go), 0);
}

/* Nobody uses these ids, as with groups of one rank. */
TEST_ON_RANKS(ids_without_ranks_leave_nothing, RANKS_THREADS, 1)
{
    struct usage first = {.num_threads = 0}, last;
    weft_unique_id id;
    for (int i = 0; i < NUM_TIMES; i++) {
        weft_comm *comm;
        CHECK_OK(weft_unique_id_create(&id));
        CHECK_OK(weft_comm_create(&id, 0, 1, NULL, &comm));
        CHECK_OK(weft_comm_destroy(comm));
        if (i == 0)
            first = usage_now();
    }
    CHECK(settles_at(first, &last), "%d threads and %d descriptors, not %d, %d", last.num_threads,
          last.num_descriptors, first.num_threads, first.num_descriptors);
    return 0;
}

/* Groups on several hosts agree on one address, and on a new secret each time. */
TEST_ON_RANKS(ids_of_one_place_have_one_rendezvous, RANKS_THREADS, NUM_RANKS)
{
    struct usage first = {.num_threads = 0}, last;
    const int32_t port = 10000 + getppid() % 9000;
    for (int i = 0; i < NUM_TIMES; i++) {
        weft_unique_id id;
        char secret[33];
        snprintf(secret, sizeof(secret), "0123456789abcdef0123456789%06x", i);
        CHECK_OK(weft_unique_id_at("127.0.0.1", port, secret, &id));
        if (context->rank == 0) {
            CHECK_OK(weft_rendezvous_serve(&id));
            CHECK_OK(weft_rendezvous_serve(&id));
        }
        ranks_barrier(context);
        if (live(context, &id) != 0)
            return 1;
        ranks_barrier(context);
        if (i == 0)
            first = usage_now();
    }
    CHECK(settles_at(first, &last), "%d threads and %d descriptors, not %d, %d", last.num_threads,
          last.num_descriptors, first.num_threads, first.num_descriptors);
    ranks_barrier(context);
    return 0;
}

/* Two communicators of two ranks each have ids of one process. A failure of one does not reach the
 * other. */
static int live_beside(struct ranks_context *context)
{
    weft_unique_id *ids = context->shared;
    const int32_t pair = context->rank / NUM_RANKS, rank = context->rank % NUM_RANKS;
    weft_comm *comm;
    int32_t all[NUM_RANKS];
    if (context->rank == 0)
        for (int i = 0; i < 2; i++)
            CHECK_OK(weft_unique_id_create(&ids[i]));
    ranks_barrier(context);
    CHECK_OK(weft_comm_create(&ids[pair], rank, NUM_RANKS, NULL, &comm));
    CHECK_OK(weft_comm_host_all_gather(comm, &pair, sizeof(pair), all));
    CHECK(all[0] == pair && all[1] == pair, "pair %d has ranks of %d and %d", pair, all[0], all[1]);
    ranks_barrier(context);
    if (context->rank == 0)
        CHECK_OK(weft_comm_abort(comm));
    ranks_barrier(context);
    if (pair == 1) {
        CHECK_OK(weft_comm_host_barrier(comm));
    } else {
        CHECK_ERROR(weft_comm_host_barrier(comm), WEFT_ERROR_ABORTED, "rank 0");
    }
    CHECK_OK(weft_comm_destroy(comm));
    ranks_barrier(context);
    for (int i = 0; i < 2; i++)
        CHECK(context->rank != 0 || weft_rendezvous_num_ranks(&ids[i]) >= 0, "it does not serve");
    return 0;
}

TEST(ids_of_one_process_do_not_mix)
{
    const struct ranks_options options = {.num_ranks = 2 * NUM_RANKS,
                                          .id = RANKS_ID_NONE,
                                          .shared_bytes = 2 * sizeof(weft_unique_id)};
    assert_int_equal(ranks_run_with(&options, live_beside), 0);
}

/* A killed rank says no goodbye. The rendezvous watches its process by a separate descriptor. */
static int die(const weft_unique_id *id)
{
    weft_comm *comm;
    if (weft_comm_create(id, 1, NUM_RANKS, NULL, &comm) != WEFT_OK)
        return 1;
    raise(SIGKILL);
    return 1;
}

static int see_it_die(const weft_unique_id *id)
{
    weft_comm *comm;
    if (weft_comm_create(id, 0, NUM_RANKS, NULL, &comm) != WEFT_OK ||
        weft_comm_host_barrier(comm) != WEFT_ERROR_RANK_FAILED)
        return 1;
    weft_comm_destroy(comm);
    return 0;
}

/* The ranks are children of the process with the rendezvous. */
TEST_ON_RANKS(killed_ranks_leave_nothing, RANKS_THREADS, 1)
{
#ifdef __SANITIZE_THREAD__ /* forks start no threads */
    return 0;
#endif
    struct usage first = {.num_threads = 0}, last;
    for (int i = 0; i < 10; i++) {
        weft_unique_id id;
        pid_t pids[NUM_RANKS];
        int status;
        CHECK_OK(weft_unique_id_create(&id));
        for (int32_t rank = 0; rank < NUM_RANKS; rank++)
            if ((pids[rank] = fork()) == 0)
                _exit(rank == 0 ? see_it_die(&id) : die(&id));
        CHECK(waitpid(pids[1], &status, 0) == pids[1] && WIFSIGNALED(status), "it was not killed");
        CHECK(waitpid(pids[0], &status, 0) == pids[0] && status == 0, "status %d", status);
        if (i == 0)
            first = usage_now();
    }
    CHECK(settles_at(first, &last), "%d threads and %d descriptors, not %d, %d", last.num_threads,
          last.num_descriptors, first.num_threads, first.num_descriptors);
    return 0;
}
