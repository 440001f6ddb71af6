/* SPDX-License-Identifier: MIT */
/* The routing of a batch, as each rank's GPU needs it. The routing is that of `weft ep` with the
 * same seed, tokens, top-k and experts. */
#ifndef BENCH_CUDA_ROW_TABLES_H
#define BENCH_CUDA_ROW_TABLES_H

#include "cuda_options.h"
#include "plan.h"

int routing_init(struct plan *plan, const struct cuda_options *options, int32_t num_tokens,
                 int32_t num_ranks);

/* rows[num_tokens][num_ranks] of the tokens of `rank`. */
const int32_t *routing_rows(const struct plan *plan, int32_t rank);

/* numbers[num_recv[rank]]: which token, counted over all ranks, each received row is of. */
void routing_received(const struct plan *plan, int32_t rank, int32_t *numbers);

/* numbers[num_tokens] of the tokens of `rank`. */
void routing_sent(const struct plan *plan, int32_t rank, int32_t *numbers);

/* How many tokens of `source` have a row at `destination`. */
int32_t routing_count(const struct plan *plan, int32_t source, int32_t destination);

#endif
