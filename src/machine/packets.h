/* SPDX-License-Identifier: MIT */
/*
 * Packets: data that tells itself that it has come, for messages too short to pay for a signal.
 *
 * A slot is WP_PACKET_BYTES of a heap, aligned to as many. It is empty, all zero, or holds a
 * packet, which is stored and loaded in one piece: so whoever finds the slot not empty has all of
 * the packet, with no order between memory accesses needed. A packet's words are stored as data ^
 * key. Two values cannot be stored as they are: the one that would look empty, and the one that
 * says "escape". For both the slot says escape, and the slot's escape word tells which it is.
 *
 * The receiver empties a slot when it has taken the packet. Who sends twice to a slot must know
 * that the first packet was taken: see "Launches" in machine.h and programs/parity.h.
 */
#pragma once

#include <stdint.h>

#ifdef __CUDACC__
#define WP_PACKETS_FN static __device__ __forceinline__
#else
#define WP_PACKETS_FN static inline
#endif

/* Any values will do; these are unlikely in tensors, so that escapes are rare. */
#define WP_PACKET_KEY(word) ((word) % 2 == 0 ? 0x9e3779b97f4a7c15u : 0xc2b2ae3d27d4eb4fu)
/* Every word of an escape is stored as this. */
#define WP_PACKET_ESCAPE 0xffffffffffffffffu

/* An escape word is a signal, so that it needs no emptying: twice the call's sequence, plus
 * this. */
enum wp_packet_escape {
    WP_ESCAPE_EMPTY = 0, /* the packet's stored words would all be zero */
    WP_ESCAPE_ESCAPE = 1 /* or all be WP_PACKET_ESCAPE */
};

/* The packets of one operation, as every rank sees them. Offsets are in bytes, the same in every
 * area. */
struct wp_packets {
    int32_t rank;
    int32_t num_ranks;
    char *const *areas;      /* [num_ranks] where each rank receives, as mapped here */
    uint64_t slots_offset;   /* of slot 0 */
    uint64_t escapes_offset; /* of the escape words, a uint64_t per slot */
    uint64_t sequence;       /* of the operation */
    uint64_t exchange;       /* for reports of waits: struct wp_wait_site */
    /* As there: so long a lane waits for its next packets, of all ranks that it takes together. */
    uint32_t absent_after_ms;
};

/* How far a lane is in a call that may end with WP_STATUS_ABSENT: zero at first, then the call may
 * be repeated with it. What the lane has taken has been written, and of what it has not nothing has
 * been taken. */
struct wp_packet_progress {
    uint64_t num_taken; /* packets of the row that it need not look at any more */
    uint32_t missing;   /* ranks whose packets have not come: a bit for each */
};

/* Whom a row goes to: every rank of [begin, end), or every one but the sender, or those that are
 * set in `ranks`, into slots from `slot` on. */
enum wp_packet_receivers { WP_PACKETS_TO_OTHERS, WP_PACKETS_TO_ALL, WP_PACKETS_TO_SOME };
struct wp_packet_targets {
    int32_t begin;
    int32_t end;
    uint64_t slot;
    enum wp_packet_receivers receivers;
    uint32_t ranks;
};

/* Whether the rank is one of those. */
WP_PACKETS_FN int wp_packets_go_to(const struct wp_packets *packets, struct wp_packet_targets to,
                                   int32_t rank)
{
    if (to.receivers == WP_PACKETS_TO_SOME)
        return to.ranks >> rank & 1u;
    return rank != packets->rank || to.receivers == WP_PACKETS_TO_ALL;
}

/* The rows of a reduction: rank r's is in the slots from slot + r * slots_per_rank on, but this
 * rank's, which is in memory. */
struct wp_packet_sources {
    uint64_t slot;
    uint64_t slots_per_rank;
    const void *own;
};

/* Rows that are summed: rank r's, of those that are set in `ranks`, is in the slots from slot + r *
 * slots_per_rank on. */
struct wp_packet_rows {
    uint32_t ranks;
    uint64_t slot;
    uint64_t slots_per_rank;
};

/* A word of this rank by which the sender tells whether it sends a row: it is at least `told` then,
 * and, if not, at least `absent`. */
struct wp_packet_told {
    const uint64_t *word;
    uint64_t told, absent;
};
