/* SPDX-License-Identifier: MIT */
/* A program of packets, and the ways in which it can be wrong. Every launch, each rank sends a row
 * to all others and takes theirs. */
#pragma once

#include "machine/machine.h"

enum packet_form {
    PACKETS_RIGHT,
    PACKETS_SIGNALLED,   /* one buffer, but all ranks tell each other that they have taken theirs */
    PACKETS_REDUCED,     /* the rows become one, in the place of this rank's */
    PACKETS_READ_LATER,  /* data of the launch before the last is read */
    PACKETS_CHAIN,       /* each rank sends to the next only; the last reads data of the first */
    PACKETS_CHAIN_EARLY, /* a launch too early */
    PACKETS_ONE_BUFFER,  /* and nothing says that the packets before were taken */
    PACKETS_HALF_TAKEN,  /* the row's second half stays in its slots */
    PACKETS_SENT_TWICE,  /* and taken twice: two rows in the same slots of a launch */
    PACKETS_TWO_TAKERS,  /* a second warp waits in the same slots */
    PACKETS_DIRTY,       /* the slots are not empty at first */
    PACKETS_READ_AT_ONCE,   /* data is read on the strength of a packet sent after it */
    PACKETS_READ_TOO_EARLY, /* the same, but a launch later */
    PACKETS_ONE_ROW,        /* all ranks send to the same slots */
    PACKETS_OTHER_SENDER,   /* packets are awaited in another rank's slots */
    PACKETS_UNTAKEN,        /* the last launch takes nothing */
    PACKETS_UNTAKEN_LEFT    /* the same, and the slots are never freed */
};

enum {
    PACKET_RANKS = 3,
    PACKET_ROW_BYTES = 28, /* a short packet at the end */
    PACKET_ROW_SLOTS = 4,
    PACKET_MAX_LAUNCHES = 8,
    PACKET_BUFFERS = PACKET_MAX_LAUNCHES
};

/* In every rank's heap; zero at first. */
struct packet_area {
    uint64_t slots[PACKET_BUFFERS][PACKET_RANKS][PACKET_ROW_SLOTS];
    uint64_t escapes[PACKET_BUFFERS][PACKET_RANKS][PACKET_ROW_SLOTS];
    uint64_t data[PACKET_RANKS][PACKET_MAX_LAUNCHES + 1]; /* [sender][launch] */
    uint64_t taken[PACKET_RANKS];                         /* signals */
};

struct packet_args {
    struct packet_area *areas[PACKET_RANKS];
    const unsigned char *own; /* the row that this rank sends */
    unsigned char *rows;      /* [PACKET_RANKS][PACKET_ROW_BYTES] what it has received */
    int32_t *num_wrong;
    int32_t rank;
    enum packet_form form;
    uint64_t sequence; /* of the launch, from 1 */
    uint64_t num_launches;
};

#define wp_planted_packets_args packet_args
