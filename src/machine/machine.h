/* SPDX-License-Identifier: MIT */
/*
 * The primitives that a warp program may ask of its machine, and the promise of each.
 *
 * A program is a C function in the common subset of C11 and CUDA C++, run by every warp of a
 * launch of num_blocks x num_warps warps. It is compiled once per machine, whose folder comes
 * first in the include path and supplies "primitives.h". A warp has WP_WARP_SIZE lanes that all
 * execute the program; work is divided by lane-strided loops:
 *
 *     for (int32_t i = wp_lane_idx(warp); i < n; i += WP_WARP_SIZE) ...
 *
 * A program may say what it knows, before it includes this, for the sake of machines that gain by
 * it:
 *
 *   WP_ROWS_ARE_ALIGNED  all rows that it copies, sums or converts, and parts of them, begin at
 *                       multiples of WP_ALIGNED_BYTES, and are multiples of them
 *   WP_ROWS_GO_IN_PARTS  what it copies is mostly parts of rows, of a few KiB for each warp
 *   WP_PACKETS_ARE_SHORT  rows that go in packets, and those that it sums with weights, have no
 *                       more than a packet for each lane
 *   WP_PACKETS_ARE_QUANTISED  these are quantised on the way, from at most two units of
 *                             WP_ALIGNED_BYTES for each lane
 *   WP_PACKETS_ARE_LONG  rows that it sends in packets are of 2 KiB at most, in units of
 *                       WP_ALIGNED_BYTES, and begin at multiples of them; those that it takes are
 *                       longer
 *   WP_ROWS_ARE_MADE_NEAR  it quantises and sums rows to memory of the warp, too
 *   WP_LEAST_BLOCKS   a number: a core of a GPU is to have registers for so many of its largest
 *                     blocks, for programs whose warps wait for their own steps
 *
 * Every machine provides:
 *
 * Identity (all the same for the lanes of a warp, but lane_idx):
 *   wp_block_idx wp_num_blocks wp_warp_idx wp_num_warps wp_lane_idx
 *
 * Inside a warp and a block:
 *   wp_warp_sync      lanes meet; what one wrote before, the others read after
 *   wp_warp_join      lanes that have gone different ways go on together, which orders nothing
 *   wp_block_sync     warps of the block meet, with the same promise; all of them must call it
 *   wp_block_turn     0 or 1, the same for all warps of the block: another one after each
 *                     wp_block_sync
 *   wp_ballot         bit i of the result: lane i's predicate
 *   wp_lanes_below    how many lanes below this one are set in a ballot
 *   wp_same_below     how many of the lanes below have the same value
 *   wp_max_u32        the largest value of the lanes, in all lanes
 *   wp_sum_u32 wp_or_u32  the sum of their values, and all their bits, in all lanes
 *   wp_prefix_sum     the sum of the values of the lanes below, none of which is negative, and the
 *                       total of all lanes
 *   wp_block_shared   WP_BLOCK_SHARED_BYTES that the warps of the block share
 *   wp_warp_shared    WP_WARP_SHARED_BYTES that the lanes of the warp share, aligned to 16
 *   wp_warp_pointers  WP_WARP_POINTERS addresses that the lanes of the warp share
 *
 * Arithmetic of a lane:
 *   WP_EACH_OWN       a loop over elements first .. end - 1 of an array that the lane has for
 *                     itself, with `most` elements, a constant: they may be in registers
 *   wp_sqrt           the square root, rounded to nearest even
 *   wp_ratio          n / d, rounded to nearest even, where 2^-24 <= n <= 1 <= d <= 2, or d is 1
 *
 * Ordered memory operations:
 *   wp_add_acq_rel    fetch-add on a word of this rank: orders the blocks of a launch
 *   wp_add_relaxed    fetch-add on a word of this rank, which orders nothing: counters
 *   wp_or_relaxed     the same of bits
 *   wp_load_relaxed   what such a counter has, without order
 *   wp_store_relaxed  gives a word of this rank, of which others of the launch may do the same, a
 *                     value, without order
 *   wp_load_now wp_load_now_u32  plain loads that are under way from here on, however far away what
 *                       they load is used
 *   wp_compare_swap_relaxed  gives a word of this rank a new value if it has the expected one;
 *                       returns the value before. Orders nothing
 *   wp_signal         release store to a word of `rank`, which wakes it: what this warp wrote
 *                       before, or ordered before by syncs and acquires, is visible to whoever
 *                       waits for the word
 *   wp_credit         wp_signal of room, for which nobody need wait: the last ones may come to
 *                       memory that only its rank has freed yet, or to a rank that has left. It is
 *                       behind what the block has loaded, and behind the launches before, not
 *                       behind what it has stored: wp_fence_launches
 *   wp_tell           wp_credit that orders nothing: that somebody is there, or waits
 *   wp_wait           the only loop that spins: returns WP_STATUS_OK once *word >= at_least
 *                       (acquire, pairs with wp_signal), or another status when the deadline
 *                       passes, a rank dies, or the communicator is aborted. The program must then
 *                       return that status from all warps of the block without another wait, unless
 *                       it is WP_STATUS_ABSENT, which site->absent_after_ms allows: then it goes
 *                       on. `word` is memory of this rank; site->rank may be WP_NO_RANK
 *   wp_wait_value     the same; where it comes, *seen is what the word was found to be
 *   wp_wait_u32       wp_wait for a word of 32 bits, of this rank's memory of any kind, which work
 *                       beside the launch raises: a kernel or a thread, with a release, that wakes
 *                       nobody
 *   wp_clear          stores zero to a word of this rank that others signal, and orders nothing:
 *                       nobody may signal it until told that this has been done
 *   wp_fetch_add      adds to a word of `rank`, which may be this one, and wakes it: the release of
 *                       wp_signal and an acquire. Returns the value before
 *   wp_now_ns         a clock of this rank, which never goes back; on the sim its steps
 *   wp_fail           records why the launch fails and returns WP_STATUS_FAILED
 *   wp_fence_launches  what the launches before this one in its stream did, and what this lane has
 *                       done, is visible to whoever learns of what the lane does next, by whatever
 *                       it is
 *   wp_admit_next     a hint: the next launch in the stream may take its cores beside this one, and
 *                       wait there for its end. Called by a warp that knows that every launch that
 *                       this one waits for has started, on all ranks, or by every block that waits
 *                       for nothing more: whatever holds the cores that are left, this launch ends
 *
 * Row operations, by all lanes of a warp together, as fast as the machine can:
 *   wp_row_prefetch   a hint, before one waits: the next row of these bytes that the warp copies or
 *                       quantises is this one, which does not change until then
 *   wp_row_copy       copies row_bytes from src to each non-null dst
 *   wp_row_copy_for   the same, with a hint (enum wp_reuse) of when this host reads the bytes
 *   wp_row_copy_each  copies row_bytes from each of the srcs to the dst of the same index; a null
 *                       src is zeros. Rows are under way together, so that it takes less than their
 *                       copies one after the other
 *   wp_row_reduce     each non-null dst = the non-null srcs, in order, reduced as struct
 *                       wp_reduction says
 *   wp_row_reduce_compact  the same in less code, and slower where rows are in memory of GPUs: for
 *                       what a network limits
 *   wp_row_sum_mixed  dst = the sum of the non-null srcs, in order, of types that struct
 *                       wp_mixed_sum says; dst may be one of the srcs that have its type
 *   wp_row_weighted_sum  dst = +0 + weights[0] * srcs[0] + weights[1] * srcs[1] + ... of the
 *                       non-null srcs, in order, of types that struct wp_weighted_sum says; dst is
 *                       none of the srcs, or the only one if it has their type. `weights` is memory
 *                       of this rank, the warp or the block, and read when the pointers are; NULL:
 *                       all are 1
 *   wp_row_quantise   a row of num_elements, which are whole groups, to where struct
 *                       wp_quantised_rows says, as struct wp_quantisation does. For a part of a
 *                       row, the caller moves src, the dsts and the offset (wp_scale_offset)
 *   wp_row_dequantise  the way back: each element times its group's scale
 * They are asynchronous: when they return, rows may still be read and written, in any order with
 * whatever the warp does next, other row operations included. A lane's part in them ends at its
 * next wp_block_sync, wp_row_sync, wp_remote_post, wp_signal or wp_fetch_add, before what that
 * orders, or with the launch; which part of a row is whose is the machine's choice, so that one
 * lane's signal tells of all only after a block sync. wp_warp_sync and wp_add_acq_rel end nothing.
 * The arrays of pointers (wp_warp_pointers) have been read when the call returns: after a
 * wp_warp_sync they can be written again.
 *
 *   wp_row_sync       wp_warp_sync, before which the lanes' parts of row operations end
 *
 * The network (net/access.h), by all lanes of a warp together:
 *   wp_remote_post    gives the network an access (struct wp_access) to a rank of another node, and
 *                       returns its number at once. The lanes' parts of row operations end; what
 *                       the lanes have written, or ordered before by syncs and acquires, is sent,
 *                       and what they have read has been read. Accesses are not ordered among each
 *                       other, but for flushes and signals. Whoever waits for the word (wp_wait) of
 *                       a put sees the bytes of this put, and all that its sender had ordered
 *                       before it in memory that both can access. The source of a put must stay as
 *                       it is until the target tells, by a put of its own, that the bytes have
 *                       come; or until wp_remote_await, of one that must not be lost
 *   wp_remote_await   waits, as wp_wait does, until the access of a number, which is a flush or
 *                       must not be lost, is done: of a put the source has been read, of a get or
 *                       fetch-add what was asked for is here, of a flush all has come, as if the
 *                       target had been told of it. The number says nothing of other accesses
 *
 * Packets (packets.h), by all lanes of a warp together; of a row, packet i is the part of lane i %
 * WP_WARP_SIZE, in each of these, and a lane's part is done when the call returns. So a lane may
 * send what it has just reduced, and reduce into what it has just sent. The last packet of a row
 * may be short. Rows in memory may start at any byte, and be in memory of the block or the
 * arguments, too; 16-byte aligned ones are fastest.
 *   wp_packets_load     begins to read a row in memory that is to be sent, and does not change
 *                         until then; what is read before other loads, such as wp_packets_begin's
 *                         (programs/coll/packet_area.h), comes while they do
 *   wp_packets_send     sends such a row to some ranks, and wakes them
 *   wp_packets_send_quantised  sends what wp_row_quantise makes of a row, which wp_packets_load has
 *                         begun to read: codes, and float scales, which go into slots of their own.
 *                         Groups have at most 128 elements, a multiple of 4
 *   wp_packets_send_weighted_sum  the same of what wp_row_weighted_sum makes of rows
 *   wp_packets_receive  waits for the row that a rank has sent to this one, writes it to memory and
 *                         empties the slots; or returns a status other than WP_STATUS_OK, as
 *                         wp_wait does, all lanes the same
 *   wp_packets_expect   begins to load what has come of a row that a rank may send to this one: so
 *                         that takes no time of wp_packets_receive_each, which need not be called
 *                         of a row that does not come
 *   wp_packets_receive_each  as wp_packets_receive, of such a row, which it writes to each of some
 *                            places; there may be none
 *   wp_packets_receive_told  as wp_packets_receive, of a row that may not come: then a word tells
 *                         so (struct wp_packet_told), the status is WP_STATUS_ABSENT, and no rank
 *                         is missing
 *   wp_packets_reduce   as wp_packets_receive, with a row of every rank, reduced in ascending rank
 *                       order
 *   wp_packets_sum      the same with rows of some ranks, of which this one may be, of bf16, fp16
 *                         or fp32: their sum, which begins with the first one; of none zeros
 *                         Where packets->absent_after_ms allows it, receive, receive_each,
 *                         receive_told and sum end with WP_STATUS_ABSENT, as wp_wait does: progress
 *                         says what is missing, and they may be called again
 *   wp_packets_clear    empties so many slots of this rank, and clears their escape words, whatever
 *                         is there: nobody may send to them until told that this has been done
 *   wp_packets_send_words  sends two words, below 2^60 but for their highest bit, as a row of 16
 *                         bytes: less work than a row in memory
 *   wp_packets_take_words  as wp_packets_receive, of such a row; all lanes get the words
 *   wp_acquire_packets  an acquire fence: what the packets taken by this lane tell of launches
 *                         before holds from here on, not only in the next launch
 *
 * Tagged rows, by all lanes of a warp together: rows of 32-bit words in WP_TAGGED_BYTES(num_words)
 * of a heap, aligned to 16, zero at first. They are made of packets which carry the number of the
 * operation, so that they tell by themselves that they have come, any warp may take them, and
 * nobody empties them. Who sends a row over another must know that nobody reads that any more.
 *   wp_tagged_send      sends a row from memory of any kind to a rank, and wakes it; orders nothing
 *                         that this launch did
 *   wp_tagged_take      waits for the row of operation site->sequence, as wp_wait does, all lanes
 *                         the same, and copies it to memory of this rank. What the sender's rank
 *                         did before its launch is ordered before what the lanes do that have
 *                         copied a part; before all after a sync
 *   wp_tagged_take_relaxed  the same, ordering nothing
 *   wp_tagged_word      a word of a row that a warp of the block has taken, by one lane
 *
 * Launches: a launch begins with a fence, acquire and release, and ends with a release fence of all
 * its lanes. So what was done before a launch, is ordered before what a peer does in the launches
 * after the one in which it took a packet that this launch sent. Packets order nothing else.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "weft.h"

#include "machine/packets.h"
#include "net/access.h"

enum { WP_ALIGNED_BYTES = 16 };

#ifdef __cplusplus
#define WP_STATIC_ASSERT static_assert
#else
#define WP_STATIC_ASSERT _Static_assert
#endif

#define WP_BLOCK_SHARED_BYTES 8192
#define WP_WARP_SHARED_BYTES  512 /* a rank and a row for each of WEFT_MAX_TOPK choices */
/* One for the result of a token's sum, and for each row that it may have: one per expert choice,
 * and two biases. */
#define WP_WARP_POINTERS (WEFT_MAX_TOPK + 3)

/* How rows become one, element by element. Sums and products are made in fp32 (fp64 of fp64), and
 * rounded once to nearest even; integers wrap around. The average is the sum divided by the number
 * of rows, before rounding; of integers, towards zero. The maximum and minimum are those of IEEE
 * 754-2019: NaN if there is one, and -0 is less than +0. Every NaN becomes the positive quiet one
 * with all mantissa bits set. FP8 saturates at 448. */
enum wp_reduction_op {
    WP_REDUCTION_SUM = WEFT_SUM, /* begins with the first row */
    WP_REDUCTION_PROD = WEFT_PROD,
    WP_REDUCTION_MAX = WEFT_MAX,
    WP_REDUCTION_MIN = WEFT_MIN,
    WP_REDUCTION_AVG = WEFT_AVG,
    WP_REDUCTION_SUM_FROM_ZERO /* begins with +0: no rows give 0, and -0 alone gives +0 */
};

struct wp_reduction {
    weft_dtype dtype;
    enum wp_reduction_op op;
    /* That WP_REDUCTION_AVG divides by, where rows are sums of others; 0: the rows that are there.
     * Else 0. */
    int32_t num_averaged;
};

/* When this host, its network included, reads what is written. A hint. */
enum wp_reuse { WP_READ_LATER, WP_READ_SOON };

/* The types of rows that are summed as by WP_REDUCTION_SUM_FROM_ZERO: bf16, fp16, fp32 or FP8. A
 * sum in fp32 is not rounded, so that it can be a source of another one. */
struct wp_mixed_sum {
    int32_t num_first;      /* of the sources, null ones included, */
    weft_dtype first_dtype; /* which have this type */
    weft_dtype rest_dtype;  /* and the others this */
    weft_dtype dst_dtype;
    enum wp_reuse reuse; /* of dst */
};

/* Types of rows with weights: bf16, fp16 or fp32. Each product is made in fp32 and rounded, then
 * added in fp32, and the sum is rounded to dst's type. Every NaN becomes the one of
 * wp_reduction. */
struct wp_weighted_sum {
    weft_dtype src_dtype;
    weft_dtype dst_dtype;
    enum wp_reuse reuse; /* of dst */
};

/* A scale is fp32, or that rounded up to a power of two, or the byte of that one's exponent. */
enum wp_scale_kind {
    WP_SCALE_FP32 = WEFT_SCALE_FP32,
    WP_SCALE_FP32_POWER_OF_TWO = WEFT_SCALE_FP32_POWER_OF_TWO,
    /* Four bytes make a word: group 4w + b is byte b of word w. */
    WP_SCALE_UE8M0 = WEFT_SCALE_UE8M0
};

/*
 * Rows of bf16, fp16 or fp32 as rows of FP8 or INT8, whose groups of elements have a scale each.
 * For wp_row_quantise dst_dtype is the narrow one, for wp_row_dequantise src_dtype.
 *
 * amax is the largest magnitude of the group's finite elements, 1e-4 at least. In fp32, with one
 * rounding for each operation as written:
 *
 *                 scale              element
 *   FP8           amax * (1 / 448)   x * (448 / amax), to nearest even; beyond 448, infinities too,
 *                                    448 of its sign; NaN becomes the one of wp_reduction
 *   INT8          amax / 127         x * (127 / amax), the same with 127; NaN becomes 0
 *   power of two  the scale above,   x * (1 / scale)
 *                 rounded up
 *
 * So zeros and subnormals make no scale of 0, and a group of numbers up to FLT_MAX none of
 * infinity. The way back is element * scale in fp32, rounded to dst_dtype. It reads exponent bytes
 * as exponents of fp32: 0 is 0, 255 infinity, which quantising never writes.
 */
struct wp_quantisation {
    weft_dtype src_dtype;
    weft_dtype dst_dtype;
    enum wp_scale_kind scale;
    int32_t group_elements;
    int64_t scale_stride_bytes; /* from one word of scales to the next; 0: they lie side by side */
};

/* Where a row goes that is quantised: its elements to each dst that is not NULL, and that one's
 * scales to the pointer with the same index in `scales`, which may be the dsts themselves, plus an
 * offset. */
struct wp_quantised_rows {
    const void *const *dsts;
    const void *const *scales;
    int64_t scales_offset;
    int32_t num_dsts;
};

/* The greatest of several statuses counts. */
enum wp_status {
    WP_STATUS_OK = 0,
    WP_STATUS_ABSENT = 1, /* of a wait whose site allows it: what was awaited has not come */
    WP_STATUS_FAILED = 2  /* the reason is in the launch's failure record */
};

/* Which wait, for the report of one that fails. */
enum wp_phase {
    WP_PHASE_START = 0,  /* for the rank to start the operation */
    WP_PHASE_FINISH = 1, /* for the rank to finish its part of it */
    WP_PHASE_DATA = 2,   /* for packets of the rank */
    WP_PHASE_ACCESS = 3, /* for an access to the rank's memory to be done */
    WP_PHASE_CREDIT = 6, /* for the rank to take what came before */
    /* For no rank in particular: */
    WP_PHASE_WORD = 4,  /* for a word of this rank's */
    WP_PHASE_FLUSH = 5, /* for all accesses to ranks of other nodes to be done */
    WP_PHASE_EXPERT = 7 /* this rank for rows of a local expert, whose index is in `sequence` */
};

enum { WP_NO_RANK = -1 };

struct wp_wait_site {
    enum wp_phase phase;
    int32_t rank;      /* whose signal is awaited */
    uint64_t sequence; /* number of the operation among those of its exchange */
    uint64_t
        exchange; /* which: its mailbox's offset in every heap, or the place of a word, never 0 */
    /* 0: the wait fails when the communicator's deadline passes, or the rank is gone. Else it is
     * WP_STATUS_ABSENT when so many milliseconds have passed, or the rank is gone. */
    uint32_t absent_after_ms;
};

enum wp_failure_kind {
    WP_FAILURE_NONE = 0,
    WP_FAILURE_TIMEOUT,     /* site.rank did not signal: expected and seen are the word's values */
    WP_FAILURE_RANK_GONE,   /* the same, because it has destroyed its communicator, or died */
    WP_FAILURE_BLOCK_SYNC,  /* only some warps of a block called wp_block_sync: the program is
                              wrong */
    WP_FAILURE_COMM,        /* the communicator had failed already */
    WP_FAILURE_OUTSTANDING, /* there are not so many results of a weft_ll as the operation needs,
                               or one too many: expected and seen */
    WP_FAILURE_NO_ROOM,     /* an expert of this rank has room for `expected` rows, and `seen` are
                           for it, those of site.rank more than its share; field: the expert */
    WP_FAILURE_MISMATCH /* site.rank's call differs in `field`: its value is seen, ours expected */
};

struct wp_failure {
    enum wp_failure_kind kind;
    struct wp_wait_site site;
    uint32_t field;
    uint64_t expected;
    uint64_t seen;
};

#include "primitives.h"

#include "machine/scales.h"

/* Bytes, and behind them an add of 1 to a word, by which the target hears of them; nobody else
 * asks. */
WP_FN struct wp_access wp_counted_put(int32_t rank, uint64_t source, uint64_t target,
                                      uint64_t num_bytes, uint64_t word)
{
    const struct wp_access put = {WP_ACCESS_PUT_SIGNAL,
                                  rank,
                                  source,
                                  target,
                                  num_bytes,
                                  word,
                                  1,
                                  WP_ACCESS_MAY_BE_LOST,
                                  WP_ACCESS_AT_ONCE,
                                  WP_ACCESS_ADDED_BY_NETWORK,
                                  0,
                                  0};
    return put;
}

WP_FN uint64_t wp_dtype_bytes(weft_dtype dtype)
{
    switch (dtype) {
    case WEFT_UINT8:
    case WEFT_FP8_E4M3:
    case WEFT_INT8:
        return 1;
    case WEFT_BF16:
    case WEFT_FP16:
        return 2;
    case WEFT_INT32:
    case WEFT_FP32:
        return 4;
    case WEFT_INT64:
    case WEFT_FP64:
    case WEFT_DTYPE_NONE:
        break;
    }
    return 8;
}

WP_FN uint64_t wp_elements_bytes(weft_dtype dtype, int64_t num_elements)
{
    return (uint64_t)num_elements * wp_dtype_bytes(dtype);
}
