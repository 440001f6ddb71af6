/* SPDX-License-Identifier: MIT */
/*
 * One operation of the library in a job of a few ranks, run on the sim machine: several rounds on
 * one weft_ep, weft_ll or weft_coll, of a shape drawn from the seed, with all results compared with
 * what every rank can compute alone from the seed.
 */
#pragma once

#include <stdint.h>

#include "guarded.h"
#include "machine/sim/sim.h"
#include "weft.h"

enum scenario_op {
    SCENARIO_LAYOUT,
    SCENARIO_NOTIFY,
    SCENARIO_DISPATCH,
    SCENARIO_COMBINE,
    SCENARIO_BARRIER,
    SCENARIO_ALL_REDUCE, /* the collectives, in the order of weft_collective */
    SCENARIO_REDUCE_SCATTER,
    SCENARIO_ALL_GATHER,
    SCENARIO_ALL_TO_ALL,
    SCENARIO_BROADCAST,
    SCENARIO_REDUCE,
    SCENARIO_GATHER,
    SCENARIO_SCATTER,
    SCENARIO_GROUP,      /* sends and receives */
    SCENARIO_LL,         /* low latency: dispatch, combine and release of a weft_ll */
    SCENARIO_LL_PACKETS, /* the same in packets, on one node of up to 8 ranks; of more, as LL */
    SCENARIO_GATE,       /* a choice of experts, its gradient, and biases */
    SCENARIO_MOVE_EXPERTS,
    SCENARIO_COPIES, /* choices of replicas, weights of copies, and their gradients */
    NUM_SCENARIO_OPS
};

extern const char *const scenario_op_names[NUM_SCENARIO_OPS];

static inline int scenario_is_collective(enum scenario_op op)
{
    return op >= SCENARIO_ALL_REDUCE && op <= SCENARIO_GROUP;
}

static inline int scenario_is_low_latency(enum scenario_op op)
{
    return op == SCENARIO_LL || op == SCENARIO_LL_PACKETS;
}

/* Whether there may be several nodes, whose ranks do not have each other's memory mapped. */
static inline int scenario_spans_nodes(enum scenario_op op)
{
    return op <= SCENARIO_BARRIER || op == SCENARIO_LL || op == SCENARIO_MOVE_EXPERTS ||
           op == SCENARIO_COPIES;
}

enum {
    SCENARIO_MAX_RANKS = 256,
    SCENARIO_MAX_TOKENS = 64,
    SCENARIO_MAX_COUNT = 128,
    SCENARIO_MAX_ROUNDS = 3,
    SCENARIO_ROW_BYTES = 32,
    SCENARIO_ROW_ELEMENTS = SCENARIO_ROW_BYTES / (int)sizeof(float),
    SCENARIO_DRAWN = -1 /* of a request: the seed chooses */
};

/* Slots between nodes. */
enum scenario_staging {
    SCENARIO_STAGING_DRAWN,
    SCENARIO_STAGING_LEAST, /* one channel with one slot of one row */
    NUM_SCENARIO_STAGINGS
};

extern const char *const scenario_staging_names[NUM_SCENARIO_STAGINGS + 1]; /* the last is NULL */

struct scenario_request {
    enum scenario_op op;
    uint64_t seed;      /* of shape and schedule */
    int32_t num_ranks;  /* or SCENARIO_DRAWN: see shape_draw */
    int32_t num_nodes;  /* or SCENARIO_DRAWN */
    int32_t max_tokens; /* per rank and round */
    int32_t max_count;  /* elements of a collective's row */
    enum scenario_staging staging;
    enum weft__sim_initiator initiator;
    enum weft__sim_policy policy;
    enum weft__sim_fault fault; /* strikes a rank and a step that the seed chooses */
    int32_t weakened_site;      /* or WEFT__SIM_NO_SITE */
    int32_t num_trace_events;
};

/* The kind of a finding; the first that applies. */
enum scenario_finding {
    SCENARIO_SOUND,
    SCENARIO_RACE,
    SCENARIO_HANG,
    SCENARIO_WRONG,
    SCENARIO_CRASH, /* of the process: told by whoever has started it */
    NUM_SCENARIO_FINDINGS
};

extern const char *const scenario_finding_names[NUM_SCENARIO_FINDINGS];

struct scenario_outcome {
    enum scenario_finding finding;
    int fault_struck;
    char message[256]; /* of the first wrong result; "" if none */
    struct weft__sim_result sim;
};

/* 0 unless there was no memory for the run itself. */
int scenario_run(const struct scenario_request *request, struct scenario_outcome *outcome);
