/* SPDX-License-Identifier: MIT */
#include <stdio.h>

#include "api/check.h"
#include "api/objects.h"
#include "api/structs.h"
#include "comm/comm.h"

_Static_assert(sizeof((weft_peer_stats){.size = 0}.waits_by_time) / sizeof(uint64_t) ==
                   WEFT__NUM_WAIT_BUCKETS,
               "the buckets are the same");

weft_result weft_stats_query(const weft_comm *comm, weft_stats *stats)
{
    struct weft__record_totals totals;
    WEFT__TRY(weft__object_check(WEFT__KIND_COMM, comm, "comm"));
    WEFT__TRY(WEFT__CHECK_OUTPUT(weft_stats, stats, "stats"));
    weft__comm_read_records((weft_comm *)comm);
    weft__records_totals(comm->records, &totals);
    const weft_stats found = {.num_issued = totals.num_issued,
                              .num_failed = totals.num_failed,
                              .num_bytes = totals.num_bytes,
                              .waited_ns = totals.waited_ns,
                              .clock_ahead_ns = comm->clock.ahead_ns,
                              .clock_error_ns = comm->clock.error_ns};
    WEFT__WRITE(weft_stats, stats, &found);
    return WEFT_OK;
}

weft_result weft_stats_query_peer(const weft_comm *comm, int32_t rank, weft_peer_stats *stats)
{
    struct weft__peer_counters counters;
    WEFT__TRY(weft__object_check(WEFT__KIND_COMM, comm, "comm"));
    WEFT__TRY(weft__check_range(rank, 0, comm->num_ranks - 1, "rank"));
    WEFT__TRY(WEFT__CHECK_OUTPUT(weft_peer_stats, stats, "stats"));
    weft__comm_read_records((weft_comm *)comm);
    weft__records_peer(comm->records, rank, &counters);
    weft_peer_stats found = {.num_waits = counters.num_waits,
                             .waited_ns = counters.waited_ns,
                             .num_last = counters.num_last,
                             .late_ns = counters.late_ns,
                             .sent_bytes = counters.traffic.sent_bytes,
                             .received_bytes = counters.traffic.received_bytes,
                             .num_under_way = counters.traffic.num_under_way,
                             .num_retransmits = counters.traffic.num_retransmits,
                             .num_masks = counters.num_masks};
    for (int32_t i = 0; i < WEFT__NUM_WAIT_BUCKETS; i++)
        found.waits_by_time[i] = counters.buckets[i];
    WEFT__WRITE(weft_peer_stats, stats, &found);
    return WEFT_OK;
}

weft_result weft_stats_query_slowest(const weft_comm *comm, weft_slowest *slowest)
{
    WEFT__TRY(weft__object_check(WEFT__KIND_COMM, comm, "comm"));
    WEFT__TRY(WEFT__CHECK_OUTPUT(weft_slowest, slowest, "slowest"));
    weft__comm_read_records((weft_comm *)comm);
    const struct weft__slowest worst = weft__records_find_slowest(comm->records);
    weft_slowest found = {.num_operations = worst.num_operations,
                          .num_late = worst.num_late,
                          .late_ns = (uint64_t)worst.late_ns,
                          .rank = worst.rank};
    snprintf(found.call, sizeof found.call, "%s", worst.call != NULL ? worst.call : "");
    WEFT__WRITE(weft_slowest, slowest, &found);
    return WEFT_OK;
}

weft_result weft_records_write(weft_comm *comm, const char *path)
{
    WEFT__TRY(weft__object_check(WEFT__KIND_COMM, comm, "comm"));
    return weft__comm_write_records(comm, path);
}
