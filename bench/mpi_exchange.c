/* SPDX-License-Identifier: MIT */
#include "mpi_exchange.h"

#include <stdlib.h>
#include <string.h>

#include "workload/convert.h"

enum { NO_SLOT = -1 };

static int32_t first_expert(const struct mpi_exchange_shape *shape, int32_t rank)
{
    return (int32_t)((int64_t)shape->num_experts * rank / shape->num_ranks);
}

int mpi_exchange_init(struct mpi_exchange *exchange, const struct mpi_exchange_shape *shape)
{
    const size_t num_ranks = (size_t)shape->num_ranks;
    const size_t max_rows = num_ranks * (size_t)shape->num_tokens + 1;
    const size_t row_bytes = (size_t)shape->hidden * sizeof(uint16_t);
    const size_t choice_bytes = (size_t)shape->num_topk * sizeof(struct mpi_choice);
    *exchange =
        (struct mpi_exchange){.shape = *shape,
                              .expert_ranks = malloc((size_t)shape->num_experts * sizeof(int32_t)),
                              .slots = malloc(max_rows * sizeof(int32_t)),
                              .send_counts = calloc(4 * num_ranks, sizeof(int32_t)),
                              .packed_rows = malloc(max_rows * row_bytes),
                              .packed_choices = malloc(max_rows * choice_bytes),
                              .recv_rows = malloc(max_rows * row_bytes),
                              .recv_choices = malloc(max_rows * choice_bytes)};
    MPI_Type_contiguous((int)row_bytes, MPI_BYTE, &exchange->row_type);
    MPI_Type_contiguous((int)choice_bytes, MPI_BYTE, &exchange->choice_type);
    MPI_Type_commit(&exchange->row_type);
    MPI_Type_commit(&exchange->choice_type);
    if (exchange->expert_ranks == NULL || exchange->slots == NULL ||
        exchange->send_counts == NULL || exchange->packed_rows == NULL ||
        exchange->packed_choices == NULL || exchange->recv_rows == NULL ||
        exchange->recv_choices == NULL) {
        mpi_exchange_destroy(exchange);
        return -1;
    }
    exchange->send_offsets = exchange->send_counts + num_ranks;
    exchange->recv_counts = exchange->send_counts + 2 * num_ranks;
    exchange->recv_offsets = exchange->send_counts + 3 * num_ranks;
    for (int32_t rank = 0; rank < shape->num_ranks; rank++) {
        for (int32_t e = first_expert(shape, rank); e < first_expert(shape, rank + 1); e++)
            exchange->expert_ranks[e] = rank;
    }
    return 0;
}

void mpi_exchange_destroy(struct mpi_exchange *exchange)
{
    MPI_Type_free(&exchange->row_type);
    MPI_Type_free(&exchange->choice_type);
    free(exchange->expert_ranks);
    free(exchange->slots);
    free(exchange->send_counts);
    free(exchange->packed_rows);
    free(exchange->packed_choices);
    free(exchange->recv_rows);
    free(exchange->recv_choices);
}

/* Which ranks each token goes to, and each rank's number of tokens. */
static void count_rows(struct mpi_exchange *exchange, const int32_t *topk_idx)
{
    const struct mpi_exchange_shape *shape = &exchange->shape;
    memset(exchange->send_counts, 0, (size_t)shape->num_ranks * sizeof(int32_t));
    for (int32_t token = 0; token < shape->num_tokens; token++) {
        int32_t *slots = exchange->slots + (size_t)token * (size_t)shape->num_ranks;
        for (int32_t rank = 0; rank < shape->num_ranks; rank++)
            slots[rank] = NO_SLOT;
        for (int32_t k = 0; k < shape->num_topk; k++) {
            const int32_t rank = exchange->expert_ranks[topk_idx[token * shape->num_topk + k]];
            if (slots[rank] == NO_SLOT)
                slots[rank] = exchange->send_counts[rank]++;
        }
    }
}

static void prefix_sums(const int32_t *counts, int32_t *offsets, int32_t num_ranks)
{
    int32_t offset = 0;
    for (int32_t rank = 0; rank < num_ranks; rank++) {
        offsets[rank] = offset;
        offset += counts[rank];
    }
}

static void pack_choices(struct mpi_exchange *exchange, const struct mpi_batch *batch,
                         int32_t token, int32_t rank, struct mpi_choice *choices)
{
    const struct mpi_exchange_shape *shape = &exchange->shape;
    const int32_t first = first_expert(shape, rank);
    for (int32_t k = 0; k < shape->num_topk; k++) {
        const size_t i = (size_t)token * (size_t)shape->num_topk + (size_t)k;
        const int32_t expert = batch->topk_idx[i];
        choices[k] = exchange->expert_ranks[expert] == rank
                         ? (struct mpi_choice){expert - first, batch->topk_weights[i]}
                         : (struct mpi_choice){-1, 0.0f};
    }
}

static void pack(struct mpi_exchange *exchange, const struct mpi_batch *batch)
{
    const struct mpi_exchange_shape *shape = &exchange->shape;
    const size_t hidden = (size_t)shape->hidden;
    for (int32_t token = 0; token < shape->num_tokens; token++) {
        int32_t *slots = exchange->slots + (size_t)token * (size_t)shape->num_ranks;
        for (int32_t rank = 0; rank < shape->num_ranks; rank++) {
            if (slots[rank] == NO_SLOT)
                continue;
            slots[rank] += exchange->send_offsets[rank];
            const size_t slot = (size_t)slots[rank];
            memcpy(exchange->packed_rows + slot * hidden, batch->x + (size_t)token * hidden,
                   hidden * sizeof(uint16_t));
            pack_choices(exchange, batch, token, rank,
                         exchange->packed_choices + slot * (size_t)shape->num_topk);
        }
    }
}

void mpi_dispatch(struct mpi_exchange *exchange, const struct mpi_batch *batch)
{
    const int32_t num_ranks = exchange->shape.num_ranks;
    count_rows(exchange, batch->topk_idx);
    MPI_Alltoall(exchange->send_counts, 1, MPI_INT32_T, exchange->recv_counts, 1, MPI_INT32_T,
                 MPI_COMM_WORLD);
    prefix_sums(exchange->send_counts, exchange->send_offsets, num_ranks);
    prefix_sums(exchange->recv_counts, exchange->recv_offsets, num_ranks);
    pack(exchange, batch);
    MPI_Alltoallv(exchange->packed_rows, exchange->send_counts, exchange->send_offsets,
                  exchange->row_type, exchange->recv_rows, exchange->recv_counts,
                  exchange->recv_offsets, exchange->row_type, MPI_COMM_WORLD);
    MPI_Alltoallv(exchange->packed_choices, exchange->send_counts, exchange->send_offsets,
                  exchange->choice_type, exchange->recv_choices, exchange->recv_counts,
                  exchange->recv_offsets, exchange->choice_type, MPI_COMM_WORLD);
}

/* Elements summed at a time: their fp32 sums stay in the first-level cache. */
enum { TILE = 1024 };

static void add_tile(float *restrict sum, const uint16_t *restrict row, int32_t num_elements)
{
    for (int32_t i = 0; i < num_elements; i++)
        sum[i] += fp32_from_bf16(row[i]);
}

static void round_tile(uint16_t *restrict out, const float *restrict sum, int32_t num_elements)
{
    for (int32_t i = 0; i < num_elements; i++)
        out[i] = bf16_from_fp32(sum[i]);
}

static void sum_token(const struct mpi_exchange *exchange, const int32_t *slots, uint16_t *out)
{
    const int32_t hidden = exchange->shape.hidden;
    for (int32_t tile = 0; tile < hidden; tile += TILE) {
        const int32_t num_elements = hidden - tile < TILE ? hidden - tile : TILE;
        float sum[TILE] = {0};
        for (int32_t rank = 0; rank < exchange->shape.num_ranks; rank++) {
            if (slots[rank] != NO_SLOT)
                add_tile(sum, exchange->packed_rows + (size_t)slots[rank] * (size_t)hidden + tile,
                         num_elements);
        }
        round_tile(out + tile, sum, num_elements);
    }
}

void mpi_combine(struct mpi_exchange *exchange, const uint16_t *rows, uint16_t *out)
{
    const struct mpi_exchange_shape *shape = &exchange->shape;
    MPI_Alltoallv(rows, exchange->recv_counts, exchange->recv_offsets, exchange->row_type,
                  exchange->packed_rows, exchange->send_counts, exchange->send_offsets,
                  exchange->row_type, MPI_COMM_WORLD);
    for (int32_t token = 0; token < shape->num_tokens; token++)
        sum_token(exchange, exchange->slots + (size_t)token * (size_t)shape->num_ranks,
                  out + (size_t)token * (size_t)shape->hidden);
}
