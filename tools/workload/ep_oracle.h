/* SPDX-License-Identifier: MIT */
/* The results of expert parallelism's operations, by plain loops over what all ranks have
 * chosen. Knows no protocol, blocks or memory: weft.h's definitions alone. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "weft.h"

/* An expert of the job: the rank that has it, and its number there. */
struct ep_token {
    int32_t source, idx;
};

struct ep_choice {
    int32_t rank;         /* that serves it; -1: it is ignored, and the rest may be anything */
    int32_t expert;       /* of all */
    int32_t local_expert; /* of the rank's */
    float weight;
};

struct ep_problem {
    int32_t num_ranks, num_nodes;
    int32_t num_experts, num_topk;
    int32_t expert_alignment;
    weft_ep_order order;  /* in which combine adds */
    const int32_t *nodes; /* [num_ranks] in which each is; NULL: of so many consecutive ranks */
    const int32_t *num_local_experts; /* [num_ranks] */
    const int64_t *first_tokens; /* [num_ranks + 1] of each rank, where those of all have numbers */
    /* Choice k of a token. */
    struct ep_choice (*choose)(const void *of, struct ep_token token, int32_t k);
    const void *of;
};

static inline int32_t ep_oracle_num_tokens(const struct ep_problem *problem, int32_t rank)
{
    return (int32_t)(problem->first_tokens[rank + 1] - problem->first_tokens[rank]);
}

static inline int64_t ep_oracle_number(const struct ep_problem *problem, struct ep_token token)
{
    return problem->first_tokens[token.source] + token.idx;
}

static inline struct ep_choice ep_oracle_choice(const struct ep_problem *problem,
                                                struct ep_token token, int32_t k)
{
    return problem->choose(problem->of, token, k);
}

/* The experts of a rank where none has a place of its own: from its first one up to that of rank +
 * 1. */
static inline int32_t ep_first_expert(int32_t num_experts, int32_t num_ranks, int32_t rank)
{
    return (int32_t)((int64_t)num_experts * rank / num_ranks);
}
static inline int32_t ep_rank_of_expert(int32_t num_experts, int32_t num_ranks, int32_t expert)
{
    return (int32_t)((((int64_t)expert + 1) * num_ranks - 1) / num_experts);
}

/* ---------------------------------------------------------------- layout and notify */

int ep_oracle_goes_to(const struct ep_problem *problem, struct ep_token token, int32_t rank);
int ep_oracle_goes_to_node(const struct ep_problem *problem, struct ep_token token, int32_t node);
/* Tokens of `source` that go there, and its choices of an expert. */
int32_t ep_oracle_rows_from(const struct ep_problem *problem, int32_t source, int32_t rank);
int32_t ep_oracle_rows_for_node(const struct ep_problem *problem, int32_t source, int32_t node);
int32_t ep_oracle_selections_from(const struct ep_problem *problem, int32_t source, int32_t expert);

int32_t ep_oracle_num_rows(const struct ep_problem *problem, int32_t rank);
int32_t ep_oracle_max_rows(const struct ep_problem *problem);
/* The rows of all ranks; and aligned. */
int32_t ep_oracle_local_choices(const struct ep_problem *problem, int32_t rank,
                                int32_t local_expert);
int32_t ep_oracle_local_selections(const struct ep_problem *problem, int32_t rank,
                                   int32_t local_expert);
/* Tokens for the rank's node, of the ranks with its place on the other nodes. */
int32_t ep_oracle_num_relayed(const struct ep_problem *problem, int32_t rank);

/* ---------------------------------------------------------------- dispatch */

/* The rows of a rank, in the order in which they lie there. */
struct ep_received {
    int32_t num_rows;
    struct ep_token *rows;
    int32_t *row_of_token; /* by number; -1: it does not come */
};

/* `memory` has so many bytes, and lives as long as `received`. */
size_t ep_received_bytes(const struct ep_problem *problem);
void ep_oracle_receive(const struct ep_problem *problem, int32_t rank, void *memory,
                       struct ep_received *received);

/* ---------------------------------------------------------------- expand */

/* A row of the expanded layout. */
struct ep_expanded_row {
    int32_t row; /* of what the rank has received; -1: it is in a gap */
    int32_t k;   /* which choice of the token */
};

/* All of them, of which `rows` has room for ep_oracle_num_expanded_rows. Of what has been received
 * only the first num_received rows are there. */
int32_t ep_oracle_num_expanded_rows(const struct ep_problem *problem, int32_t rank);
void ep_oracle_expand(const struct ep_problem *problem, int32_t rank,
                      const struct ep_received *received, int32_t num_received,
                      struct ep_expanded_row *rows);

/* ---------------------------------------------------------------- combine */

/* The types that combine_wire may be. */
enum { NUM_WIRES = 4 };
extern const weft_dtype wire_dtypes[NUM_WIRES];

struct ep_answers {
    int64_t num_values;
    weft_dtype dtype; /* of the rows that ranks answer */
    weft_dtype wire;  /* combine_wire */
    /* The answer of a rank that has had the token; 0: none. */
    int (*read)(void *of, struct ep_token token, int32_t rank, float *values);
    void *of;
};

/* Makes of sum[num_values], the biases or 0, what combine gives for the token; scratch has twice as
 * many. */
void ep_oracle_combine(const struct ep_problem *problem, const struct ep_answers *answers,
                       struct ep_token token, float *sum, float *scratch);
