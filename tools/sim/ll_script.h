/* SPDX-License-Identifier: MIT */
/*
 * A scenario's use of a weft_ll: the order in which the ranks send, receive and release the results
 * of a round, any that weft.h allows. It is the same on all ranks; whether two phases are one
 * launch, on which stream, and when the host waits, each rank draws for itself.
 */
#pragma once

#include "scenario.h"
#include "workload/rng.h"

enum { LL_MAX_RESULTS = 2, LL_MAX_COMBINES = 2 };
enum { LL_MAX_MOVES = LL_MAX_RESULTS * (2 + 2 * LL_MAX_COMBINES + 1) };

/* Shared by the scenario's rounds. */
struct ll_terms {
    int32_t hidden;
    weft_ll_layout layout;
    weft_ll_answer answer;
    int32_t fills_slots;        /* by rank: answers are written where the rows came to */
    weft_dtype answer_dtype;    /* or NONE */
    int32_t expert_capacity;    /* 0: room for all, if no token chooses an expert twice */
    int32_t num_results;        /* at a time */
    int32_t is_unanswered;      /* all of them are released, and none combined */
    int32_t has_expert_signals; /* by expert: the host reads rows as soon as dispatch tells */
    int32_t has_signals;        /* by expert: answers are written when combine has begun, */
    int32_t rows_per_signal;    /* and a word tells of so many; 0: of all of an expert */
    int32_t has_weights;
    weft_quantisation quantisation; /* of rows on their way to the experts, or zero */
    int32_t has_columns;            /* by expert: scales lie by columns */
    weft_ll_route route;
    weft_ll_carrier carrier;
    weft_ll_on_missing on_missing;
};

enum ll_step { LL_SEND_ROWS, LL_RECEIVE_ROWS, LL_SEND_ANSWERS, LL_RECEIVE_ANSWERS, LL_RELEASE };

struct ll_move {
    enum ll_step step;
    int32_t result;   /* of the round */
    int32_t combine;  /* of the result: the first or the second */
    int32_t keeps;    /* of LL_SEND_ANSWERS */
    int32_t may_join; /* a phase that sends: the next move receives just that */
};

/* How a result ends. */
enum ll_ending {
    LL_COMBINED,
    LL_COMBINED_TWICE,
    LL_COMBINED_AND_RELEASED,
    LL_RELEASED,
    LL_NUM_ENDINGS
};

struct ll_script {
    struct ll_move moves[LL_MAX_MOVES];
    int32_t num_moves;
};

void ll_draw_terms(struct ll_terms *terms, struct rng *rng, int32_t max_hidden);
void ll_draw_script(struct ll_script *script, const struct ll_terms *terms, int32_t num_results,
                    struct rng *rng);
