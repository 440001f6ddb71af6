/* SPDX-License-Identifier: MIT */
/*
 * What a warp program may ask of its machine: the primitives, and what each promises.
 *
 * A program is a C function in the common subset of C11 and CUDA C++, run by every warp of a
 * launch of num_blocks x num_warps warps. It is compiled once per machine, whose folder comes
 * first in the include path and supplies "primitives.h". A warp has WEFT_WARP_SIZE lanes that all
 * execute the program; work is divided by lane-strided loops:
 *
 *     for (int32_t i = weft_lane_idx(warp); i < n; i += WEFT_WARP_SIZE) ...
 *
 * Every machine provides:
 *
 * Identity (all the same for the lanes of a warp, but lane_idx):
 *   weft_block_idx weft_num_blocks weft_warp_idx weft_num_warps weft_lane_idx
 *
 * Inside a warp and a block:
 *   weft_warp_sync      lanes meet; what one wrote before, the others read after
 *   weft_block_sync     warps of the block meet, with the same promise; all of them must call it
 *   weft_ballot         bit i of the result: lane i's predicate
 *   weft_lanes_below    how many lanes below this one are set in a ballot
 *   weft_max_u32        the largest value of the lanes, in all lanes
 *   weft_prefix_sum     the sum of the values of the lanes below, none of which is negative, and the
 *                       total of all lanes
 *   weft_block_shared   WEFT_BLOCK_SHARED_BYTES that the warps of the block share
 *   weft_warp_pointers  WEFT_WARP_POINTERS addresses that the lanes of the warp share
 *
 * Ordered memory operations:
 *   weft_add_acq_rel    fetch-add on a word of this rank: orders the blocks of a launch
 *   weft_add_relaxed    fetch-add on a word of this rank, which orders nothing: counters
 *   weft_signal         release store to a word of `rank`, which wakes it: what this warp wrote
 *                       before, or ordered before by syncs and acquires, is visible to whoever
 *                       waits for the word
 *   weft_wait           the only loop that spins: returns WEFT_STATUS_OK once *word >= at_least
 *                       (acquire, pairs with weft_signal), or another status when the deadline
 *                       passes, a rank dies, or the communicator is aborted. The program must then
 *                       return that status from all warps of the block without another wait.
 *                       `word` is memory of this rank
 *   weft_fail           records why the launch fails and returns WEFT_STATUS_FAILED
 *
 * Row operations, by all lanes of a warp together, as fast as the machine can:
 *   weft_row_copy       copies row_bytes from src to each non-null dst
 *   weft_row_sum        dst = the non-null srcs added in order to +0 in fp32, rounded once to
 *                       dtype (nearest even); every NaN becomes the canonical one
 * They are asynchronous: when they return, rows may still be read and written, in any order with
 * whatever the warp does next, other row operations included. A lane's part in them ends at its next
 * weft_block_sync or weft_signal, before what that orders, or with the launch; which part of a row
 * is whose is the machine's choice, so that one lane's signal tells of all only after a block sync.
 * weft_warp_sync and weft_add_acq_rel end nothing. The array of pointers (weft_warp_pointers) has
 * been read when the call returns: after a weft_warp_sync it can be written again.
 */
#ifndef WEFT_MACHINE_H
#define WEFT_MACHINE_H

#include <stddef.h>
#include <stdint.h>

#include "weft.h"

#define WEFT_BLOCK_SHARED_BYTES 8192
/* The rows that one token's sum may have: one per expert choice and two biases. */
#define WEFT_WARP_POINTERS (WEFT_MAX_TOPK + 2)

enum weft_status {
    WEFT_STATUS_OK = 0,
    WEFT_STATUS_FAILED = 1 /* the reason is in the launch's failure record */
};

/* Which wait, for the report of one that fails. */
enum weft_phase {
    WEFT_PHASE_START = 0, /* for the rank to start the operation */
    WEFT_PHASE_FINISH = 1 /* for the rank to finish its part of it */
};

struct weft_wait_site {
    enum weft_phase phase;
    int32_t rank;      /* whose signal is awaited */
    uint64_t sequence; /* number of the operation among those of its exchange */
    uint64_t exchange; /* which: its mailbox's offset in every heap, never 0 */
};

enum weft_failure_kind {
    WEFT_FAILURE_NONE = 0,
    WEFT_FAILURE_TIMEOUT,   /* site.rank did not signal: expected and seen are the word's values */
    WEFT_FAILURE_RANK_LEFT, /* the same, because it has destroyed its communicator */
    WEFT_FAILURE_BLOCK_SYNC, /* only some warps of a block called weft_block_sync: the program is wrong */
    WEFT_FAILURE_COMM,       /* the communicator had failed already */
    WEFT_FAILURE_MISMATCH /* site.rank's call differs in `field`: its value is seen, ours expected */
};

struct weft_failure {
    enum weft_failure_kind kind;
    struct weft_wait_site site;
    uint32_t field;
    uint64_t expected;
    uint64_t seen;
};

#include "primitives.h"

#endif
