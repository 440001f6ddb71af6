/* SPDX-License-Identifier: MIT */
/* Compares what the operations have given to a rank with the oracle. */
#pragma once

#include "workload/ep_oracle.h"

struct ep_checker {
    const struct ep_problem *problem;
    int32_t rank;
    /* Checks each count, each token of layout and each row; if one is wrong, what is
     * wrong. */
    void (*tell)(void *of, int is_right, const char *text);
    void *of;
};

/* The results of layout; NULL: it was not asked for this. */
struct ep_laid_out {
    const int32_t *num_tokens_per_rank, *num_tokens_per_node, *num_tokens_per_expert;
    const uint8_t *is_token_in_rank;
};
void ep_oracle_check_layout(const struct ep_checker *checker, const struct ep_laid_out *found);

void ep_oracle_check_counts(const struct ep_checker *checker, const weft_ep_counts *found);
void ep_oracle_check_ends(const struct ep_checker *checker, const int32_t *recv_rank_ends);

/* Outputs of dispatch beside the rows; NULL: it was not asked for this. */
struct ep_row_notes {
    weft_dtype index_type;
    const void *topk_idx;
    const float *topk_weights;
    const int32_t *src_token;
};
/* Checks one row, which is the token's. */
void ep_oracle_check_notes(const struct ep_checker *checker, const struct ep_row_notes *found,
                           int32_t row, struct ep_token token);
/* Behind the last row. */
void ep_oracle_check_no_more(const struct ep_checker *checker, const struct ep_row_notes *found,
                             int32_t num_rows, int32_t capacity);
