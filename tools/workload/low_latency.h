/* SPDX-License-Identifier: MIT */
/*
 * The results of low-latency dispatch and combine, by plain loops over what all tokens have chosen:
 * no protocol, and no rank but numbers. Tests, the sim and the tools fill in the choices, and say
 * what tokens and experts are. Tokens are numbered over all ranks: those of rank s are
 * first_tokens[s] up to first_tokens[s + 1].
 */
#pragma once

#include <stdint.h>

#include "weft.h"

struct ll_choice {
    int32_t rank; /* of its expert; -1: nowhere, as where two ranks have masked each other */
    int32_t local_expert;
    float weight;
};

/* The contents of rows: functions of numbers. */
struct ll_content {
    /* The row of a token, of config->dtype. */
    void (*fill_token)(const void *of, int64_t token, void *elements);
    /* An expert's work on a row, in place. */
    void (*run_expert)(const void *of, int32_t rank, int32_t local_expert, float *values,
                       int64_t num_values);
    const void *of;
};

/* A row that a rank gets: by rank of a token; by expert of a token and one of its choices. */
struct ll_row {
    int64_t token;
    int32_t source, index; /* whose it is, and its number there */
    int32_t expert;        /* by expert: the local one; else -1 */
    int32_t position;      /* by rank: among the source's rows; by expert: among the expert's */
};

struct ll_oracle {
    weft_ll_config config; /* expert_capacity is not 0 */
    struct ll_content content;
    int32_t rank, num_ranks;   /* whose rows are listed */
    int32_t most_local;        /* experts of any rank */
    int32_t *nodes;            /* [num_ranks] in which each is: ascending from 0 */
    int64_t *first_tokens;     /* [num_ranks + 1] */
    struct ll_choice *choices; /* [tokens][num_topk] */
    /* By ll_oracle_settle: */
    int32_t *positions;  /* [tokens][num_topk] how many selections of the expert come before */
    int32_t *selections; /* [num_ranks][most_local] */
    struct ll_row
        *rows; /* [num_rows], by source and token, also those that their expert has no room for */
    int64_t num_rows;
    /* For one row each. */
    float *input, *values, *answer, *of_node, *sum;
    unsigned char *wide, *codes, *scales;
};

/* A row as it is sent: bytes of its elements, and of its scales where these lie side by side; and
 * groups. */
uint64_t ll_sent_bytes(const weft_ll_config *config);
uint64_t ll_scale_bytes(const weft_ll_config *config);
int64_t ll_num_groups(const weft_ll_config *config);

/* Whether dispatch, and whether these phases of combine, are given weights. */
int ll_dispatch_uses_weights(weft_ll_answer answer);
int ll_combine_uses_weights(weft_ll_answer answer, weft_ll_phases phases);

/* As weft_ll.h has it: whether rows may go in packets of a carrier, among so many ranks of one node
 * with at most so many experts each. */
int ll_suits_packets(const weft_ll_config *config, weft_ll_carrier carrier, int32_t num_ranks,
                     int32_t most_local);

/* A problem with as many tokens on each rank, none of which chooses anything yet, and all ranks in
 * one node: 0, or -1 when out of memory. Close whatever the result. */
struct ll_world {
    int32_t rank, num_ranks;
    int32_t most_local;
    const int32_t *num_tokens; /* [num_ranks] */
};
int ll_oracle_open(struct ll_oracle *oracle, const weft_ll_config *config,
                   const struct ll_world *world, const struct ll_content *content);
/* Once the choices are filled in, and the nodes. */
void ll_oracle_settle(struct ll_oracle *oracle);
void ll_oracle_close(struct ll_oracle *oracle);

/* The rank of a token. */
static inline struct ll_choice *ll_oracle_choices(const struct ll_oracle *oracle, int64_t token)
{
    return oracle->choices + token * oracle->config.num_topk;
}

/* How many tokens a source sends here, and how many of its selections are of a local expert; and of
 * all sources. */
int32_t ll_oracle_tokens_from(const struct ll_oracle *oracle, int32_t source);
int32_t ll_oracle_selections_from(const struct ll_oracle *oracle, int32_t source,
                                  int32_t local_expert);
int32_t ll_oracle_selections(const struct ll_oracle *oracle, int32_t local_expert);

/* Where a row is: in [local experts][capacity], or by rank in [ranks][max_tokens]; -1: there is no
 * room for it. */
int64_t ll_oracle_place(const struct ll_oracle *oracle, const struct ll_row *row);

/* A token's row as its experts get it, with its scales side by side. */
void ll_oracle_fill_sent(struct ll_oracle *oracle, int64_t token, void *elements, void *scales);
/* This rank's input of combine for a row, of dtype: what the expert makes of it, or by rank the
 * sum over all its experts, in ascending order of the choices, weights applied. */
void ll_oracle_fill_answer(struct ll_oracle *oracle, const struct ll_row *row, void *elements);
/* The output of combine for a token. */
void ll_oracle_fill_combined(struct ll_oracle *oracle, int64_t token, void *elements);
