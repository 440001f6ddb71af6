/* SPDX-License-Identifier: MIT */
/* A program of puts, and the ways in which it can be wrong. Every rank sends rows to the ranks of
 * the same local index on the other nodes, each through a ring of slots there, and takes theirs. */
#pragma once

#include "machine/machine.h"

enum put_form {
    PUTS_RIGHT,
    PUTS_ALL_COUNTED,   /* right too: rows are read when all that can be under way have come */
    PUTS_CREDITS_LEFT,  /* right too: nobody waits for the last credits */
    PUTS_NOT_AWAITED,   /* a row is read without a wait for its word */
    PUTS_SOURCE_REUSED, /* the next row is written to the source before the credit has come */
    PUTS_SLOT_REUSED,   /* the next row is sent to the slot before the credit has come */
    PUTS_CREDIT_FIRST,  /* the credit is given before the row is read */
    PUTS_ROW_NOT_ENDED, /* or while that is under way */
    PUTS_COUNTED,       /* n puts have come: taken for the first n */
    PUTS_TO_OWN_NODE,   /* and whatever else cannot be asked of the network */
    PUTS_TO_NOBODY,
    PUTS_UNALIGNED,
    PUTS_FROM_OUTSIDE,
    PUTS_UNAWAITED /* nobody waits for the word of the last one */
};

enum {
    PUT_MAX_NODES = 16,
    PUT_SLOTS = 2,
    PUT_ROW_BYTES = 56, /* the lanes have different shares */
    PUT_ROWS = 3,       /* to every node, in a launch */
    PUT_MAX_LAUNCHES = 3,
    PUT_MAX_ROWS = PUT_ROWS * PUT_MAX_LAUNCHES,
    PUT_WARPS = 3 /* one sends, one receives, one gives credits */
};

/* In every rank's heap; zero at first. Words and rows of other nodes by node. */
struct put_area {
    uint64_t arrived[PUT_MAX_NODES][PUT_SLOTS]; /* puts to the slot, in all */
    uint64_t credits[PUT_MAX_NODES][PUT_SLOTS]; /* rows there that have been read, in all */
    uint64_t taken[PUT_MAX_NODES]; /* rows that this rank has read, in all: its own signal */
    uint64_t unused[2];
    unsigned char sources[PUT_MAX_NODES][PUT_MAX_ROWS][PUT_ROW_BYTES];
    unsigned char slots[PUT_MAX_NODES][PUT_SLOTS][PUT_ROW_BYTES];
};

struct put_args {
    struct put_area *area;
    uint64_t area_offset;      /* in every heap */
    const unsigned char *rows; /* [PUT_MAX_ROWS][PUT_ROW_BYTES] what this rank sends */
    unsigned char *received;   /* [PUT_MAX_NODES][PUT_MAX_ROWS][PUT_ROW_BYTES] */
    int32_t rank, num_nodes, ranks_per_node;
    enum put_form form;
    int32_t launch; /* from 0 */
};

#define wp_planted_puts_args put_args
