/* SPDX-License-Identifier: MIT */
/*
 * What the operations of one communicator do on this rank: a ring of records, the newest of which
 * are kept, and counters for each other rank. Its memory never grows.
 *
 * Nobody waits. The thread that issues an operation takes the next slot; whoever runs the
 * operation writes its times there, each by one store. Both mark the slot while they write, and
 * whoever finds another one's mark does not write. A reader, on any thread, copies a slot and
 * compares the id before and after. An operation whose slot has been taken by a newer one is not
 * written any more.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

#include "record/record_slots.h"

/* Whom a launch meets. */
enum weft__meeting {
    WEFT__MEETS_NOBODY, /* it works on memory of this rank */
    WEFT__MEETS_SOME,   /* as sends, receives and accesses do */
    WEFT__MEETS_ALL,    /* all ranks make the same launch */
    WEFT__NUM_MEETINGS
};

enum weft__record_state {
    WEFT__RECORD_ISSUED,
    WEFT__RECORD_RUNNING,
    WEFT__RECORD_DONE,
    WEFT__RECORD_FAILED,
    WEFT__RECORD_CAPTURED /* into a graph: it runs whenever that does */
};

enum { WEFT__RECORD_NOBODY = -1 };

struct weft__record {
    uint64_t id; /* 1, 2, ... in the order of issue in the communicator */
    /* Text that is never freed. */
    const char *call;      /* of weft.h */
    const char *program;   /* NULL: none, as of calls of the host */
    const char *algorithm; /* or protocol; NULL: not known, as is the next */
    const char *reason;    /* why this algorithm */
    uint64_t num_bytes;    /* that this rank gives or gets, whichever is more; 0: not known */
    uint64_t stream_id;
    uint64_t sequence; /* among those of its exchange that meet alike: the same on all ranks */
    int32_t exchange;  /* its number in the communicator, the same on all ranks; 0: none */
    int32_t meeting;   /* enum weft__meeting */
    /* Of the monotonic clock; 0: not yet, or not known. */
    int64_t issued_ns;
    int64_t started_ns;
    int64_t ended_ns;
    int64_t waited_ns; /* it had nothing to do but to wait for ranks */
    int64_t late_ns;   /* by how much last_rank came after all others of the host; 0: not known */
    int32_t last_rank; /* that came last, maybe this one; else the one awaited last; or -1 */
    int32_t state;     /* enum weft__record_state */
    int32_t call_idx;  /* of `call`, for its counters */
    int32_t unused;
};

/* All operations of a call of weft.h. */
struct weft__call_counters {
    const char *call; /* NULL: there were none */
    uint64_t num_issued, num_failed, num_bytes, waited_ns;
};

/* Of 1 us: 1 us or less, up to 2, up to 4, ... and more than 16 ms. */
enum { WEFT__NUM_WAIT_BUCKETS = 16 };

/* The network's traffic with a rank of another node; written by whoever drives the network. */
struct weft__peer_traffic {
    uint64_t sent_bytes, received_bytes; /* of puts and signals, with headers */
    uint64_t num_under_way;              /* messages and writes that it has not handed over yet */
    uint64_t num_retransmits;            /* packets, if the engine knows */
};

/* What this rank knows of another one. */
struct weft__peer_counters {
    uint64_t num_waits; /* of those that found nothing at their first look */
    uint64_t waited_ns;
    uint64_t buckets[WEFT__NUM_WAIT_BUCKETS]; /* of waits, by their time */
    uint64_t num_last;                        /* operations to which it came last */
    uint64_t late_ns;                         /* after all others, in all of them */
    struct weft__peer_traffic traffic;
    uint64_t num_masks; /* objects that go on without it, when that was read last */
};

struct weft__record_totals {
    uint64_t num_issued, num_failed, num_bytes, waited_ns;
};

struct weft__records;

struct weft__records_size {
    int32_t num_records, num_ranks, num_calls;
};
/* NULL: there is no memory. */
struct weft__records *weft__records_create(struct weft__records_size size);
void weft__records_destroy(struct weft__records *records);

/* Enters an operation, which gets the id that is returned. Without records, 0: then the next ones
 * do nothing. One that is captured counts when it runs. */
uint64_t weft__records_issue(struct weft__records *records, const struct weft__record *record);
void weft__records_start(struct weft__records *records, uint64_t id, int64_t now_ns);
/* Its end was not seen, and nobody can see it any more: it has times of neither. */
void weft__records_forget_start(struct weft__records *records, uint64_t id);
/* Of *end: the times from its end on, the last rank, the state and the number of the call. */
void weft__records_end(struct weft__records *records, uint64_t id, const struct weft__record *end);
void weft__records_add_wait(struct weft__records *records, int32_t rank, int64_t waited_ns);
/* For the network: the counters of all ranks; NULL without records. */
struct weft__peer_counters *weft__records_peers(struct weft__records *records);
/* Counts runs of operations in graphs. */
void weft__records_add_runs(struct weft__records *records, int32_t call_idx, uint64_t num_runs,
                            uint64_t num_bytes);

/* The upper end of a bucket; of the last one it is INT64_MAX. */
int64_t weft__wait_bucket_ns(int32_t bucket);

/* ---------------------------------------------------------------- for readers */

/* The ids that may still be there are first..last; none if last < first. */
struct weft__record_range {
    uint64_t first, last;
};
struct weft__record_range weft__records_range(const struct weft__records *records);
/* Returns whether the record was there, and whole. */
int weft__records_read(const struct weft__records *records, uint64_t id,
                       struct weft__record *record);
void weft__records_peer(const struct weft__records *records, int32_t rank,
                        struct weft__peer_counters *counters);
struct weft__call_counters weft__records_call(const struct weft__records *records, int32_t idx);
int32_t weft__records_num_calls(const struct weft__records *records);
void weft__records_totals(const struct weft__records *records, struct weft__record_totals *totals);
int32_t weft__records_num_ranks(const struct weft__records *records);

/* ---------------------------------------------------------------- the slowest rank */

/* Shorter lateness is no evidence. */
enum { WEFT__LATE_NS = 100 * 1000 };

struct weft__slowest {
    int32_t rank; /* WEFT__RECORD_NOBODY: no rank is slow by this rank's evidence */
    const char *call;
    uint64_t num_operations, num_late; /* those seen, and those to which the rank came late */
    int64_t late_ns;                   /* the mean of these */
};

/* record_slowest.c has the rule. */
struct weft__slowest weft__records_find_slowest(const struct weft__records *records);

/* ---------------------------------------------------------------- as text */

/* Who writes, and of which communicator. */
struct weft__record_owner {
    const char *host, *version, *commit, *machine;
    int32_t pid, rank, num_ranks;
    uint64_t job; /* as of struct weft_comm */
    uint64_t key; /* of the communicator in its job: the same on all ranks */
    int64_t clock_ahead_ns, clock_error_ns; /* struct weft__clock */
    uint32_t timeout_ms;
    const char *failure; /* in words; NULL: none */
    int32_t failed_rank;
    int32_t num_awaited; /* ranks that it waits for now */
    const int32_t *awaited;
    uint64_t heap_used_bytes, heap_committed_bytes;
};

/* The flight record. */
void weft__records_write_json(const struct weft__records *records,
                              const struct weft__record_owner *owner, FILE *file);

/* Metrics, in the text format of Prometheus. */
void weft__records_write_prometheus(const struct weft__records *records,
                                    const struct weft__record_owner *owner, FILE *file);
