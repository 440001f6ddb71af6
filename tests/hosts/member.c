/* SPDX-License-Identifier: MIT */
/* A rank of a job on several hosts. What it does is its first argument; what it finds, a test reads from its
 * standard output. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "weft.h"

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
        if (weft_host_all_gather(comm, mine, (size_t)num_numbers * sizeof(mine[0]), all) !=
            WEFT_OK) {
            free(all);
            return fail("weft_host_all_gather");
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
    if (status == 0 && weft_host_barrier(comm) != WEFT_OK)
        status = fail("weft_host_barrier");
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
        if (weft_host_all_gather(comm, &mine, sizeof(mine), is_over) != WEFT_OK)
            status = fail("weft_host_all_gather");
        if (status != 0 || is_over[0])
            break;
        status = gather_rounds(comm, NUM_ROUNDS);
    }
    free(is_over);
    return status == 0 ? gather(comm, NUM_ROUNDS) : status;
}

/* Waits for the news of a failure, without calling anything that would wait for another rank. */
static int watch(weft_comm *comm, const char *limit)
{
    enum { LOOK_MS = 10 };
    const int32_t limit_ms = number(limit);
    int32_t failed_rank = -1;
    for (int32_t waited_ms = 0; waited_ms < limit_ms; waited_ms += LOOK_MS) {
        const weft_result result = weft_comm_status(comm, &failed_rank);
        if (result != WEFT_OK) {
            printf("told of rank %d: %s: %s\n", failed_rank, weft_result_string(result),
                   weft_last_error());
            return 0;
        }
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

struct duty {
    const char *name;
    int (*function)(weft_comm *comm, const char *argument);
};

int main(int argc, char **argv)
{
    static const struct duty duties[] = {
        {"gather", gather_times}, {"until", gather_until}, {"watch", watch}, {"outlive", outlive}};
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
