/* SPDX-License-Identifier: MIT */
/* One more pass through the layer, with experts, whose every result is compared with what follows
 * from the routing and the global token index, to the bit, and on other machines than cpu, where
 * all rows are to be checked, also with what that machine gives. */
#pragma once

#include "workload/ep_layer.h"
#include "workload/ep_oracle_check.h"
#include "workload/ep_pass.h"

struct ep_tally {
    int64_t checked_rows; /* rows compared; of layout and notify: tokens and counts */
    int64_t errors;       /* those that differed */
};

/* Collective. Adds to tallies, which are of single operations, what all ranks together have
 * compared. The first difference of each operation on each rank is told on standard error.
 * The routing of all tokens must be loaded. Overwrites the layer's buffers. */
weft_result ep_check(struct ep_layer *layer, struct ep_tally tallies[EP_NUM_OPS]);

/* The sum over the operation's parts. */
struct ep_tally ep_tally_of(const struct ep_tally tallies[EP_NUM_OPS], enum ep_op op);

/* The parts of ep_check share this. */
struct ep_verifier {
    struct ep_layer *layer;
    struct ep_results results; /* of the pass that is verified */
    struct ep_tally *tallies;  /* [EP_NUM_OPS], of this rank */
    void *received_memory;
    struct ep_received received; /* that must come to this rank */
    unsigned char *row;          /* one row, for what is expected */
    float *x, *sum, *scratch;    /* one row each, in fp32, the last of two */
};

/* Counts one compared row (or count); tells the first difference of the operation. */
void ep_tally_row(struct ep_verifier *verifier, enum ep_op op, int is_equal, const char *format,
                  ...) __attribute__((format(printf, 4, 5)));

/* Which of num_rows rows are compared: a sample in ascending order; a full check takes all. */
int64_t ep_sample_size(const struct ep_verifier *verifier, int64_t num_rows);
int64_t ep_sample_row(const struct ep_verifier *verifier, int64_t num_rows, int64_t index);

/* Collective. A pass of low latency, whose results are verified. */
weft_result ep_ll_verify(struct ep_verifier *verifier);
