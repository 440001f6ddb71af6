/* SPDX-License-Identifier: MIT */
/* How far the wall clocks of the hosts are apart, by all-gathers of the hosts. What a rank sends in
 * one is sent before anybody has it. So this rank's clock is ahead of that of rank 0 by
 *     at least (time at which this rank sent) - (time at which rank 0 had received),
 *     at most  (time at which this rank had received) - (time at which rank 0 sent).
 * The narrowest bounds of several rounds count. */
#include <stdlib.h>
#include <time.h>

#include "comm/comm.h"

enum { NUM_ROUNDS = 8 };

struct times {
    int64_t sent_ns, received_ns; /* in this round, and in the one before */
};

static int64_t wall_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int is_one_host(const weft_comm *comm)
{
    for (int32_t rank = 1; rank < comm->num_ranks; rank++)
        if (comm->identities[rank].host_key != comm->identities[0].host_key)
            return 0;
    return 1;
}

static weft_result gather_rounds(weft_comm *comm, struct times *all, struct weft__clock *clock)
{
    int64_t least_ns = INT64_MIN, most_ns = INT64_MAX;
    struct times own = {0}, before = {0};
    for (int round = 0; round <= NUM_ROUNDS; round++) {
        own.sent_ns = wall_ns();
        WEFT__TRY(weft__comm_all_gather(comm, &own, sizeof(own), all));
        own.received_ns = wall_ns();
        if (round > 0 && before.sent_ns - all[0].received_ns > least_ns)
            least_ns = before.sent_ns - all[0].received_ns;
        if (own.received_ns - all[0].sent_ns < most_ns)
            most_ns = own.received_ns - all[0].sent_ns;
        before = own;
    }
    const int64_t apart_ns = most_ns - least_ns; /* negative if a clock was set meanwhile */
    if (comm->rank > 0)
        *clock = (struct weft__clock){least_ns + apart_ns / 2, (llabs(apart_ns) + 1) / 2};
    return WEFT_OK;
}

weft_result weft__comm_compare_clocks(weft_comm *comm)
{
    weft_result result = WEFT_OK;
    if (is_one_host(comm))
        return WEFT_OK;
    struct times *all =
        weft__comm_calloc(comm, sizeof(*all) * (size_t)comm->num_ranks, "compare clocks", &result);
    if (result == WEFT_OK)
        result = gather_rounds(comm, all, &comm->clock);
    free(all);
    return result;
}
