/* SPDX-License-Identifier: MIT */
/*
 * The table of steps that `pipeline` follows, which coll/plans.c makes for each collective and
 * algorithm.
 *
 * The arrays of an operation consist of parts, and each part of pieces, which the channels share.
 * For each of its pieces a channel goes through the steps in order. In the words of collectives, a
 * step is one of
 *
 *     send                     FROM_IN | TO_SLOTS
 *     recv_reduce_send         FROM_SLOTS | FROM_IN | TO_SLOTS
 *     recv_reduce_copy         FROM_SLOTS | FROM_IN | TO_OUT
 *     recv_reduce_copy_send    the same, and TO_OUTS: what is reduced goes directly
 *     copy_send, directly      FROM_IN | TO_OUT | TO_OUTS
 *     recv_send, directly      FROM_OUT | TO_OUTS
 *     recv, directly           FROM_OUT, and no target
 *
 * What goes directly to a rank whose output nobody reaches, goes through its slots, and it copies
 * it.
 *
 * What a rank posts to another as its n-th step, the other takes as its n-th from it: plans have
 * the steps of two ranks in the same order at both.
 */
#pragma once

#include "programs/coll/direct.h"
#include "programs/coll/fifo.h"

enum wp_step_flag {
    WP_STEP_RECEIVE = 1, /* waits for a step of each sender, and consumes it */
    WP_STEP_SEND = 2,    /* posts a step to each receiver */
    WP_STEP_FROM_SLOTS =
        4, /* the sources: what the senders have sent, reduced with what is FROM_IN; */
    WP_STEP_FROM_IN = 8,   /* this rank's input, */
    WP_STEP_FROM_OUT = 16, /* or its output, where the part came directly from its only sender */
    WP_STEP_TO_SLOTS = 32, /* the targets: slots of the receivers, */
    WP_STEP_TO_OUTS = 64,  /* their outputs, */
    WP_STEP_TO_OUT = 128,  /* and this rank's */
    WP_STEP_REDUCE = 256,  /* else there is one source */
    WP_STEP_PARTIAL = 512, /* more is added later: of an average it makes the sum */
    WP_STEP_SPREAD =
        1024 /* every receiver gets a part of its own, the first one `part`, then the next ones */
};

/* Whom this rank sends to or receives from, and whose slots are whose (fifo.h). */
struct wp_peer {
    uint16_t rank;
    uint8_t in_idx, out_idx;
};

/* Peers [first, first + num) of the plan. */
struct wp_peers {
    uint8_t first, num;
};

struct wp_step {
    uint16_t flags; /* enum wp_step_flag */
    uint8_t part;
    uint8_t lag; /* it does the piece that a step without lag did so many pieces before */
    struct wp_peers senders, receivers;
    /* Rows are reduced in the order of the senders, in which this rank's is before the first of
     * them, and what would be behind the last comes first: so many before its own. */
    uint8_t own_at;
};

enum { WP_MAX_STEPS = 2 * WEFT_COLL_MAX_RANKS, WP_MAX_PEERS = WEFT_COLL_MAX_RANKS };

struct wp_plan {
    struct wp_step steps[WP_MAX_STEPS];
    struct wp_peer peers[WP_MAX_PEERS];
    int32_t num_steps;
    int32_t num_peers;
    int32_t most_lag;
    int32_t num_parts;
    int32_t num_senders; /* whose slots each rank has */
};

/* Part p is bytes [p * part_bytes, (p + 1) * part_bytes) of the rows, as far as there are so
 * many. */
struct wp_pipeline_args {
    struct wp_direct direct; /* chunk_bytes: of a piece, at most a slot's */
    struct wp_fifos fifos;
    struct wp_plan plan;
    struct wp_reduction reduction;
    const char *in;
    char *out;
    uint64_t in_begin; /* of the rows' first byte that the array has: own rows begin later */
    uint64_t out_begin;
    uint64_t num_bytes; /* of the rows */
    uint64_t part_bytes;
};
