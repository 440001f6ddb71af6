/* SPDX-License-Identifier: MIT */
/* Calls of the gate and of its gradient: drawn from a number, and checked in double, from the
 * definitions in weft_gate.h alone. */
#pragma once

#include "weft.h"

enum { GATE_NUM_SHAPES = 18, GATE_CASES_PER_SHAPE = 14 };
enum { GATE_NUM_CASES = GATE_NUM_SHAPES * GATE_CASES_PER_SHAPE };
enum { GATE_BLOCK_BYTES = 1 << 18 };
/* The sim has time for every so many cases, with so many tokens. */
enum { GATE_SMALL_STEP = 5, GATE_SMALL_TOKENS = 3 };
/* The outputs of all cases, and of the small ones, have these digests on every machine: recorded
 * once, on cpu. */
#define GATE_DIGEST       UINT64_C(0x153c40739a470fb)
#define GATE_SMALL_DIGEST UINT64_C(0xcf70b5a08fd07a58)

/* A call whose memory is one block, of which these are offsets. */
struct gate_case {
    weft_gate_args args; /* without pointers */
    size_t logits, bias, expert_mask, token_mask, grad_weights;
    size_t topk_idx, topk_weights, counts, grad_logits; /* outputs: from topk_idx on */
    size_t end;
    int has_bias, has_expert_mask, has_token_mask, has_counts;
};

/* The case, of at most so many tokens, and what its block has before the call. */
void gate_case_draw(int32_t number, int32_t max_tokens, struct gate_case *drawn, char *block);
/* The arguments of the two calls, in memory of the machine: first the choice. */
struct gate_calls {
    weft_gate_args choose;
    weft_gate_backward_args backward;
};
struct gate_calls gate_case_calls(const struct gate_case *drawn, char *block);
/* The first mistake in the block after the call; NULL: none. *num_close counts tokens whose choice
 * is not checked, since values lie so close that fp32 may order them differently. */
const char *gate_case_check(const struct gate_case *drawn, const char *before, const char *after,
                            int32_t *num_close);
/* Folds the outputs into a digest, which is the same on every machine. */
uint64_t gate_case_digest(const struct gate_case *drawn, const char *after, uint64_t digest);
