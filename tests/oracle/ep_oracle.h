/* SPDX-License-Identifier: MIT */
/* What every operation of expert parallelism must give, by plain loops over the inputs of all
 * ranks. Knows nothing of protocols, blocks or memory: only weft.h's definitions. */
#pragma once

#include <stdint.h>

#include "weft.h"

struct ep_oracle_tokens {
    int32_t num_tokens;
    const int64_t *topk_idx;   /* [num_tokens][num_topk], any values */
    const float *topk_weights; /* [num_tokens][num_topk] */
};

struct ep_oracle_problem {
    int32_t num_ranks;
    int32_t num_nodes; /* of consecutive ranks */
    int32_t num_experts;
    int32_t num_topk;
    int32_t expert_alignment;
    const int32_t *expert_offsets; /* [num_experts + 1] */
    const int32_t *expert_ranks;
    const struct ep_oracle_tokens *tokens; /* [num_ranks] */
};

/* The placement that both tables NULL stand for: offsets[num_experts + 1], ranks[num_experts]. */
void ep_oracle_default_placement(int32_t num_ranks, int32_t num_experts, int32_t *expert_offsets,
                                 int32_t *expert_ranks);
/* The rank that choice `k` of a token goes to, -1 if it is ignored. */
int32_t ep_oracle_destination(const struct ep_oracle_problem *problem, int32_t source_rank,
                              int32_t token, int32_t k);
int32_t ep_oracle_num_local_experts(const struct ep_oracle_problem *problem, int32_t rank);
/* The expert behind a local id, -1 if there is none. */
int32_t ep_oracle_global_expert(const struct ep_oracle_problem *problem, int32_t rank,
                                int32_t local_expert);
/* Rows that `rank` can get if every rank has `max_tokens` tokens and chooses against it. */
int64_t ep_oracle_max_recv_tokens(const struct ep_oracle_problem *problem, int32_t rank,
                                  int32_t max_tokens);

struct ep_oracle_layout {
    int32_t *num_tokens_per_rank;   /* [num_ranks] */
    int32_t *num_tokens_per_node;   /* [num_nodes] */
    int32_t *num_tokens_per_expert; /* [num_experts] */
    uint8_t *is_token_in_rank;      /* [num_tokens][num_ranks] */
};
/* Fills the caller's arrays. */
void ep_oracle_layout(const struct ep_oracle_problem *problem, int32_t rank,
                      const struct ep_oracle_layout *layout);

/* What layout takes in place of topk_idx. */
struct ep_oracle_table {
    uint8_t *tokens_to_ranks; /* [num_tokens][num_ranks] */
    int32_t *selections;      /* [expert_offsets[num_experts]] */
};
/* Fills the caller's zeroed arrays. */
void ep_oracle_table(const struct ep_oracle_problem *problem, int32_t rank,
                     const struct ep_oracle_table *table);

struct ep_oracle_row {
    int32_t source_rank;
    int32_t token;
};

/* What arrives at one rank. */
struct ep_oracle_received {
    int32_t num_rows;
    struct ep_oracle_row *rows;
    int32_t *topk_idx;     /* [num_rows][num_topk] local experts or -1 */
    float *topk_weights;   /* [num_rows][num_topk] */
    int32_t *num_per_rank; /* [num_ranks] */
    int32_t num_local_experts;
    int32_t *num_per_expert;       /* [num_local_experts], aligned */
    int32_t **row_of_source_token; /* [num_ranks][their num_tokens], -1 where it did not come */
};
void ep_oracle_receive(const struct ep_oracle_problem *problem, int32_t rank,
                       struct ep_oracle_received *received);
void ep_oracle_received_free(const struct ep_oracle_problem *problem,
                             struct ep_oracle_received *received);

/* Rows to be combined are asked for one by one, so that nobody holds those of all ranks. */
struct ep_oracle_combine {
    weft_dtype dtype;
    /* What is rounded to on the way to the token's rank, as weft_ep_config has it: over several nodes a node's sum of
     * its ranks' rows, on one node the rows, if that makes them shorter. Weights travel in fp32 anyway. */
    weft_dtype wire;
    int64_t hidden;
    const int32_t *capacities; /* [num_ranks]: rows from there on count as 0 */
    const void *bias[2];       /* [num_tokens][hidden] of the source rank, or NULL */
    void (*read_x)(const void *reader, int32_t rank, int32_t row_idx, void *x);
    void (*read_weights)(const void *reader, int32_t rank, int32_t row_idx, float *weights);
    const void *reader;
};
/* out[hidden] of dtype, and out_weights[num_topk], of one token; received is [num_ranks]. */
void ep_oracle_combine_row(const struct ep_oracle_problem *problem,
                           const struct ep_oracle_received *received,
                           const struct ep_oracle_combine *combine, int32_t source_rank,
                           int32_t token, void *out);
void ep_oracle_combine_weights(const struct ep_oracle_problem *problem,
                               const struct ep_oracle_received *received,
                               const struct ep_oracle_combine *combine, int32_t source_rank,
                               int32_t token, float *out_weights);
