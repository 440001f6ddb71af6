/* SPDX-License-Identifier: MIT */
/*
 * Records of launches on a device. A kernel writes what it does into a slot in memory of the
 * device, and adds to counters there. Whoever wants to read the records copies them from there, and
 * folds into the records what is new.
 *
 * Clocks of devices are apart, so times of two devices are never compared. An operation in which
 * all meet ends on all ranks when the last one has come, some microseconds apart. So who was in it
 * for the shortest time came last, by as much as the next one was in it longer, and each other rank
 * waited for it for as long as that rank was in it longer. Each rank reads the slots of the others
 * of its host.
 */
#pragma once

#include <stdint.h>

enum {
    WEFT__NUM_RECORD_SLOTS = 256 /* that of a record is its id modulo this */
};
/* In `operation`: of a graph, which may run it again. */
#define WEFT__RECORD_IS_REPLAYED (UINT64_C(1) << 63)

/* Times are of the device's clock, in nanoseconds. */
struct weft__record_slot {
    uint64_t record_id; /* of the launch that started last; stored together with the next one */
    uint64_t started;
    uint64_t operation;   /* its exchange and number, the same on all ranks; 0: not all meet */
    uint64_t ended;       /* of the block that ended last */
    uint32_t num_runs;    /* of all launches of the slot */
    uint32_t num_running; /* blocks: all are added at the start, and each subtracts itself */
    uint64_t failed_id;   /* record_id of the last launch of which a warp failed */
    uint64_t unused[2];
};

/* The launches of a call of weft.h that graphs have run. */
struct weft__call_runs {
    uint64_t num_runs, num_bytes;
};

/* ---------------------------------------------------------------- the host's side */

struct weft__records;
struct weft__record_fold;

/* What a device has written, as the reader gets it. */
struct weft__slot_source {
    void *context;
    /* Copies all slots of a rank. 0: it is of another host; -1: they cannot be read. */
    int (*read_slots)(void *context, int32_t rank, struct weft__record_slot *slots);
    int64_t (*now_ns)(void); /* of the host's monotonic clock */
    int32_t rank, num_ranks;
};

/* NULL: there is no memory. offset_ns: the host's monotonic clock less the device's. It is kept
 * such that no operation starts before it is issued or ends after it has been read. */
struct weft__record_fold *weft__record_fold_create(struct weft__records *records,
                                                   int64_t offset_ns);
void weft__record_fold_destroy(struct weft__record_fold *fold);
/* One thread at a time. */
void weft__record_fold_slots(struct weft__record_fold *fold,
                             const struct weft__slot_source *source);
/* The device's counters, [num_calls], as they are now. */
void weft__record_fold_runs(struct weft__record_fold *fold, const struct weft__call_runs *runs);
