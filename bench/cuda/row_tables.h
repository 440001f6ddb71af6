/* SPDX-License-Identifier: MIT */
/* The routing of a batch, as each rank's GPU needs it. The routing is that of `weft ep` with the
 * same seed, tokens, top-k and experts. */
#pragma once

#include "cuda_options.h"
#include "device_memory.h"
#include "plan.h"

int routing_init(struct plan *plan, const struct cuda_options *options, int32_t num_tokens,
                 int32_t num_ranks);

/* On the GPU of a rank. Tokens are numbered over all ranks. */
struct row_tables {
    const int32_t *rows;     /* [num_tokens][num_ranks] of its tokens */
    const int32_t *sent;     /* [num_tokens] the numbers of its tokens */
    const int32_t *received; /* [num_recv[rank]] which token each row is of that it gets */
};

/* To the current device. */
int row_tables_upload(struct row_tables *tables, struct device_memory *memory,
                      const struct plan *plan, int32_t rank);

/* How many tokens of `source` have a row at `destination`. */
int32_t routing_count(const struct plan *plan, int32_t source, int32_t destination);

/* The bytes of rows of row_bytes, per rank, in the mean: see struct measured. */
struct routed_bytes {
    double counted, over_nvlink;
};
struct routed_bytes routing_bytes(const struct plan *plan, int32_t row_bytes);
