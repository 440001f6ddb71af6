/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>

#include "harness/memory.h"
#include "oracle/ep_oracle.h"
#include "workload/elements.h"
#include "workload/node_sums.h"

/* Whose rows are summed: those that answer a token. */
struct answers {
    const struct ep_oracle_problem *problem;
    const struct ep_oracle_received *received;
    const struct ep_oracle_combine *combine;
    int32_t source_rank;
    int32_t token;
};

/* The row that answers on `rank`, -1 if there is none or it was dropped. */
static int32_t answering_row(const struct answers *answers, int32_t rank)
{
    const int32_t row_idx =
        answers->received[rank].row_of_source_token[answers->source_rank][answers->token];
    return row_idx < answers->combine->capacities[rank] ? row_idx : -1;
}

static float bias_element(const struct ep_oracle_combine *combine, int which, int64_t i)
{
    return combine->bias[which] == NULL ? 0.0F
                                        : element_load(combine->dtype, combine->bias[which], i);
}

static int read_row(void *of, int32_t rank, float *values)
{
    const struct answers *answers = of;
    const struct ep_oracle_combine *combine = answers->combine;
    const int32_t row_idx = answering_row(answers, rank);
    if (row_idx < 0)
        return 0;
    void *x = tests_alloc(dtype_bytes(combine->dtype) * (size_t)combine->hidden);
    combine->read_x(combine->reader, rank, row_idx, x);
    elements_to_fp32(combine->dtype, x, (size_t)combine->hidden, values);
    tests_free(x);
    return 1;
}

static int read_weights(void *of, int32_t rank, float *values)
{
    const struct answers *answers = of;
    const int32_t row_idx = answering_row(answers, rank);
    if (row_idx >= 0)
        answers->combine->read_weights(answers->combine->reader, rank, row_idx, values);
    return row_idx >= 0;
}

/* Nodes are of consecutive ranks. */
static void add_answers(struct node_sums sums, const struct ep_oracle_problem *problem, float *sum)
{
    float *scratch = tests_alloc(2 * sizeof(float) * (size_t)sums.num_values);
    int32_t *nodes = tests_alloc(sizeof *nodes * (size_t)problem->num_ranks);
    for (int32_t rank = 0; rank < problem->num_ranks; rank++)
        nodes[rank] = rank / (problem->num_ranks / problem->num_nodes);
    sums.num_ranks = problem->num_ranks;
    sums.num_nodes = problem->num_nodes;
    sums.node_of_rank = nodes;
    node_sums_add(&sums, sum, scratch);
    tests_free(nodes);
    tests_free(scratch);
}

void ep_oracle_combine_row(const struct ep_oracle_problem *problem,
                           const struct ep_oracle_received *received,
                           const struct ep_oracle_combine *combine, int32_t source_rank,
                           int32_t token, void *out)
{
    struct answers answers = {problem, received, combine, source_rank, token};
    const int64_t hidden = combine->hidden;
    const struct node_sums sums = {.num_values = hidden,
                                   .dtype = combine->dtype,
                                   .wire = combine->wire,
                                   .read = read_row,
                                   .of = &answers};
    float *sum = tests_alloc(sizeof(float) * (size_t)hidden);
    for (int64_t i = 0; i < hidden; i++)
        sum[i] = 0.0F + (bias_element(combine, 0, token * hidden + i) +
                         bias_element(combine, 1, token * hidden + i));
    add_answers(sums, problem, sum);
    for (int64_t i = 0; i < hidden; i++)
        element_store(combine->dtype, out, i, sum[i]);
    tests_free(sum);
}

void ep_oracle_combine_weights(const struct ep_oracle_problem *problem,
                               const struct ep_oracle_received *received,
                               const struct ep_oracle_combine *combine, int32_t source_rank,
                               int32_t token, float *out_weights)
{
    struct answers answers = {problem, received, combine, source_rank, token};
    const struct node_sums sums = {.num_values = problem->num_topk,
                                   .dtype = WEFT_FP32,
                                   .wire = WEFT_FP32,
                                   .read = read_weights,
                                   .of = &answers};
    memset(out_weights, 0, sizeof(float) * (size_t)problem->num_topk);
    add_answers(sums, problem, out_weights);
    for (int32_t k = 0; k < problem->num_topk; k++)
        element_store(WEFT_FP32, out_weights, k, out_weights[k]);
}
