/* SPDX-License-Identifier: MIT */
/* A rank of a job on several hosts. What it does is its first argument; what it finds, a test reads
 * from its standard output. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "weft.h"
#include "workload/clock.h"
#include "workload/ep_check.h"

static int fail(const char *call)
{
    printf("failed: %s: %s\n", call, weft_last_error());
    return 1;
}

/* Everybody's numbers, round after round, each of another length. */
static int gather_rounds(weft_comm *comm, int32_t num_rounds)
{
    enum { MAX_NUMBERS = 2000 };
    const int32_t num_ranks = weft_comm_num_ranks(comm), rank = weft_comm_rank(comm);
    int32_t mine[MAX_NUMBERS], *all = malloc((size_t)num_ranks * sizeof(mine));
    if (all == NULL)
        return fail("malloc");
    for (int32_t round = 0; round < num_rounds; round++) {
        const int32_t num_numbers = 1 + round * 37 % MAX_NUMBERS;
        for (int32_t i = 0; i < num_numbers; i++)
            mine[i] = round * 1000003 + rank * 2003 + i;
        if (weft_comm_host_all_gather(comm, mine, (size_t)num_numbers * sizeof(mine[0]), all) !=
            WEFT_OK) {
            free(all);
            return fail("weft_comm_host_all_gather");
        }
        for (int32_t i = 0; i < num_ranks * num_numbers; i++) {
            const int32_t source = i / num_numbers;
            if (all[i] == round * 1000003 + source * 2003 + i % num_numbers)
                continue;
            printf("failed: round %d: number %d of rank %d is %d\n", round, i % num_numbers, source,
                   all[i]);
            free(all);
            return 1;
        }
    }
    free(all);
    return 0;
}

static int gather(weft_comm *comm, int32_t num_rounds)
{
    int status = gather_rounds(comm, num_rounds);
    if (status == 0 && weft_comm_host_barrier(comm) != WEFT_OK)
        status = fail("weft_comm_host_barrier");
    if (status == 0)
        printf("gathered %d times\n", num_rounds);
    return status;
}

static int32_t number(const char *argument)
{
    return (int32_t)strtol(argument, NULL, 10);
}

static int gather_times(weft_comm *comm, const char *num_rounds)
{
    return gather(comm, number(num_rounds));
}

/* As long as rank 0 finds no file of this name. */
static int gather_until(weft_comm *comm, const char *file)
{
    enum { NUM_ROUNDS = 10 };
    int32_t *is_over = malloc((size_t)weft_comm_num_ranks(comm) * sizeof(*is_over));
    int status = is_over != NULL ? 0 : fail("malloc");
    while (status == 0) {
        const int32_t mine = access(file, F_OK) == 0;
        if (weft_comm_host_all_gather(comm, &mine, sizeof(mine), is_over) != WEFT_OK)
            status = fail("weft_comm_host_all_gather");
        if (status != 0 || is_over[0])
            break;
        status = gather_rounds(comm, NUM_ROUNDS);
    }
    free(is_over);
    return status == 0 ? gather(comm, NUM_ROUNDS) : status;
}

/* And when: by the clock of /proc/uptime, which the tests read. */
static int tell_failure(weft_comm *comm)
{
    int32_t failed_rank = -1;
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    const weft_result result = weft_comm_status(comm, &failed_rank);
    printf("told of rank %d: %s: %s, at %lld ms\n", failed_rank, weft_result_string(result),
           weft_last_error(), (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000);
    return 0;
}

/* Waits for the news of a failure, without calling anything that would wait for another rank. */
static int watch(weft_comm *comm, const char *limit)
{
    enum { LOOK_MS = 10 };
    const int32_t limit_ms = number(limit);
    for (int32_t waited_ms = 0; waited_ms < limit_ms; waited_ms += LOOK_MS) {
        if (weft_comm_status(comm, NULL) != WEFT_OK)
            return tell_failure(comm);
        poll(NULL, 0, LOOK_MS);
    }
    printf("failed: was told nothing within %d ms\n", limit_ms);
    return 1;
}

/* The ranks of node 0 leave; the others go on for as long, in a communicator of their own. */
static int outlive(weft_comm *comm, const char *ms)
{
    const int32_t node = weft_comm_node(comm, weft_comm_rank(comm));
    weft_comm *rest;
    if (weft_comm_split(comm, node == 0 ? -1 : 0, 0, NULL, &rest) != WEFT_OK)
        return fail("weft_comm_split");
    if (node == 0)
        return 0;
    poll(NULL, 0, number(ms));
    int status = gather(rest, 10);
    weft_comm_destroy(rest);
    return status;
}

struct visit { /* of a barrier, by a clock that all hosts have in common here */
    int64_t enter_ns, leave_ns;
};

static weft_result visit_barrier(weft_comm *comm, weft_stream *stream, struct visit *visit)
{
    visit->enter_ns = clock_ns();
    weft_result result = weft_comm_barrier(comm, stream);
    if (result == WEFT_OK)
        result = weft_stream_synchronize(stream);
    visit->leave_ns = clock_ns();
    return result;
}

/* Nobody has left a barrier before all had come to it. */
static int check_visits(weft_comm *comm, const struct visit *visits, int32_t num_visits)
{
    const int32_t num_ranks = weft_comm_num_ranks(comm);
    const size_t bytes = (size_t)num_visits * sizeof(*visits);
    struct visit *all = malloc((size_t)num_ranks * bytes);
    int status = all == NULL || weft_comm_host_all_gather(comm, visits, bytes, all) != WEFT_OK
                     ? fail("weft_comm_host_all_gather")
                     : 0;
    for (int32_t i = 0; i < num_visits * num_ranks && status == 0; i++)
        for (int32_t rank = 0; rank < num_ranks && status == 0; rank++)
            if (all[i].leave_ns < all[rank * num_visits + i % num_visits].enter_ns) {
                printf("failed: rank %d has left barrier %d before rank %d came\n", i / num_visits,
                       i % num_visits, rank);
                status = 1;
            }
    free(all);
    return status;
}

/* Ranks come one after the other, a different one last each time. */
static int visit_barriers(weft_comm *comm, const char *count)
{
    enum { MAX_VISITS = 1000, PAUSE_US = 500 };
    static struct visit visits[MAX_VISITS];
    const int32_t num_visits = number(count) < MAX_VISITS ? number(count) : MAX_VISITS;
    weft_stream *stream;
    if (weft_stream_create(comm, &stream) != WEFT_OK)
        return fail("weft_stream_create");
    for (int32_t i = 0; i < num_visits; i++) {
        const int32_t turn = (weft_comm_rank(comm) + i) % weft_comm_num_ranks(comm);
        usleep((unsigned)turn * PAUSE_US);
        if (visit_barrier(comm, stream, &visits[i]) != WEFT_OK)
            return fail("weft_comm_barrier");
    }
    const int status = check_visits(comm, visits, num_visits);
    if (status == 0)
        printf("visited %d barriers\n", num_visits);
    weft_stream_destroy(stream);
    return status;
}

/* Until one fails. */
static int go_on_visiting(weft_comm *comm, const char *limit)
{
    enum { NUM_BEFORE_NEWS = 20 };
    const int64_t deadline_ns = clock_ns() + (int64_t)number(limit) * 1000000;
    weft_stream *stream;
    struct visit visit;
    if (weft_stream_create(comm, &stream) != WEFT_OK)
        return fail("weft_stream_create");
    for (int32_t i = 0; clock_ns() < deadline_ns; i++) {
        if (i == NUM_BEFORE_NEWS)
            printf("visits barriers\n");
        if (visit_barrier(comm, stream, &visit) == WEFT_OK)
            continue;
        weft_stream_destroy(stream);
        return tell_failure(comm);
    }
    printf("failed: was told nothing within %s ms\n", limit);
    return 1;
}

static int64_t num_errors(const struct ep_tally tallies[EP_NUM_OPS])
{
    int64_t sum = 0;
    for (int op = 0; op < EP_NUM_OPS; op++)
        sum += tallies[op].errors;
    return sum;
}

/* Layers until one fails, or until `count` are done. A result that is wrong is worse than any
 * failure. */
static int run_layers(weft_comm *comm, const char *count)
{
    enum { NUM_BEFORE_NEWS = 10, HIDDEN = 1500, ROW_BYTES = 4 * HIDDEN };
    const struct ep_layer_options options = {.program = "member",
                                             .num_tokens = 48,
                                             .num_topk = 3,
                                             .num_experts = 3 * weft_comm_num_ranks(comm),
                                             .hidden = HIDDEN,
                                             .kind = WEFT_FP32,
                                             .row_bytes = ROW_BYTES,
                                             .num_planes = 1,
                                             .plane_bytes = {ROW_BYTES},
                                             .seed = 1,
                                             .num_phases = 1,
                                             .check = EP_CHECK_FULL};
    const int32_t num_layers = number(count);
    struct ep_tally tallies[EP_NUM_OPS] = {{0, 0}};
    struct ep_routing routing;
    struct ep_layer layer;
    weft_stream *stream;
    if (weft_stream_create(comm, &stream) != WEFT_OK ||
        ep_layer_open_routing(&routing, &options, comm, EP_ROUTING_ALL) != WEFT_OK ||
        ep_layer_open(&layer, comm, stream, &options, &routing) != WEFT_OK)
        return fail("ep_layer_open");
    weft_result result = WEFT_OK;
    for (int32_t i = 0; i < num_layers && result == WEFT_OK && num_errors(tallies) == 0; i++) {
        if (i == NUM_BEFORE_NEWS)
            printf("runs layers\n");
        result = ep_check(&layer, tallies);
    }
    if (num_errors(tallies) != 0)
        printf("failed: %lld rows are wrong\n", (long long)num_errors(tallies));
    else if (result != WEFT_OK)
        tell_failure(comm);
    else
        printf("ran %d layers\n", num_layers);
    ep_layer_close(&layer);
    ep_routing_close(&routing);
    weft_stream_destroy(stream);
    return num_errors(tallies) != 0;
}

struct duty {
    const char *name;
    int (*function)(weft_comm *comm, const char *argument);
};

int main(int argc, char **argv)
{
    static const struct duty duties[] = {
        {"gather", gather_times}, {"until", gather_until},      {"watch", watch},
        {"outlive", outlive},     {"barriers", visit_barriers}, {"visit", go_on_visiting},
        {"layers", run_layers}};
    weft_comm *comm;
    int status = 2;
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    if (argc != 3)
        return 2;
    if (weft_comm_create_from_env(NULL, &comm) != WEFT_OK)
        return fail("weft_comm_create_from_env");
    printf("rank %d of %d on node %d is process %d\n", weft_comm_rank(comm),
           weft_comm_num_ranks(comm), weft_comm_node(comm, weft_comm_rank(comm)), (int)getpid());
    for (size_t i = 0; i < sizeof(duties) / sizeof(duties[0]); i++)
        if (strcmp(argv[1], duties[i].name) == 0)
            status = duties[i].function(comm, argv[2]);
    weft_comm_destroy(comm);
    return status;
}
