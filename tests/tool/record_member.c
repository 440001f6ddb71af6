/* SPDX-License-Identifier: MIT */
/* A rank of a job in which one rank is the victim: it is killed, stops, calls something else, gives
 * another size, or comes late. Each rank leaves its flight record where WEFT_RECORD says.
 * usage: record_member kill|stop|call|size|late|none VICTIM */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "weft.h"

enum { NUM_STEPS = 100, STRIKE_STEP = 50, COUNT = 100, MAX_COUNT = 2 * COUNT, LATE_NS = 10000000 };

struct member {
    const char *what;
    int is_victim;
    weft_comm *comm;
    weft_coll *coll;
    weft_stream *stream;
};

static int is_struck(const struct member *member, const char *by)
{
    return member->is_victim && strcmp(member->what, by) == 0;
}

static weft_result step(const struct member *member, int step_idx)
{
    static float row[MAX_COUNT];
    weft_coll_args args = WEFT_INIT(weft_coll_args);
    const struct timespec pause = {.tv_nsec = LATE_NS};
    const int is_now = step_idx == STRIKE_STEP;
    args.send = args.recv = row;
    args.count = is_now && is_struck(member, "size") ? MAX_COUNT : COUNT;
    args.dtype = WEFT_FP32;
    args.op = WEFT_SUM;
    if (is_struck(member, "late"))
        nanosleep(&pause, NULL);
    if (is_now && is_struck(member, "kill")) {
        sleep(1); /* the others are in the next operation by then */
        raise(SIGKILL);
    }
    if (is_now && is_struck(member, "stop"))
        raise(SIGSTOP);
    weft_result result = is_now && is_struck(member, "call")
                             ? weft_comm_barrier(member->comm, member->stream)
                             : weft_coll_all_reduce(member->coll, &args, member->stream);
    if (result == WEFT_OK)
        result = weft_stream_synchronize(member->stream);
    return result;
}

static weft_result run(struct member *member, int32_t victim)
{
    weft_result result = weft_comm_create_from_env(NULL, &member->comm);
    if (result == WEFT_OK)
        result = weft_stream_create(member->comm, &member->stream);
    if (result == WEFT_OK)
        result = weft_coll_create(member->comm, NULL, &member->coll);
    if (result == WEFT_OK)
        member->is_victim = weft_comm_rank(member->comm) == victim;
    for (int i = 0; i < NUM_STEPS && result == WEFT_OK; i++)
        result = step(member, i);
    if (result == WEFT_OK)
        result = weft_records_write(member->comm, NULL);
    return result == WEFT_OK ? weft_comm_destroy(member->comm) : result;
}

int main(int argc, char **argv)
{
    struct member member = {.what = argc > 1 ? argv[1] : "none"};
    const weft_result result = run(&member, argc > 2 ? atoi(argv[2]) : -1);
    if (result != WEFT_OK)
        printf("failed: %s\n", weft_last_error());
    return result == WEFT_OK ? 0 : 1;
}
