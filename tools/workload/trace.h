/* SPDX-License-Identifier: MIT */
/*
 * Reader of MOETRACE files: which experts the tokens of a real text chose in each layer of a real
 * model, and with what gate weights. Little-endian:
 *
 *   char magic[8] = "MOETRACE"; uint32_t version = 1, num_tokens, num_layers, num_topk,
 *   num_experts, flags; then for each layer int16_t topk_idx[num_tokens][num_topk] and, if bit 0 of
 *   flags is set, float topk_weights[num_tokens][num_topk].
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum trace_weights { TRACE_WITHOUT_WEIGHTS = 0, TRACE_WITH_WEIGHTS = 1 };

struct trace {
    int32_t num_tokens;
    int32_t num_layers;
    int32_t num_topk;
    int32_t num_experts;
    enum trace_weights weights;
    const unsigned char *file; /* the mapped file */
    size_t file_bytes;
};

enum { TRACE_ERROR_BYTES = 256 };

/* Maps and validates the whole file. On failure NULL, and `error` says what is wrong, naming the
 * file. */
struct trace *trace_open(const char *path, char error[TRACE_ERROR_BYTES]);
void trace_close(struct trace *trace); /* may be NULL */

/* The first token of rank `rank` of `num_ranks`: the rank has those from there up to the first of
 * rank + 1. */
static inline int32_t trace_first_token(const struct trace *trace, int32_t rank, int32_t num_ranks)
{
    return (int32_t)((int64_t)trace->num_tokens * rank / num_ranks);
}

/* topk_idx and topk_weights (may be NULL), each [num_tokens][num_topk], of tokens first_token ..
 * first_token + num_tokens - 1 of `layer`, all of which must exist. Every weight is 1 / num_topk
 * when the trace has none. */
void trace_read(const struct trace *trace, int32_t layer, int32_t first_token, int32_t num_tokens,
                int32_t *topk_idx, float *topk_weights);
