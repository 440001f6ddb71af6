/* SPDX-License-Identifier: MIT */
/*
 * One access to memory of a rank that cannot be reached by loads and stores. The same record is
 * what a program fills, what lies in the slot of the queue to the network, and what the network
 * starts. C and CUDA C++.
 *
 * A place is a region's number and an offset in it, in one word. Region 0 is the heap, on every
 * machine: so an offset in the heap is a place, as in programs/window.h. Regions have the same
 * numbers on all ranks.
 */
#pragma once

#include <stdint.h>

enum { WP_PLACE_OFFSET_BITS = 48, WP_ACCESS_BYTES = 64 };

enum wp_access_operation {
    WP_ACCESS_PUT,
    WP_ACCESS_PUT_SIGNAL, /* with an add; num_bytes 0: nothing but the add */
    WP_ACCESS_GET,
    WP_ACCESS_FETCH_ADD,
    WP_ACCESS_FLUSH, /* all that this rank has posted to the rank before */
    WP_ACCESS_SIGNAL /* an add after all that this rank has posted to the rank before */
};

/* The consequence if the rank has left, or dies, before the access is done. */
enum wp_access_loss {
    WP_ACCESS_MAY_BE_LOST,     /* nothing: whoever waits hears of it otherwise */
    WP_ACCESS_MUST_NOT_BE_LOST /* the failure of all, before the access completes */
};

/* When it starts: what nobody may be waiting for yet can wait for what is posted next, whose
 * message it may share. A host that goes on to other work sends it within a millisecond. */
enum wp_access_start { WP_ACCESS_AT_ONCE, WP_ACCESS_WITH_THE_NEXT };

/* Who adds to the word beside this rank's network. A NIC's adds are atomic among each other alone,
 * so a NIC adds to no word that processors add to. */
enum wp_access_adders { WP_ACCESS_ADDED_BY_NETWORK, WP_ACCESS_ADDED_BY_ALL };

/* One cache line. */
struct wp_access {
    enum wp_access_operation operation;
    int32_t rank;
    uint64_t source;    /* here; of a get there */
    uint64_t target;    /* there; of a get and a fetch-add here */
    uint64_t num_bytes; /* of a put or get */
    uint64_t word, add; /* of a signal or fetch-add: 64 bits there, aligned to 8 */
    enum wp_access_loss loss : 8;
    enum wp_access_start start : 8;
    enum wp_access_adders adders : 16;
    /* The post of an access that may be lost waits so many milliseconds for room in a NIC's queue
     * that does not move. Then the queue has failed, and all behind it is lost, too. 0: as long as
     * any wait, which fails the launch. */
    uint32_t absent_after_ms;
    uint64_t ready; /* the queue's: number + 1, stored last, once the rest is there */
};

/* Whether anybody may wait for its number. Those that may be lost are so many that to wake who
 * waits for something else would cost. */
static inline int wp_access_is_awaited(const struct wp_access *access)
{
    return access->loss == WP_ACCESS_MUST_NOT_BE_LOST || access->operation == WP_ACCESS_FLUSH;
}
