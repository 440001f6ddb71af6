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

int32_t ep_oracle_local_choices(const struct ep_problem *problem, int32_t rank,
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
    return num_selections;
}

int32_t ep_oracle_local_selections(const struct ep_problem *problem, int32_t rank,
                                   int32_t local_expert)
{
    const int32_t num_selections = ep_oracle_local_choices(problem, rank, local_expert);
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

/* ---------------------------------------------------------------- expand */

int32_t ep_oracle_num_expanded_rows(const struct ep_problem *problem, int32_t rank)
{
    int32_t num_rows = 0;
    for (int32_t expert = 0; expert < problem->num_local_experts[rank]; expert++)
        num_rows += ep_oracle_local_selections(problem, rank, expert);
    return num_rows;
}

void ep_oracle_expand(const struct ep_problem *problem, int32_t rank,
                      const struct ep_received *received, int32_t num_received,
                      struct ep_expanded_row *rows)
{
    int32_t first = 0;
    for (int32_t expert = 0; expert < problem->num_local_experts[rank]; expert++) {
        const int32_t end = first + ep_oracle_local_selections(problem, rank, expert);
        for (int32_t row = 0; row < num_received; row++)
            for (int32_t k = 0; k < problem->num_topk; k++) {
                const struct ep_choice choice = ep_oracle_choice(problem, received->rows[row], k);
                if (choice.rank == rank && choice.local_expert == expert)
                    rows[first++] = (struct ep_expanded_row){row, k};
            }
        while (first < end)
            rows[first++] = (struct ep_expanded_row){-1, -1};
    }
}

/* ---------------------------------------------------------------- combine */

/* Whether no later choice of the token is of the same rank, or node if there are several. */
static int is_last_choice(const struct ep_problem *problem, struct ep_token token, int32_t k,
                          int by_node)
{
    const int32_t rank = ep_oracle_choice(problem, token, k).rank;
    for (int32_t later = k + 1; later < problem->num_topk; later++) {
        const int32_t other = ep_oracle_choice(problem, token, later).rank;
        if (other >= 0 &&
            (by_node ? node_of(problem, other) == node_of(problem, rank) : other == rank))
            return 0;
    }
    return rank >= 0;
}

/* Fills places[] with the ranks, or nodes, that have the token, in the problem's order; returns how
 * many. */
static int32_t list_places(const struct ep_problem *problem, struct ep_token token, int by_node,
                           int32_t *places)
{
    int32_t num_places = 0;
    for (int32_t k = 0; k < problem->num_topk && problem->order == WEFT_ORDER_BY_CHOICE; k++) {
        const int32_t rank = ep_oracle_choice(problem, token, k).rank;
        if (is_last_choice(problem, token, k, by_node))
            places[num_places++] = by_node ? node_of(problem, rank) : rank;
    }
    if (problem->order == WEFT_ORDER_BY_CHOICE)
        return num_places;
    for (int32_t i = 0; i < (by_node ? problem->num_nodes : problem->num_ranks); i++)
        if (by_node ? ep_oracle_goes_to_node(problem, token, i)
                    : ep_oracle_goes_to(problem, token, i))
            places[num_places++] = i;
    return num_places;
}

const weft_dtype wire_dtypes[NUM_WIRES] = {WEFT_DTYPE_NONE, WEFT_FP32, WEFT_BF16, WEFT_FP16};

static void add(const struct ep_answers *answers, const float *values, float *sum)
{
    for (int64_t i = 0; i < answers->num_values; i++)
        sum[i] += values[i];
}

static void add_ranks(const struct ep_problem *problem, const struct ep_answers *answers,
                      struct ep_token token, int32_t node, float *sum, float *row)
{
    int32_t ranks[WEFT_MAX_TOPK];
    const int32_t num_ranks = list_places(problem, token, 0, ranks);
    for (int32_t i = 0; i < num_ranks; i++) {
        if (node_of(problem, ranks[i]) != node || !answers->read(answers->of, token, ranks[i], row))
            continue;
        add(answers, row, sum);
    }
}

static void add_nodes(const struct ep_problem *problem, const struct ep_answers *answers,
                      struct ep_token token, float *sum, float *scratch)
{
    const size_t num_values = (size_t)answers->num_values;
    float *row = scratch, *partial = scratch + num_values;
    int32_t nodes[WEFT_MAX_TOPK];
    const int32_t num_nodes = list_places(problem, token, 1, nodes);
    for (int32_t i = 0; i < num_nodes; i++) {
        memset(partial, 0, num_values * sizeof *partial);
        add_ranks(problem, answers, token, nodes[i], partial, row);
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
