/* SPDX-License-Identifier: MIT */
/* The parts of ep_check that look at results; see there. */
#pragma once

#include "ep_check.h"
#include "ep_pass.h"
#include "workload/ep_oracle_check.h"

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

void ep_verify_layout(struct ep_verifier *verifier);
void ep_verify_notify(struct ep_verifier *verifier);
void ep_verify_dispatch(struct ep_verifier *verifier);
void ep_verify_combine(struct ep_verifier *verifier);

/* Of num_rows rows, which are compared: a sample in ascending order, of this size; all of a full check. */
int64_t ep_sample_size(const struct ep_verifier *verifier, int64_t num_rows);
int64_t ep_sample_row(const struct ep_verifier *verifier, int64_t num_rows, int64_t index);

/* Collective. A pass of low latency, whose results are verified. */
weft_result ep_ll_verify(struct ep_verifier *verifier);
