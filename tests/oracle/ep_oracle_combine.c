/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>

#include "harness/memory.h"
#include "oracle/ep_oracle.h"
#include "workload/elements.h"

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

typedef void add_answer(const struct answers *answers, int32_t rank, int32_t row_idx, float *sum);

static void add_row(const struct answers *answers, int32_t rank, int32_t row_idx, float *sum)
{
    const struct ep_oracle_combine *combine = answers->combine;
    void *x = tests_alloc(dtype_bytes(combine->dtype) * (size_t)combine->hidden);
    float *row = tests_alloc(sizeof(float) * (size_t)combine->hidden);
    combine->read_x(combine->reader, rank, row_idx, x);
    for (int64_t i = 0; i < combine->hidden; i++)
        row[i] = element_load(combine->dtype, x, i);
    if (answers->problem->num_nodes == 1 && ep_oracle_is_narrower(combine->wire, combine->dtype))
        elements_round(ep_oracle_wire_dtype(combine->wire), row, (size_t)combine->hidden);
    for (int64_t i = 0; i < combine->hidden; i++)
        sum[i] += row[i];
    tests_free(row);
    tests_free(x);
}

static void add_weights(const struct answers *answers, int32_t rank, int32_t row_idx, float *sum)
{
    float weights[WEFT_MAX_TOPK];
    answers->combine->read_weights(answers->combine->reader, rank, row_idx, weights);
    for (int32_t k = 0; k < answers->problem->num_topk; k++)
        sum[k] += weights[k];
}

static void add_node(const struct answers *answers, int32_t node, add_answer *add, float *sum)
{
    const int32_t ranks_per_node = answers->problem->num_ranks / answers->problem->num_nodes;
    for (int32_t i = 0; i < ranks_per_node; i++) {
        const int32_t rank = node * ranks_per_node + i;
        const int32_t row_idx = answering_row(answers, rank);
        if (row_idx >= 0)
            add(answers, rank, row_idx, sum);
    }
}

/* What each of several nodes sends, its ranks' sum, is of `wire`. That of a node without answers is +0, which
 * changes no sum that began with +0. */
static void add_answers(const struct answers *answers, add_answer *add, weft_dtype wire, int64_t n,
                        float *sum)
{
    float *partial = tests_alloc(sizeof(float) * (size_t)n);
    for (int32_t node = 0; node < answers->problem->num_nodes; node++) {
        if (answers->problem->num_nodes == 1) {
            add_node(answers, node, add, sum);
            continue;
        }
        for (int64_t i = 0; i < n; i++)
            partial[i] = 0.0F;
        add_node(answers, node, add, partial);
        elements_round(wire, partial, (size_t)n);
        for (int64_t i = 0; i < n; i++)
            sum[i] += partial[i];
    }
    tests_free(partial);
}

weft_dtype ep_oracle_wire_dtype(enum ep_oracle_wire wire)
{
    static const weft_dtype dtypes[EP_NUM_WIRES] = {[EP_WIRE_DTYPE] = WEFT_DTYPE_NONE,
                                                    [EP_WIRE_FP32] = WEFT_FP32,
                                                    [EP_WIRE_BF16] = WEFT_BF16,
                                                    [EP_WIRE_FP16] = WEFT_FP16,
                                                    [EP_WIRE_LOG_10BIT] = WEFT_LOG_10BIT};
    return dtypes[wire];
}

int ep_oracle_is_narrower(enum ep_oracle_wire wire, weft_dtype dtype)
{
    return wire == EP_WIRE_LOG_10BIT ||
           (dtype == WEFT_FP32 && (wire == EP_WIRE_BF16 || wire == EP_WIRE_FP16));
}

void ep_oracle_combine_row(const struct ep_oracle_problem *problem,
                           const struct ep_oracle_received *received,
                           const struct ep_oracle_combine *combine, int32_t source_rank,
                           int32_t token, void *out)
{
    const struct answers answers = {problem, received, combine, source_rank, token};
    const int64_t hidden = combine->hidden;
    const weft_dtype given = ep_oracle_wire_dtype(combine->wire);
    const weft_dtype wire = given == WEFT_DTYPE_NONE ? combine->dtype : given;
    float *sum = tests_alloc(sizeof(float) * (size_t)hidden);
    for (int64_t i = 0; i < hidden; i++)
        sum[i] = 0.0F + (bias_element(combine, 0, token * hidden + i) +
                         bias_element(combine, 1, token * hidden + i));
    add_answers(&answers, add_row, wire, hidden, sum);
    for (int64_t i = 0; i < hidden; i++)
        element_store(combine->dtype, out, i, sum[i]);
    tests_free(sum);
}

void ep_oracle_combine_weights(const struct ep_oracle_problem *problem,
                               const struct ep_oracle_received *received,
                               const struct ep_oracle_combine *combine, int32_t source_rank,
                               int32_t token, float *out_weights)
{
    const struct answers answers = {problem, received, combine, source_rank, token};
    memset(out_weights, 0, sizeof(float) * (size_t)problem->num_topk);
    add_answers(&answers, add_weights, WEFT_FP32, problem->num_topk, out_weights);
    for (int32_t k = 0; k < problem->num_topk; k++)
        element_store(WEFT_FP32, out_weights, k, out_weights[k]);
}
