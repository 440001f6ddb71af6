/* SPDX-License-Identifier: MIT */
/* The gate of a rank alone. */
#include "api_targets.h"

enum { WEIGHTS_OFFSET = 4 << 10, COUNTS_OFFSET = 5 << 10, LOGITS_OFFSET = 6 << 10 };
enum { GRADIENTS_OFFSET = 8 << 10, NOT_A_NUMBER = 0x7fc00000, INFINITE = 0x7f800000 };

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

static void fill_backward(struct fuzz_arguments *a, struct rng *rng)
{
    weft_gate_backward_args *args = &a->gate_backward.known;
    fill_gate(a, rng);
    FUZZ_FILL_SIZE(a, gate_backward, rng);
    args->logits = a->gate.known.logits;
    args->topk_idx = a->gate.known.topk_idx;
    args->grad_weights = (const float *)(a->arena_memory + WEIGHTS_OFFSET);
    args->grad_logits = (float *)(a->arena_memory + GRADIENTS_OFFSET);
    args->num_tokens = a->gate.known.num_tokens;
    args->num_experts = a->gate.known.num_experts;
    args->num_topk = a->gate.known.num_topk;
    args->dtype = a->gate.known.dtype;
    args->index_type = a->gate.known.index_type;
    args->score = a->gate.known.score;
    args->weights = a->gate.known.weights;
}

static void fill_balance(struct fuzz_arguments *a, struct rng *rng)
{
    FUZZ_FILL_SIZE(a, gate_balance, rng);
    a->gate_balance.known.bias = (float *)(a->arena_memory + WEIGHTS_OFFSET);
    a->gate_balance.known.num_tokens_per_expert = (int32_t *)(a->arena_memory + COUNTS_OFFSET);
    a->gate_balance.known.num_experts = 1 + (int32_t)rng_below(rng, 12);
    a->gate_balance.known.step = rng_uniform(rng);
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
FUZZ_TARGET(gate_backward, fill_backward, (a->comm, a->config, a->stream), fuzz_wait,
            FUZZ_ENQUEUED(comm, weft_gate_backward_args, gate_backward),
            FUZZ_POINTERS("logits", gate_backward.known.logits, FUZZ_NULL),
            FUZZ_POINTERS("topk_idx", gate_backward.known.topk_idx, FUZZ_NULL),
            FUZZ_POINTERS("grad_weights", gate_backward.known.grad_weights, FUZZ_NULL),
            FUZZ_POINTERS("grad_logits", gate_backward.known.grad_logits, FUZZ_NULL,
                          FUZZ_LAST_BYTE),
            FUZZ_FIELD(gate_backward, num_tokens, -1, INT32_MIN),
            FUZZ_FIELD(gate_backward, num_experts, -1, 0, 4097, INT32_MAX),
            FUZZ_FIELD(gate_backward, num_topk, -1, 0, 13, INT32_MAX),
            FUZZ_FIELD(gate_backward, dtype, -1, WEFT_INT32, WEFT_FP64, INT32_MAX),
            FUZZ_FIELD(gate_backward, index_type, -1, WEFT_BF16, INT32_MAX),
            FUZZ_FIELD(gate_backward, score, -1, 3, INT32_MAX),
            FUZZ_FIELD(gate_backward, weights, -1, 2, INT32_MAX),
            FUZZ_FIELD(gate_backward, logits_stride_bytes, 1, 2, -1),
            FUZZ_FIELD(gate_backward, scale, NOT_A_NUMBER, INFINITE))
FUZZ_TARGET(gate_balance, fill_balance, (a->comm, a->config, a->stream), fuzz_wait,
            FUZZ_ENQUEUED(comm, weft_gate_balance_args, gate_balance),
            FUZZ_POINTERS("bias", gate_balance.known.bias, FUZZ_NULL, FUZZ_LAST_BYTE),
            FUZZ_POINTERS("num_tokens_per_expert", gate_balance.known.num_tokens_per_expert,
                          FUZZ_NULL, FUZZ_LAST_BYTE),
            FUZZ_FIELD(gate_balance, num_experts, -1, 0, 4097, INT32_MAX),
            FUZZ_FIELD(gate_balance, step, NOT_A_NUMBER, INFINITE))
