/* SPDX-License-Identifier: MIT */
/* Records of what a communicator did, and which rank is slow: a part of weft.h, which includes it
 * and has the rules that hold for all of it. */
#include "weft.h" /* before the guard: it includes its parts in their order */

#ifndef WEFT_STATS_H
#define WEFT_STATS_H

#ifdef __cplusplus
extern "C" {
#endif

/* Each rank keeps records of its last operations (WEFT_RECORDS, 512 of each communicator) and
 * counts its waits. So any thread may ask at any time, also while operations run and after a
 * failure, and waits for nobody. An operation is a launch on a stream: some calls make several. One
 * in a graph counts whenever the graph runs.
 *
 * On machine cuda these calls copy from the GPU what kernels have written there since the last
 * one. Of the operations that have ended since then the waits of the last 256 count, and of one in
 * a graph those of its last run. With WEFT_RECORDS=0 all numbers are zero. */
typedef struct weft_stats {
    size_t size;
    uint64_t num_issued; /* operations */
    uint64_t num_failed;
    uint64_t num_bytes; /* sent or received by them, whichever is more */
    uint64_t waited_ns; /* in which operations only waited for other ranks */
    /* By how much the wall clock of this rank's host was ahead of that of rank 0's host when the
     * communicator was made, to within clock_error_ns; 0 where all ranks are on one host. */
    int64_t clock_ahead_ns, clock_error_ns;
} weft_stats;

WEFT_API weft_result weft_stats_query(const weft_comm *comm, weft_stats *stats);

typedef struct weft_peer_stats {
    size_t size;
    /* For this rank; a wait that ends at once does not count. On machine cuda it is how much longer
     * an operation took here than there, from 20 us on, if that rank came last. */
    uint64_t num_waits;
    uint64_t waited_ns;
    /* Waits of up to 1 us, more than that and up to 2 us, 4 us, ...; of the last, more than 16.4
     * ms. */
    uint64_t waits_by_time[16];
    uint64_t num_last; /* operations to which this rank came last */
    uint64_t late_ns;  /* by how much it came after all others: the sum of these operations */
    /* Bytes of puts and headers over the network, if it is on another node. What engine ucx
     * writes into this rank's memory is not known here, so received_bytes leaves it out. */
    uint64_t sent_bytes, received_bytes;
    uint64_t num_under_way;   /* messages and writes that the engine has not handed over now */
    uint64_t num_retransmits; /* packets; looked at five times a second; engine ucx tells none */
    uint64_t num_masks;       /* each weft_ll with masks of its own that goes on without it now */
} weft_peer_stats;

/* All that this rank knows of rank `rank`, which may be itself. */
WEFT_API weft_result weft_stats_query_peer(const weft_comm *comm, int32_t rank,
                                           weft_peer_stats *stats);

typedef struct weft_slowest {
    size_t size;
    uint64_t num_operations; /* the last ones of `call` that count */
    uint64_t num_late;       /* of these: the rank came 0.1 ms or more after all others */
    uint64_t late_ns;        /* by how much, in the mean */
    int32_t rank;            /* -1: no rank is slow by the evidence that this rank has */
    char call[60];           /* "weft_ep_dispatch", or "" */
} weft_slowest;

/* The rank that others wait for: "rank 5 came 1.2 ms late to 46 of 50 weft_ep_dispatch". A rank is
 * named if it was late to three fifths of the last operations of some call, far more often than by
 * chance. All ranks of its host name it, itself included; ranks of other hosts do not see it. */
WEFT_API weft_result weft_stats_query_slowest(const weft_comm *comm, weft_slowest *slowest);

/* Writes the flight record of this rank as JSON, for `weft record`: the last operations, the waits,
 * and the ranks for which it waits now. path NULL: record.JOB.KEY.RANK.json in the directory that
 * WEFT_RECORD names, where each rank writes it by itself when the communicator fails.
 * WEFT_ERROR_UNSUPPORTED with WEFT_RECORDS=0. */
WEFT_API weft_result weft_records_write(weft_comm *comm, const char *path);

#ifdef __cplusplus
}
#endif

#endif
