/* SPDX-License-Identifier: MIT */
#include "oracle/ep_oracle.h"

#include <stdlib.h>
#include <string.h>

#include "harness/memory.h"

void ep_oracle_default_placement(int32_t num_ranks, int32_t num_experts, int32_t *expert_offsets,
                                 int32_t *expert_ranks)
{
    for (int32_t rank = 0; rank < num_ranks; rank++) {
        const int64_t begin = (int64_t)num_experts * rank / num_ranks;
        const int64_t end = (int64_t)num_experts * (rank + 1) / num_ranks;
        for (int64_t expert = begin; expert < end; expert++)
            expert_ranks[expert] = rank;
    }
    for (int32_t expert = 0; expert <= num_experts; expert++)
        expert_offsets[expert] = expert;
}

/* Which entry of expert_ranks serves the choice. */
static int64_t replica_entry(const struct ep_oracle_problem *problem, int32_t expert,
                             int64_t source_plus_token)
{
    const int32_t begin = problem->expert_offsets[expert];
    const int32_t num_replicas = problem->expert_offsets[expert + 1] - begin;
    return begin + source_plus_token % num_replicas;
}

static int32_t replica_rank(const struct ep_oracle_problem *problem, int32_t expert,
                            int64_t source_plus_token)
{
    return problem->expert_ranks[replica_entry(problem, expert, source_plus_token)];
}

int32_t ep_oracle_destination(const struct ep_oracle_problem *problem, int32_t source_rank,
                              int32_t token, int32_t k)
{
    const struct ep_oracle_tokens *tokens = &problem->tokens[source_rank];
    const int64_t expert = tokens->topk_idx[(int64_t)token * problem->num_topk + k];
    if (expert < 0 || expert >= problem->num_experts)
        return -1;
    return replica_rank(problem, (int32_t)expert, (int64_t)source_rank + token);
}

static int rank_has_expert(const struct ep_oracle_problem *problem, int32_t rank, int32_t expert)
{
    for (int32_t i = problem->expert_offsets[expert]; i < problem->expert_offsets[expert + 1]; i++)
        if (problem->expert_ranks[i] == rank)
            return 1;
    return 0;
}

int32_t ep_oracle_num_local_experts(const struct ep_oracle_problem *problem, int32_t rank)
{
    int32_t num_local_experts = 0;
    for (int32_t expert = 0; expert < problem->num_experts; expert++)
        num_local_experts += rank_has_expert(problem, rank, expert);
    return num_local_experts;
}

int32_t ep_oracle_global_expert(const struct ep_oracle_problem *problem, int32_t rank,
                                int32_t local_expert)
{
    int32_t next = 0;
    for (int32_t expert = 0; expert < problem->num_experts; expert++)
        if (rank_has_expert(problem, rank, expert) && next++ == local_expert)
            return expert;
    return -1;
}

int64_t ep_oracle_max_recv_tokens(const struct ep_oracle_problem *problem, int32_t rank,
                                  int32_t max_tokens)
{
    int64_t num_recv_tokens = 0;
    for (int32_t source = 0; source < problem->num_ranks; source++)
        for (int32_t token = 0; token < max_tokens; token++) {
            int can_come = 0;
            for (int32_t expert = 0; expert < problem->num_experts && !can_come; expert++)
                can_come = replica_rank(problem, expert, (int64_t)source + token) == rank;
            num_recv_tokens += can_come;
        }
    return num_recv_tokens;
}

void ep_oracle_layout(const struct ep_oracle_problem *problem, int32_t rank,
                      const struct ep_oracle_layout *layout)
{
    const struct ep_oracle_tokens *tokens = &problem->tokens[rank];
    const int32_t ranks_per_node = problem->num_ranks / problem->num_nodes;
    memset(layout->num_tokens_per_rank, 0, sizeof(int32_t) * (size_t)problem->num_ranks);
    memset(layout->num_tokens_per_node, 0, sizeof(int32_t) * (size_t)problem->num_nodes);
    memset(layout->num_tokens_per_expert, 0, sizeof(int32_t) * (size_t)problem->num_experts);
    for (int32_t token = 0; token < tokens->num_tokens; token++) {
        uint8_t *in_rank = layout->is_token_in_rank + (int64_t)token * problem->num_ranks;
        memset(in_rank, 0, (size_t)problem->num_ranks);
        for (int32_t k = 0; k < problem->num_topk; k++) {
            const int32_t destination = ep_oracle_destination(problem, rank, token, k);
            if (destination < 0)
                continue;
            in_rank[destination] = 1;
            layout
                ->num_tokens_per_expert[tokens->topk_idx[(int64_t)token * problem->num_topk + k]]++;
        }
        for (int32_t node = 0; node < problem->num_nodes; node++) {
            int in_node = 0;
            for (int32_t r = node * ranks_per_node; r < (node + 1) * ranks_per_node; r++) {
                layout->num_tokens_per_rank[r] += in_rank[r];
                in_node |= in_rank[r];
            }
            layout->num_tokens_per_node[node] += in_node;
        }
    }
}

/* All bytes but 0 mean that the token goes there. */
void ep_oracle_table(const struct ep_oracle_problem *problem, int32_t rank,
                     const struct ep_oracle_table *table)
{
    const struct ep_oracle_tokens *tokens = &problem->tokens[rank];
    for (int32_t token = 0; token < tokens->num_tokens; token++) {
        for (int32_t k = 0; k < problem->num_topk; k++) {
            const int32_t destination = ep_oracle_destination(problem, rank, token, k);
            if (destination < 0)
                continue;
            const int32_t expert =
                (int32_t)tokens->topk_idx[(int64_t)token * problem->num_topk + k];
            table->tokens_to_ranks[(int64_t)token * problem->num_ranks + destination] =
                (uint8_t)(1 + token % 255);
            table->selections[replica_entry(problem, expert, (int64_t)rank + token)]++;
        }
    }
}

static void received_alloc(const struct ep_oracle_problem *problem,
                           struct ep_oracle_received *received)
{
    int64_t num_tokens = 0;
    received->row_of_source_token = tests_alloc(sizeof(int32_t *) * (size_t)problem->num_ranks);
    for (int32_t source = 0; source < problem->num_ranks; source++) {
        const int32_t num_source_tokens = problem->tokens[source].num_tokens;
        received->row_of_source_token[source] =
            tests_alloc(sizeof(int32_t) * (size_t)num_source_tokens);
        num_tokens += num_source_tokens;
    }
    const size_t num_choices = (size_t)num_tokens * (size_t)problem->num_topk;
    received->rows = tests_alloc(sizeof(struct ep_oracle_row) * (size_t)num_tokens);
    received->topk_idx = tests_alloc(sizeof(int32_t) * num_choices);
    received->topk_weights = tests_alloc(sizeof(float) * num_choices);
    received->num_per_rank = tests_alloc(sizeof(int32_t) * (size_t)problem->num_ranks);
    received->num_per_expert = tests_alloc(sizeof(int32_t) * (size_t)received->num_local_experts);
}

/* Appends the token if one of its choices is served by `rank`. */
static void receive_token(const struct ep_oracle_problem *problem, int32_t rank,
                          const int32_t *local_of_expert, struct ep_oracle_row row,
                          struct ep_oracle_received *received)
{
    const int32_t num_topk = problem->num_topk;
    const struct ep_oracle_tokens *tokens = &problem->tokens[row.source_rank];
    int32_t *topk_idx = received->topk_idx + (int64_t)received->num_rows * num_topk;
    float *topk_weights = received->topk_weights + (int64_t)received->num_rows * num_topk;
    int comes = 0;
    for (int32_t k = 0; k < num_topk; k++) {
        const int64_t choice = (int64_t)row.token * num_topk + k;
        topk_idx[k] = -1;
        topk_weights[k] = 0;
        if (ep_oracle_destination(problem, row.source_rank, row.token, k) != rank)
            continue;
        topk_idx[k] = local_of_expert[tokens->topk_idx[choice]];
        topk_weights[k] = tokens->topk_weights[choice];
        received->num_per_expert[topk_idx[k]]++;
        comes = 1;
    }
    received->row_of_source_token[row.source_rank][row.token] = comes ? received->num_rows : -1;
    if (!comes)
        return;
    received->rows[received->num_rows++] = row;
    received->num_per_rank[row.source_rank]++;
}

void ep_oracle_receive(const struct ep_oracle_problem *problem, int32_t rank,
                       struct ep_oracle_received *received)
{
    memset(received, 0, sizeof *received);
    int32_t *local_of_expert = tests_alloc(sizeof(int32_t) * (size_t)problem->num_experts);
    for (int32_t expert = 0; expert < problem->num_experts; expert++)
        local_of_expert[expert] =
            rank_has_expert(problem, rank, expert) ? received->num_local_experts++ : -1;
    received_alloc(problem, received);
    for (int32_t source = 0; source < problem->num_ranks; source++)
        for (int32_t token = 0; token < problem->tokens[source].num_tokens; token++)
            receive_token(problem, rank, local_of_expert, (struct ep_oracle_row){source, token},
                          received);
    const int32_t alignment = problem->expert_alignment;
    for (int32_t local = 0; local < received->num_local_experts; local++)
        received->num_per_expert[local] =
            (received->num_per_expert[local] + alignment - 1) / alignment * alignment;
    tests_free(local_of_expert);
}

void ep_oracle_received_free(const struct ep_oracle_problem *problem,
                             struct ep_oracle_received *received)
{
    for (int32_t source = 0; source < problem->num_ranks; source++)
        tests_free(received->row_of_source_token[source]);
    tests_free(received->row_of_source_token);
    tests_free(received->rows);
    tests_free(received->topk_idx);
    tests_free(received->topk_weights);
    tests_free(received->num_per_rank);
    tests_free(received->num_per_expert);
}
