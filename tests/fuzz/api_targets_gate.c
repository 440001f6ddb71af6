/* SPDX-License-Identifier: MIT */
/* The gate of a rank alone. */
#include "api_targets.h"

enum { WEIGHTS_OFFSET = 4 << 10, COUNTS_OFFSET = 5 << 10, LOGITS_OFFSET = 6 << 10 };

static void fill_gate(struct fuzz_arguments *a, struct rng *rng)
{
    weft_gate_args *args = &a->gate.known;
    FUZZ_FILL_SIZE(a, gate, rng);
    args->num_tokens = 1 + (int32_t)rng_below(rng, FUZZ_MAX_TOKENS);
    args->num_experts = 12;
    args->num_topk = 1 + (int32_t)rng_below(rng, FUZZ_TOPK);
    args->num_groups = 3;
    args->num_kept_groups = 1 + (int32_t)rng_below(rng, 3);
    args->dtype = (weft_dtype)(WEFT_BF16 + rng_below(rng, 3));
    args->index_type = rng_below(rng, 2) == 0 ? WEFT_INT32 : WEFT_INT64;
    args->score = (weft_gate_score)rng_below(rng, 3);
    args->weights = (weft_gate_weights)rng_below(rng, 2);
    args->topk_idx = a->arena_memory;
    args->topk_weights = (float *)(a->arena_memory + WEIGHTS_OFFSET);
    args->num_tokens_per_expert = (int32_t *)(a->arena_memory + COUNTS_OFFSET);
    args->logits = a->arena_memory + LOGITS_OFFSET;
}

FUZZ_TARGET(gate_choose, fill_gate, (a->comm, a->config, a->stream), fuzz_wait,
            FUZZ_ENQUEUED(comm, weft_gate_args, gate),
            FUZZ_POINTERS("logits", gate.known.logits, FUZZ_NULL),
            FUZZ_POINTERS("topk_idx", gate.known.topk_idx, FUZZ_NULL),
            FUZZ_POINTERS("topk_weights", gate.known.topk_weights, FUZZ_NULL),
            FUZZ_FIELD(gate, num_tokens, -1, INT32_MIN),
            FUZZ_FIELD(gate, num_experts, -1, 0, 4097, INT32_MAX),
            FUZZ_FIELD(gate, num_topk, -1, 0, 13, INT32_MAX),
            FUZZ_FIELD(gate, num_groups, -1, 5, 13, INT32_MAX),
            FUZZ_FIELD(gate, num_kept_groups, -1, 4, INT32_MAX),
            FUZZ_FIELD(gate, dtype, -1, WEFT_INT32, WEFT_FP64, INT32_MAX),
            FUZZ_FIELD(gate, index_type, -1, WEFT_BF16, INT32_MAX),
            FUZZ_FIELD(gate, score, -1, 3, INT32_MAX), FUZZ_FIELD(gate, weights, -1, 2, INT32_MAX),
            FUZZ_FIELD(gate, group_score, -1, 2, INT32_MAX),
            FUZZ_NUMBERS(FUZZ_INT64, "logits_stride_bytes", gate.known.logits_stride_bytes, 1, 2,
                         -1),
            FUZZ_FIELD(gate, reserved, -1, 1))
