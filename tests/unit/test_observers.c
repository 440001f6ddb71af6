/* SPDX-License-Identifier: MIT */
/* Observers of a job: what they are told, and that nothing that they do harms the job. */
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "harness/cmocka.h"
#include "knock.h"

enum { MAX_SEEN = 16, PATIENCE_S = 120 };

static void open_all(weft_job_rank ranks[MAX_SEEN])
{
    memset(ranks, 0, MAX_SEEN * sizeof *ranks);
    for (int i = 0; i < MAX_SEEN; i++)
        ranks[i].size = sizeof *ranks;
}

static int waits_in(const weft_job_rank *rank, int32_t awaited, const char *call)
{
    return rank->presence == WEFT_PRESENCE_ANSWERS && rank->num_waits == 1 &&
           rank->wait_ranks[0] == awaited && strcmp(rank->wait_calls[0], call) == 0 &&
           strcmp(rank->call, call) == 0;
}

/* Looks until `is_seen` holds. */
static int look_until(const struct ranks_context *context, weft_job_rank ranks[MAX_SEEN],
                      int32_t num_ranks, int (*is_seen)(const weft_job_rank *ranks))
{
    const double end_s = clock_s() + PATIENCE_S;
    int32_t num_seen = 0;
    do {
        open_all(ranks);
        CHECK_OK(weft_job_query(&context->id, 0, ranks, MAX_SEEN, &num_seen));
        CHECK(num_seen == 0 || num_seen == num_ranks, "%d ranks", num_seen);
    } while ((num_seen == 0 || !is_seen(ranks)) && clock_s() < end_s);
    CHECK(num_seen == num_ranks && is_seen(ranks), "it was not seen within %d s", PATIENCE_S);
    return 0;
}

/* ---------------------------------------------------------------- what they are told */

static int both_wait_in_barrier(const weft_job_rank *ranks)
{
    return waits_in(&ranks[0], 2, "weft_comm_host_barrier") &&
           waits_in(&ranks[1], 2, "weft_comm_host_barrier") && ranks[0].wait_ms[0] > 0;
}

static int first_waits_on_stream(const weft_job_rank *ranks)
{
    return waits_in(&ranks[0], 2, "weft_comm_barrier") && ranks[0].num_calls == 1 &&
           ranks[0].wait_ms[0] > 0;
}

TEST_ON_RANKS(a_rank_that_waits_tells_for_whom, RANKS_THREADS, 3)
{
    weft_job_rank ranks[MAX_SEEN];
    weft_comm *const comm = ranks_comm(context, NULL);
    weft_stream *const stream = ranks_stream(context);
    if (context->rank == 2 && look_until(context, ranks, 3, both_wait_in_barrier) != 0)
        return 1;
    CHECK_OK(weft_comm_host_barrier(comm));
    for (int rank = 0; context->rank == 2 && rank < 3; rank++) {
        CHECK(ranks[rank].rank == rank && ranks[rank].num_ranks == 3 && ranks[rank].comm == 0,
              "rank %d is %d of %d", rank, ranks[rank].rank, ranks[rank].num_ranks);
        CHECK(ranks[rank].pid == getpid() && ranks[rank].host[0] != '\0' &&
                  ranks[rank].machine == WEFT_MACHINE_CPU && ranks[rank].device == 0,
              "process %d on %s, device %d", ranks[rank].pid, ranks[rank].host, ranks[rank].device);
        CHECK(ranks[rank].heap_used_bytes > 0 &&
                  ranks[rank].heap_bytes >= ranks[rank].heap_used_bytes &&
                  ranks[rank].result == WEFT_OK && ranks[rank].error[0] == '\0',
              "heap %llu bytes, result %d", (unsigned long long)ranks[rank].heap_bytes,
              ranks[rank].result);
    }
    if (context->rank == 2 && look_until(context, ranks, 3, first_waits_on_stream) != 0)
        return 1;
    CHECK_OK(weft_comm_barrier(comm, stream));
    CHECK_OK(weft_stream_synchronize(stream));
    return 0;
}

static int first_has_come(const weft_job_rank *ranks)
{
    return ranks[0].presence == WEFT_PRESENCE_COME;
}

TEST_ON_RANKS(absent_ranks_are_seen, RANKS_THREADS, 2)
{
    weft_job_rank ranks[MAX_SEEN] = {0};
    if (context->rank == 1 && look_until(context, ranks, 2, first_has_come) != 0)
        return 1;
    CHECK(context->rank == 0 || ranks[1].presence == WEFT_PRESENCE_ABSENT, "rank 1 is not absent");
    CHECK(ranks_comm(context, NULL) != NULL, "rank 1 does not come");
    return 0;
}

static int first_has_failed(const weft_job_rank *ranks)
{
    return ranks[0].presence == WEFT_PRESENCE_ANSWERS && ranks[0].result == WEFT_ERROR_ABORTED;
}

TEST_ON_RANKS(a_failure_is_told, RANKS_THREADS, 2)
{
    weft_job_rank ranks[MAX_SEEN];
    weft_comm *const comm = ranks_comm(context, NULL);
    if (context->rank == 1) {
        CHECK_OK(weft_comm_abort(comm));
        if (look_until(context, ranks, 2, first_has_failed) != 0)
            return 1;
        CHECK(strstr(ranks[0].error, "rank 1 called weft_comm_abort") != NULL, "%s",
              ranks[0].error);
    } else {
        CHECK(weft_comm_host_barrier(comm) != WEFT_OK, "an aborted barrier");
        while (weft_rendezvous_num_ranks(&context->id) == 2)
            poll(NULL, 0, 1);
    }
    return 0;
}

/* ---------------------------------------------------------------- who may look */

TEST_ON_RANKS(a_wrong_secret_is_refused, RANKS_THREADS, 1)
{
    struct weft__meeting_point point = point_of(context);
    weft_unique_id id;
    int32_t num_ranks = 7;
    point.nonce[0] ^= 1;
    weft__meeting_point_to_id(&point, &id);
    CHECK(weft_job_query(&id, 0, NULL, 0, &num_ranks) == WEFT_ERROR_MISMATCH && num_ranks == 7 &&
              strstr(weft_last_error(), "WEFT_SECRET") != NULL,
          "%s", weft_last_error());
    CHECK_OK(weft_job_query(&context->id, 0, NULL, 0, &num_ranks));
    CHECK(num_ranks == 0, "%d ranks", num_ranks);
    return 0;
}

TEST_ON_RANKS(the_same_user_needs_no_secret, RANKS_THREADS, 2)
{
    int32_t pids[MAX_SEEN], num_pids, num_ids, num_found = 0, num_ranks;
    weft_unique_id ids[MAX_SEEN];
    weft_job_rank one = WEFT_INIT(weft_job_rank);
    weft_comm *const comm = ranks_comm(context, NULL);
    CHECK_OK(weft_job_list(pids, MAX_SEEN, &num_pids));
    for (int i = 0; i < num_pids && i < MAX_SEEN; i++)
        num_found += pids[i] == getpid();
    CHECK(num_found == 1 || num_pids > MAX_SEEN, "process %d is there %d times", (int)getpid(),
          num_found);
    CHECK_OK(weft_job_ids(getpid(), ids, MAX_SEEN, &num_ids));
    CHECK(num_ids >= 1 && memcmp(&ids[0], &context->id, sizeof ids[0]) == 0,
          "%d ids, not that of this job", num_ids);
    /* The first of two, into a struct alone. */
    CHECK_OK(weft_job_query(&ids[0], 0, &one, 1, &num_ranks));
    CHECK(num_ranks == 2 && one.rank == 0 && one.num_ranks == 2, "%d ranks", num_ranks);
    CHECK(weft_job_ids(1, ids, MAX_SEEN, &num_ids) == WEFT_ERROR_INVALID_ARGUMENT, "of process 1");
    CHECK_OK(weft_comm_host_barrier(comm));
    return 0;
}

/* ---------------------------------------------------------------- no harm */

static struct weft__observation good_observation(const struct ranks_context *context)
{
    struct weft__observation observation = {.magic = WEFT__HELLO_MAGIC,
                                            .version = WEFT__HELLO_VERSION};
    const struct weft__meeting_point point = point_of(context);
    memcpy(observation.nonce, point.nonce, sizeof observation.nonce);
    return observation;
}

static void send_frame(int fd, enum weft__frame_type type, const void *body, size_t body_bytes,
                       size_t told_bytes)
{
    const struct weft__frame_header header = {.type = type, .body_bytes = told_bytes};
    send(fd, &header, sizeof header, MSG_NOSIGNAL);
    send(fd, body, body_bytes, MSG_NOSIGNAL);
}

/* 1 if the rendezvous ends the connection, whatever it says before. */
static int is_turned_away(int fd)
{
    char thrown_away[256];
    ssize_t num_bytes;
    do
        num_bytes = recv(fd, thrown_away, sizeof thrown_away, 0);
    while (num_bytes > 0);
    return num_bytes <= 0;
}

static int misbehave(const struct ranks_context *context)
{
    const struct weft__observation good = good_observation(context);
    struct weft__observation bad = good;
    struct weft__report report = {.answer = {.number = 1}};
    int held[4];
    bad.version++;
    for (int round = 0; round < 25; round++) {
        for (int way = 0; way < 8; way++) {
            const int fd = knock(context);
            CHECK(fd >= 0, "connection %d was refused", way);
            /* Some leave in the middle of their question, some when they have asked. */
            send_frame(fd, WEFT__FRAME_OBSERVE, way == 0 ? &bad : &good,
                       way == 1 ? sizeof good / 2 : sizeof good,
                       way == 2 ? sizeof good - 1 : sizeof good);
            if (way == 3) /* asks twice */
                send_frame(fd, WEFT__FRAME_OBSERVE, &good, sizeof good, sizeof good);
            if (way == 4) /* plays a rank */
                send_frame(fd, WEFT__FRAME_REPORT, &report, sizeof report, sizeof report);
            if (way == 5)
                send_frame(fd, WEFT__FRAME_GOODBYE, &report, 64, 64);
            if (way == 0 || (way >= 2 && way <= 5))
                CHECK(is_turned_away(fd), "way %d is borne", way);
            if (way == 7 && round < 4) /* reads nothing, and stays */
                held[round] = fd;
            else
                close(fd);
        }
    }
    for (int i = 0; i < 4; i++)
        close(held[i]);
    return 0;
}

TEST_ON_RANKS(bad_observers_harm_nobody, RANKS_THREADS, 4)
{
    weft_comm *comm;
    if (context->rank == 3)
        return misbehave(context);
    CHECK_OK(weft_comm_create(&context->id, context->rank, 3, NULL, &comm));
    for (int32_t round = 0; round < 200; round++) {
        int32_t all[3];
        CHECK_OK(weft_comm_host_all_gather(comm, &round, sizeof round, all));
        CHECK(all[0] == round && all[1] == round && all[2] == round, "round %d", round);
    }
    CHECK_OK(weft_comm_destroy(comm));
    return 0;
}

/* ---------------------------------------------------------------- a rendezvous that never ends */

/* It greets, and then sends frames without a roster as fast as it can, or a roster byte by byte. */
struct endless {
    int fd;
    int num_frames; /* at once; 0: byte by byte */
};

static void *be_endless(void *argument)
{
    enum { MOST_FRAMES = 4096, SECONDS = 100 };
    static struct weft__frame_header frames[MOST_FRAMES];
    const struct endless *endless = argument;
    const struct weft__greeting greeting = {WEFT__HELLO_MAGIC, WEFT__HELLO_VERSION};
    const double end_s = clock_s() + SECONDS;
    const int fd = accept(endless->fd, NULL, NULL);
    ssize_t sent = 1;
    for (int i = 0; i < MOST_FRAMES; i++)
        frames[i].type = WEFT__FRAME_ALIVE;
    send_frame(fd, WEFT__FRAME_GREETING, &greeting, sizeof greeting, sizeof greeting);
    if (endless->num_frames == 0)
        send_frame(fd, WEFT__FRAME_ROSTER, NULL, 0, sizeof(struct weft__roster) << 10);
    while (sent > 0 && clock_s() < end_s) {
        const size_t num_bytes = endless->num_frames * sizeof *frames;
        sent = send(fd, frames, num_bytes > 0 ? num_bytes : 1, MSG_NOSIGNAL);
        if (num_bytes == 0)
            poll(NULL, 0, 1);
    }
    close(fd);
    return NULL;
}

TEST_ON_RANKS(an_endless_answer_ends_at_the_deadline, RANKS_THREADS, 1)
{
    for (int num_frames = 0; num_frames <= 4096; num_frames += 4096) {
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
        struct endless endless = {socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), num_frames};
        struct weft__meeting_point point = point_of(context);
        socklen_t at_bytes = sizeof at;
        weft_unique_id id;
        pthread_t thread;
        int32_t num_ranks;
        CHECK(bind(endless.fd, (struct sockaddr *)&at, sizeof at) == 0 &&
                  listen(endless.fd, 1) == 0 &&
                  getsockname(endless.fd, (struct sockaddr *)&at, &at_bytes) == 0,
              "no port");
        point.port = ntohs(at.sin_port);
        weft__meeting_point_to_id(&point, &id);
        CHECK(pthread_create(&thread, NULL, be_endless, &endless) == 0, "no thread");
        const double begin_s = clock_s();
        const weft_result result = weft_job_query(&id, 200, NULL, 0, &num_ranks);
        const double took_s = clock_s() - begin_s;
        pthread_join(thread, NULL);
        close(endless.fd);
        CHECK(result == WEFT_ERROR_TIMEOUT && took_s < 5, "%d frames at once, after %.1f s: %s",
              num_frames, took_s, weft_last_error());
    }
    return 0;
}
