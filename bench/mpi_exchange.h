/* SPDX-License-Identifier: MIT */
/* Dispatch and combine of one MoE layer by Open MPI's collectives, as its users write them: rows
 * packed by destination, exchanged by MPI_Alltoallv, and back the same way. */
#pragma once

#include <mpi.h>
#include <stdint.h>

struct mpi_exchange_shape {
    int32_t num_ranks, rank;
    int32_t num_tokens; /* per rank */
    int32_t hidden;     /* bf16 elements */
    int32_t num_topk;
    int32_t num_experts;
};

struct mpi_exchange {
    struct mpi_exchange_shape shape;
    MPI_Datatype row_type, choice_type;
    int32_t *expert_ranks; /* [num_experts] */
    int32_t *slots;        /* [num_tokens][num_ranks] packed row or -1 */
    int32_t *send_counts, *send_offsets, *recv_counts, *recv_offsets; /* [num_ranks] in rows */
    uint16_t *packed_rows;             /* [num_tokens * num_ranks][hidden] */
    struct mpi_choice *packed_choices; /* [num_tokens * num_ranks][num_topk] */
    uint16_t *recv_rows;
    struct mpi_choice *recv_choices;
};

/* One of a token's chosen experts, as its rank is told. */
struct mpi_choice {
    int32_t local_expert; /* -1: of another rank */
    float weight;
};

/* 0, or -1 when memory is short. */
int mpi_exchange_init(struct mpi_exchange *exchange, const struct mpi_exchange_shape *shape);
void mpi_exchange_destroy(struct mpi_exchange *exchange);

struct mpi_batch {
    const uint16_t *x;         /* [num_tokens][hidden] */
    const int32_t *topk_idx;   /* [num_tokens][num_topk] */
    const float *topk_weights; /* [num_tokens][num_topk] */
};

/* Fills recv_rows and recv_choices: received rows in (source rank, token) order. */
void mpi_dispatch(struct mpi_exchange *exchange, const struct mpi_batch *batch);
/* Sends `rows`, which answer recv_rows, back and sums those of each token in rank order, in
 * fp32. */
void mpi_combine(struct mpi_exchange *exchange, const uint16_t *rows, uint16_t *out);
