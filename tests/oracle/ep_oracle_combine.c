/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "oracle/ep_oracle.h"
#include "oracle/oracle_alloc.h"
#include "oracle/oracle_float.h"

/* The row that answers the token on `rank`, -1 if there is none or it was dropped. */
static int32_t answering_row(const struct ep_oracle_received *received,
                             const struct ep_oracle_combine *combine, int32_t rank,
                             int32_t source_rank, int32_t token)
{
    const int32_t row_idx = received[rank].row_of_source_token[source_rank][token];
    return row_idx < combine->capacities[rank] ? row_idx : -1;
}

static float bias_element(const struct ep_oracle_combine *combine, int which, int64_t i)
{
    return combine->bias[which] == NULL ? 0.0F
                                        : oracle_load(combine->dtype, combine->bias[which], i);
}

void ep_oracle_combine_row(const struct ep_oracle_problem *problem,
                           const struct ep_oracle_received *received,
                           const struct ep_oracle_combine *combine, int32_t source_rank,
                           int32_t token, void *out)
{
    const int64_t hidden = combine->hidden;
    float *sum = oracle_alloc(sizeof(float) * (size_t)hidden);
    void *x = oracle_alloc(oracle_element_bytes(combine->dtype) * (size_t)hidden);
    for (int64_t i = 0; i < hidden; i++)
        sum[i] = 0.0F + (bias_element(combine, 0, token * hidden + i) +
                         bias_element(combine, 1, token * hidden + i));
    for (int32_t rank = 0; rank < problem->num_ranks; rank++) {
        const int32_t row_idx = answering_row(received, combine, rank, source_rank, token);
        if (row_idx < 0)
            continue;
        combine->read_x(combine->reader, rank, row_idx, x);
        for (int64_t i = 0; i < hidden; i++)
            sum[i] += oracle_load(combine->dtype, x, i);
    }
    for (int64_t i = 0; i < hidden; i++)
        oracle_store(combine->dtype, out, i, sum[i]);
    free(x);
    free(sum);
}

void ep_oracle_combine_weights(const struct ep_oracle_problem *problem,
                               const struct ep_oracle_received *received,
                               const struct ep_oracle_combine *combine, int32_t source_rank,
                               int32_t token, float *out_weights)
{
    float weights[WEFT_MAX_TOPK];
    memset(out_weights, 0, sizeof(float) * (size_t)problem->num_topk);
    for (int32_t rank = 0; rank < problem->num_ranks; rank++) {
        const int32_t row_idx = answering_row(received, combine, rank, source_rank, token);
        if (row_idx < 0)
            continue;
        combine->read_weights(combine->reader, rank, row_idx, weights);
        for (int32_t k = 0; k < problem->num_topk; k++)
            out_weights[k] += weights[k];
    }
    for (int32_t k = 0; k < problem->num_topk; k++)
        oracle_store(WEFT_FP32, out_weights, k, out_weights[k]);
}
