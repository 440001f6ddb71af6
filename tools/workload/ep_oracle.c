/* SPDX-License-Identifier: MIT */
#include "workload/ep_oracle.h"

#include <string.h>

#include "workload/elements.h"

static int32_t node_of(const struct ep_problem *problem, int32_t rank)
{
    return problem->nodes != NULL ? problem->nodes[rank]
                                  : rank / (problem->num_ranks / problem->num_nodes);
}

/* ---------------------------------------------------------------- layout and notify */

int ep_oracle_goes_to(const struct ep_problem *problem, struct ep_token token, int32_t rank)
{
    for (int32_t k = 0; k < problem->num_topk; k++)
        if (ep_oracle_choice(problem, token, k).rank == rank)
            return 1;
    return 0;
}

int ep_oracle_goes_to_node(const struct ep_problem *problem, struct ep_token token, int32_t node)
{
    for (int32_t k = 0; k < problem->num_topk; k++) {
        const int32_t rank = ep_oracle_choice(problem, token, k).rank;
        if (rank >= 0 && node_of(problem, rank) == node)
            return 1;
    }
    return 0;
}

int32_t ep_oracle_rows_from(const struct ep_problem *problem, int32_t source, int32_t rank)
{
    int32_t num_rows = 0;
    for (int32_t i = 0; i < ep_oracle_num_tokens(problem, source); i++)
        num_rows += ep_oracle_goes_to(problem, (struct ep_token){source, i}, rank);
    return num_rows;
}

int32_t ep_oracle_rows_for_node(const struct ep_problem *problem, int32_t source, int32_t node)
{
    int32_t num_rows = 0;
    for (int32_t i = 0; i < ep_oracle_num_tokens(problem, source); i++)
        num_rows += ep_oracle_goes_to_node(problem, (struct ep_token){source, i}, node);
    return num_rows;
}

int32_t ep_oracle_selections_from(const struct ep_problem *problem, int32_t source, int32_t expert)
{
    int32_t num_selections = 0;
    for (int32_t i = 0; i < ep_oracle_num_tokens(problem, source); i++)
        for (int32_t k = 0; k < problem->num_topk; k++) {
            const struct ep_choice choice =
                ep_oracle_choice(problem, (struct ep_token){source, i}, k);
            num_selections += choice.rank >= 0 && choice.expert == expert;
        }
    return num_selections;
}

int32_t ep_oracle_num_rows(const struct ep_problem *problem, int32_t rank)
{
    int32_t num_rows = 0;
    for (int32_t source = 0; source < problem->num_ranks; source++)
        num_rows += ep_oracle_rows_from(problem, source, rank);
    return num_rows;
}

int32_t ep_oracle_max_rows(const struct ep_problem *problem)
{
    int32_t most = 0;
    for (int32_t rank = 0; rank < problem->num_ranks; rank++) {
        const int32_t num_rows = ep_oracle_num_rows(problem, rank);
        most = num_rows > most ? num_rows : most;
    }
    return most;
}

int32_t ep_oracle_local_selections(const struct ep_problem *problem, int32_t rank,
                                   int32_t local_expert)
{
    int32_t num_selections = 0;
    for (int32_t source = 0; source < problem->num_ranks; source++)
        for (int32_t i = 0; i < ep_oracle_num_tokens(problem, source); i++)
            for (int32_t k = 0; k < problem->num_topk; k++) {
                const struct ep_choice choice =
                    ep_oracle_choice(problem, (struct ep_token){source, i}, k);
                num_selections += choice.rank == rank && choice.local_expert == local_expert;
            }
    return (num_selections + problem->expert_alignment - 1) / problem->expert_alignment *
           problem->expert_alignment;
}

static int32_t place_on_node(const struct ep_problem *problem, int32_t rank)
{
    int32_t place = 0;
    for (int32_t other = 0; other < rank; other++)
        place += node_of(problem, other) == node_of(problem, rank);
    return place;
}

int32_t ep_oracle_num_relayed(const struct ep_problem *problem, int32_t rank)
{
    const int32_t node = node_of(problem, rank), place = place_on_node(problem, rank);
    int32_t num_tokens = 0;
    for (int32_t source = 0; source < problem->num_ranks; source++)
        if (node_of(problem, source) != node && place_on_node(problem, source) == place)
            num_tokens += ep_oracle_rows_for_node(problem, source, node);
    return num_tokens;
}

/* ---------------------------------------------------------------- dispatch */

size_t ep_received_bytes(const struct ep_problem *problem)
{
    const size_t num_tokens = (size_t)problem->first_tokens[problem->num_ranks];
    return (num_tokens + 1) * (sizeof(struct ep_token) + sizeof(int32_t));
}

void ep_oracle_receive(const struct ep_problem *problem, int32_t rank, void *memory,
                       struct ep_received *received)
{
    const int64_t num_tokens = problem->first_tokens[problem->num_ranks];
    *received = (struct ep_received){.rows = memory};
    received->row_of_token = (int32_t *)(received->rows + num_tokens + 1);
    for (int32_t source = 0; source < problem->num_ranks; source++)
        for (int32_t i = 0; i < ep_oracle_num_tokens(problem, source); i++) {
            const struct ep_token token = {source, i};
            const int comes = ep_oracle_goes_to(problem, token, rank);
            received->row_of_token[ep_oracle_number(problem, token)] =
                comes ? received->num_rows : -1;
            if (comes)
                received->rows[received->num_rows++] = token;
        }
}

/* ---------------------------------------------------------------- combine */

const weft_dtype wire_dtypes[NUM_WIRES] = {WEFT_DTYPE_NONE, WEFT_FP32, WEFT_BF16, WEFT_FP16,
                                           WEFT_LOG_10BIT};

static void add(const struct ep_answers *answers, const float *values, float *sum)
{
    for (int64_t i = 0; i < answers->num_values; i++)
        sum[i] += values[i];
}

/* In the order of the ranks. */
static void add_ranks(const struct ep_problem *problem, const struct ep_answers *answers,
                      struct ep_token token, int32_t node, float *sum, float *row)
{
    for (int32_t rank = 0; rank < problem->num_ranks; rank++) {
        if (node_of(problem, rank) != node || !ep_oracle_goes_to(problem, token, rank))
            continue;
        if (!answers->read(answers->of, token, rank, row))
            continue;
        if (problem->num_nodes == 1 && wire_is_narrower(answers->wire, answers->dtype))
            elements_round(answers->wire, row, (size_t)answers->num_values);
        add(answers, row, sum);
    }
}

/* The sum of a node without answers is +0, which changes no sum that began with +0. */
static void add_nodes(const struct ep_problem *problem, const struct ep_answers *answers,
                      struct ep_token token, float *sum, float *scratch)
{
    const size_t num_values = (size_t)answers->num_values;
    float *row = scratch, *partial = scratch + num_values;
    for (int32_t node = 0; node < problem->num_nodes; node++) {
        memset(partial, 0, num_values * sizeof *partial);
        add_ranks(problem, answers, token, node, partial, row);
        elements_round(answers->wire == WEFT_DTYPE_NONE ? answers->dtype : answers->wire, partial,
                       num_values);
        add(answers, partial, sum);
    }
}

void ep_oracle_combine(const struct ep_problem *problem, const struct ep_answers *answers,
                       struct ep_token token, float *sum, float *scratch)
{
    if (problem->num_nodes == 1)
        add_ranks(problem, answers, token, 0, sum, scratch);
    else
        add_nodes(problem, answers, token, sum, scratch);
    elements_round(answers->dtype, sum, (size_t)answers->num_values);
}
