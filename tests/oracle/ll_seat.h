/* SPDX-License-Identifier: MIT */
/* A rank of a low-latency case: its objects, its memory for two steps, which take turns, and its
 * calls. Functions return 0, or 1 when a check has failed. */
#pragma once

#include "harness/ranks.h"
#include "oracle/ll_case.h"

enum { LL_SEAT_NOBODY = -1 };

struct ll_seat {
    struct ranks_context *context;
    const struct ll_case *problem;
    weft_comm *comm;
    weft_stream *stream;
    weft_ep *ep;
    weft_ll *ll;
    uint64_t answer_stride; /* between rows that combine reads */
    uint64_t row_bytes;     /* of a row of dtype */
    uint64_t num_rows;      /* of a result */
    uint64_t column_bytes;  /* of scales; 0: they lie by rows */
    /* With masks, ranks that are lost in the very step, or LL_SEAT_NOBODY. */
    int32_t half_there; /* by expert, or in packets: its rows are counted, and may be anything */
    int32_t in_doubt;   /* it may have added to some tokens */
    /* On the machine, of each of two steps: */
    struct ll_step {
        char *tokens, *rows, *scales, *answers, *out;
        char *finished;    /* what the answers will be, if rows are late */
        uint32_t *signals; /* that they are */
        void *topk_idx;
        float *weights;
        int32_t *rank_counts, *expert_counts, *src_tokens, *totals;
        uint64_t *expert_signals, num_signalled; /* and what each of them is to become */
        int64_t *ranges;
        int32_t *missing[2]; /* in dispatch and in combine */
        int64_t *waited[2];  /* the same */
    } steps[2];
};

/* config may be NULL. */
int ll_seat_open(struct ll_seat *seat, struct ranks_context *context, const struct ll_case *problem,
                 const weft_comm_config *config);
/* The same in a communicator, which it owns then, of problem->num_ranks ranks that are
 * context->rank's. */
int ll_seat_open_in(struct ll_seat *seat, struct ranks_context *context,
                    const struct ll_case *problem, weft_comm *comm);
/* Waits for what is queued, whose errors must be known. */
int ll_seat_close(struct ll_seat *seat);
int ll_seat_is_by_expert(const struct ll_seat *seat);

/* The rank's tokens of a step. */
int ll_fill_step(struct ll_seat *seat, int32_t step);
weft_result ll_issue_dispatch(struct ll_seat *seat, int32_t step, weft_ll_phases phases);
weft_result ll_issue_combine(struct ll_seat *seat, int32_t step, weft_ll_phases phases,
                             int32_t keep);
/* The same, which must succeed. */
int ll_dispatch(struct ll_seat *seat, int32_t step, weft_ll_phases phases);
int ll_combine(struct ll_seat *seat, int32_t step, weft_ll_phases phases, int32_t keep);

/* ll_check.c: waits; compares what dispatch has brought, and makes of it what combine is to
 * send. */
int ll_check_dispatched(struct ll_seat *seat, int32_t step);
/* By expert, does not wait: compares the rows of one expert, whose word has been seen. */
int ll_check_expert(struct ll_seat *seat, int32_t step, int32_t expert);
/* The words of the step's memory, if dispatch raises them. */
int ll_check_expert_signals(struct ll_seat *seat, int32_t step, uint64_t expected);
/* Waits, and compares what combine has given. */
int ll_check_combined(struct ll_seat *seat, int32_t step);
/* By expert: what has been added up in steps 0 .. num_steps - 1. */
int ll_check_totals(struct ll_seat *seat, int32_t num_steps);
