/* SPDX-License-Identifier: MIT */
/* Dispatch and combine as a user of NCCL writes them. Counts are known on all ranks beforehand. */
#pragma once

#include "device_memory.h"
#include "nccl_rank.h"
#include "row_tables.h"

struct nccl_exchange {
    ncclComm_t nccl;
    cudaStream_t stream;
    int32_t rank, num_ranks;
    int32_t num_blocks; /* of the kernels that pack and sum */
    const struct row_format *format;
    struct device_memory memory;
    /* By other rank: rows for it, which are packed in ascending order of rank, and rows from it,
     * which arrive in their final place; number of rows, and the first. */
    int32_t num_sent[MAX_RANKS], first_sent[MAX_RANKS];
    int32_t num_received[MAX_RANKS], first_received[MAX_RANKS];
    /* Where packing puts each token's rows, and where combine finds them: those for other ranks in
     * their packed places, those for this rank in their final ones. */
    struct token_rows packed;
    struct pattern tokens, received;
    uint32_t *num_wrong; /* on the GPU */
};

/* After nccl, stream, rank, num_ranks and format were set. */
int nccl_exchange_init(struct nccl_exchange *exchange, const struct plan *plan);
void nccl_exchange_destroy(struct nccl_exchange *exchange);

/* Enqueue one. Dispatch packs rows by destination and exchanges them; received rows lie in (source
 * rank, token) order without a further pass, because each source packs in token order. */
int nccl_exchange_dispatch(struct nccl_exchange *exchange);
/* Combine sends each received row back, and sums a token's rows in ascending rank order. */
int nccl_exchange_combine(struct nccl_exchange *exchange);

/* Runs each once on rows that tell where they come from; fails if one is wrong on this rank. */
int nccl_exchange_check(struct nccl_exchange *exchange);
