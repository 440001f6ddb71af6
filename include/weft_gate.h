/* SPDX-License-Identifier: MIT */
/* The gate, which chooses the experts of tokens: a part of weft.h, which includes it and has the
 * rules that hold for all of it. All of it is [experimental]. */
#include "weft.h" /* before the guard: it includes its parts in their order */

#ifndef WEFT_GATE_H
#define WEFT_GATE_H

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_GATE_MAX_EXPERTS 4096
#define WEFT_GATE_MAX_GROUPS  64

/* The score that an expert's logit x becomes. */
typedef enum weft_gate_score {
    WEFT_GATE_SOFTMAX = 0, /* over the experts that the mask allows */
    WEFT_GATE_SIGMOID = 1,
    WEFT_GATE_SQRT_SOFTPLUS = 2 /* sqrt(log(1 + exp(x))) */
} weft_gate_score;

/* The score of a group of experts, from those of its experts with their biases. */
typedef enum weft_gate_group_score {
    WEFT_GATE_GROUP_TOP2 = 0, /* the sum of the two best; if only one may be chosen, that one's */
    WEFT_GATE_GROUP_MAX = 1
} weft_gate_group_score;

/* A chosen expert's weight, from its score without the bias. */
typedef enum weft_gate_weights {
    WEFT_GATE_WEIGHTS_AS_SCORED = 0, /* score * scale */
    /* score / (sum of the token's chosen scores + 1e-20) * scale. With softmax that is softmax over
     * the chosen logits alone, unless the sum is near 1e-20. The gradient leaves the 1e-20 out. */
    WEFT_GATE_WEIGHTS_NORMALISED = 1
} weft_gate_weights;

/*
 * The experts of a token, and their weights:
 *
 *     score[e]  = the softmax, sigmoid or sqrt-softplus of logit[e]
 *     choice[e] = score[e] + bias[e]
 *
 * A group is num_experts / num_groups experts, side by side. The num_kept_groups groups with the
 * best scores remain. The token gets the num_topk experts of these groups with the best choice[e],
 * the best first. Among equals the lower index is better. Experts whose choice[e] is NaN are never
 * chosen, nor groups whose score is NaN where fewer than all groups are kept. In softmax, logits
 * that are NaN do not count. If some logits are +infinity, or all are -infinity, these experts
 * share 1 equally. If fewer than num_topk experts remain, the rest of the row is -1 with weight 0.
 * If the mask leaves out a token, its whole row is so. weft_ep_layout, weft_ep_dispatch and
 * weft_ll_dispatch take such rows.
 *
 * All in fp32, of operations that are rounded one by one, and the same bits on every machine.
 * docs/gate.md has the errors.
 *
 * Example gate: a token chooses two of four experts, and the biases learn of it.
 *
 *     const float logits[4] = {0.5f, -1.0f, 2.0f, 0.5f};
 *     struct { // in memory of the machine
 *         float logits[4], bias[4], weights[2];
 *         int32_t idx[2], counts[4];
 *     } host = {{0}, {0}, {0}, {0}, {0}};
 *     for (int i = 0; i < 4; i++)
 *         host.logits[i] = logits[i];
 *     weft_stream *stream;
 *     void *block;
 *     CHECK(weft_stream_create(comm, &stream));
 *     CHECK(weft_memory_alloc(comm, sizeof host, &block));
 *     CHECK(weft_memory_copy(comm, block, &host, sizeof host));
 *     float *floats = (float *)block;
 *     int32_t *numbers = (int32_t *)(floats + 10);
 *
 *     weft_gate_args gate = WEFT_INIT(weft_gate_args);
 *     gate.logits = floats;
 *     gate.bias = floats + 4;
 *     gate.topk_weights = floats + 8;
 *     gate.topk_idx = numbers;
 *     gate.num_tokens_per_expert = numbers + 2;
 *     gate.num_tokens = 1;
 *     gate.num_experts = 4;
 *     gate.num_topk = 2;
 *     gate.dtype = WEFT_FP32;
 *     gate.index_type = WEFT_INT32;
 *     gate.score = WEFT_GATE_SIGMOID;
 *     gate.weights = WEFT_GATE_WEIGHTS_NORMALISED;
 *     CHECK(weft_gate_choose(comm, &gate, stream));
 *     weft_gate_balance_args balance = WEFT_INIT(weft_gate_balance_args);
 *     balance.bias = floats + 4;
 *     balance.num_tokens_per_expert = numbers + 2; // of several ranks: summed before
 *     balance.num_experts = 4;
 *     balance.step = 0.001f;
 *     CHECK(weft_gate_balance(comm, &balance, stream));
 *     CHECK(weft_stream_synchronize(stream));
 *
 *     CHECK(weft_memory_copy(comm, &host, block, sizeof host));
 *     EXPECT(host.idx[0] == 2 && host.idx[1] == 0); // as good as expert 3
 *     EXPECT(host.weights[0] > host.weights[1] && host.weights[1] > 0.4f);
 *     EXPECT(host.bias[2] == -0.001f && host.bias[3] == 0.001f);
 *     CHECK(weft_memory_free(comm, block));
 *     CHECK(weft_stream_destroy(stream));
 */
typedef struct weft_gate_args {
    size_t size;
    const void *logits;             /* [num_tokens][num_experts] of dtype, aligned as that is */
    const float *bias;              /* [num_experts], or NULL: counts for the choice only */
    const uint8_t *expert_mask;     /* [num_experts], 0: never chosen; NULL: all may be */
    const uint8_t *token_mask;      /* [num_tokens], 0: chooses none; NULL: all choose */
    void *topk_idx;                 /* [num_tokens][num_topk] of index_type: written */
    float *topk_weights;            /* [num_tokens][num_topk]: written */
    int32_t *num_tokens_per_expert; /* [num_experts], or NULL: the choices are added */
    uint64_t logits_stride_bytes;   /* between rows; 0: they lie side by side */
    int32_t num_tokens;
    int32_t num_experts;   /* 1..WEFT_GATE_MAX_EXPERTS */
    int32_t num_topk;      /* 1..WEFT_MAX_TOPK, at most the experts of the kept groups */
    weft_dtype dtype;      /* WEFT_BF16, WEFT_FP16 or WEFT_FP32 */
    weft_dtype index_type; /* WEFT_INT32 or WEFT_INT64 */
    weft_gate_score score;
    weft_gate_weights weights;
    float scale;             /* of weights; 0: 1 */
    int32_t num_groups;      /* divides num_experts, at most WEFT_GATE_MAX_GROUPS; 0: 1 */
    int32_t num_kept_groups; /* 0: all */
    weft_gate_group_score group_score;
    int32_t reserved; /* 0 */
} weft_gate_args;

/* Stream operation, without other ranks. */
WEFT_API weft_result weft_gate_choose(weft_comm *comm, const weft_gate_args *args,
                                      weft_stream *stream);

/* The gradient of the logits from the gradients of the weights; the choice counts as constant. The
 * rest of the arguments are those of the choice, and mean the same. */
typedef struct weft_gate_backward_args {
    size_t size;
    const void *logits;
    const uint8_t *expert_mask;
    const void *topk_idx;      /* as weft_gate_choose wrote it */
    const float *grad_weights; /* [num_tokens][num_topk] */
    float *grad_logits;        /* [num_tokens][num_experts]: written */
    uint64_t logits_stride_bytes;
    int32_t num_tokens;
    int32_t num_experts;
    int32_t num_topk;
    weft_dtype dtype;
    weft_dtype index_type;
    weft_gate_score score;
    weft_gate_weights weights;
    float scale;
} weft_gate_backward_args;

/* Stream operation, without other ranks. */
WEFT_API weft_result weft_gate_backward(weft_comm *comm, const weft_gate_backward_args *args,
                                        weft_stream *stream);

/* Balance without an auxiliary loss: experts with more tokens than the mean lose `step` of their
 * bias, those with fewer get it. Then the counts are 0, for the next step. So that all ranks have
 * the same biases, the counts are first summed over the ranks, by weft_coll_all_reduce; the sums
 * must be below 2^32. All experts count, so those that a mask leaves out get `step` each time. */
typedef struct weft_gate_balance_args {
    size_t size;
    float *bias;                    /* [num_experts]: changed */
    int32_t *num_tokens_per_expert; /* [num_experts]: read, then 0 */
    int32_t num_experts;
    float step; /* finite */
} weft_gate_balance_args;

/* Stream operation, without other ranks. */
WEFT_API weft_result weft_gate_balance(weft_comm *comm, const weft_gate_balance_args *args,
                                       weft_stream *stream);

#ifdef __cplusplus
}
#endif

#endif
