/* SPDX-License-Identifier: MIT */
/* weft_gate_choose, weft_gate_backward and weft_gate_balance, against the oracle, and their
 * arguments. */
#include <math.h>

#include "harness/cmocka.h"
#include "harness/memory.h"
#include "harness/ranks.h"
#include "workload/gate_oracle.h"
#include "workload/rng.h"

enum { EXPERTS = 256, TOPK = 8, TOKENS = 5 };

struct actor {
    weft_comm *comm;
    weft_stream *stream;
    char *block;          /* of the machine */
    char *before, *after; /* copies */
};

static int open_actor(struct ranks_context *context, struct actor *actor)
{
    void *block;
    actor->comm = ranks_comm(context, NULL);
    actor->stream = ranks_stream(context);
    CHECK_OK(weft_memory_alloc(actor->comm, GATE_BLOCK_BYTES, &block));
    actor->block = block;
    actor->before = tests_alloc(GATE_BLOCK_BYTES);
    actor->after = tests_alloc(GATE_BLOCK_BYTES);
    return 0;
}

static int close_actor(struct actor *actor)
{
    tests_free(actor->after);
    tests_free(actor->before);
    return 0;
}

static int put(struct actor *actor)
{
    CHECK_OK(weft_memory_copy(actor->comm, actor->block, actor->before, GATE_BLOCK_BYTES));
    return 0;
}

static int get(struct actor *actor)
{
    CHECK_OK(weft_stream_synchronize(actor->stream));
    CHECK_OK(weft_memory_copy(actor->comm, actor->after, actor->block, GATE_BLOCK_BYTES));
    return 0;
}

struct outcome {
    uint64_t digest;
    int32_t num_tokens, num_close;
};

/* Every `step`th case. */
static int run_cases(struct actor *actor, int32_t step, int32_t max_tokens, struct outcome *outcome)
{
    struct gate_case drawn;
    *outcome = (struct outcome){0};
    for (int32_t number = 0; number < GATE_NUM_CASES; number += step) {
        gate_case_draw(number, max_tokens, &drawn, actor->before);
        CHECK(drawn.end <= GATE_BLOCK_BYTES, "%zu bytes", drawn.end);
        if (put(actor))
            return 1;
        const struct gate_calls calls = gate_case_calls(&drawn, actor->block);
        CHECK_OK(weft_gate_choose(actor->comm, &calls.choose, actor->stream));
        CHECK_OK(weft_gate_backward(actor->comm, &calls.backward, actor->stream));
        if (get(actor))
            return 1;
        const char *wrong =
            gate_case_check(&drawn, actor->before, actor->after, &outcome->num_close);
        CHECK(wrong == NULL, "case %d, %d experts, top %d, score %d, dtype %d: %s", number,
              drawn.args.num_experts, drawn.args.num_topk, drawn.args.score, drawn.args.dtype,
              wrong);
        outcome->digest = gate_case_digest(&drawn, actor->after, outcome->digest);
        outcome->num_tokens += drawn.args.num_tokens;
    }
    return 0;
}

TEST_ON_RANKS(choices_weights_and_gradients, RANKS_THREADS, 1)
{
    struct actor actor;
    struct outcome outcome;
    if (open_actor(context, &actor) || run_cases(&actor, 1, INT32_MAX, &outcome))
        return 1;
    CHECK(outcome.num_close < outcome.num_tokens / 10, "%d of %d tokens are too close",
          outcome.num_close, outcome.num_tokens);
    CHECK(outcome.digest == GATE_DIGEST, "the digest is %#llx", (unsigned long long)outcome.digest);
    if (run_cases(&actor, GATE_SMALL_STEP, GATE_SMALL_TOKENS, &outcome))
        return 1;
    CHECK(outcome.digest == GATE_SMALL_DIGEST, "the small digest is %#llx",
          (unsigned long long)outcome.digest);
    return close_actor(&actor);
}

/* ---------------------------------------------------------------- biases */

/* Two steps; the counts are cleared in between. */
TEST_ON_RANKS(biases_go_towards_the_mean, RANKS_THREADS, 1)
{
    enum { NUM = 67, COUNTS = NUM };
    struct actor actor;
    if (open_actor(context, &actor))
        return 1;
    float *bias = (float *)actor.before, expected[NUM];
    int32_t *counts = (int32_t *)actor.before + COUNTS;
    int64_t sum = 0;
    for (int32_t e = 0; e < NUM; e++) {
        bias[e] = expected[e] = 0.5f * (float)e;
        counts[e] = e * 30000000; /* expert 33 has the mean */
        sum += counts[e];
    }
    const weft_gate_balance_args args = {.size = sizeof args,
                                         .bias = (float *)actor.block,
                                         .num_tokens_per_expert = (int32_t *)actor.block + COUNTS,
                                         .num_experts = NUM,
                                         .step = 0.125f};
    for (int32_t e = 0; e < NUM; e++) {
        const int64_t excess = (int64_t)counts[e] * NUM - sum;
        expected[e] += excess == 0 ? 0.0f : excess > 0 ? -0.125f : 0.125f;
    }
    if (put(&actor))
        return 1;
    CHECK_OK(weft_gate_balance(actor.comm, &args, actor.stream));
    CHECK_OK(weft_gate_balance(actor.comm, &args, actor.stream)); /* all have the mean, 0 */
    if (get(&actor))
        return 1;
    for (int32_t e = 0; e < NUM; e++) {
        CHECK(((float *)actor.after)[e] == expected[e], "bias of expert %d is %g, not %g", e,
              (double)((float *)actor.after)[e], (double)expected[e]);
        CHECK(((int32_t *)actor.after)[COUNTS + e] == 0, "expert %d has a count", e);
    }
    return close_actor(&actor);
}

/* The pattern of docs/gate.md: with counts that are summed over ranks, all have the same biases,
 * and the busiest expert loses the most. */
TEST_ON_RANKS(counts_of_ranks_are_summed, RANKS_THREADS, 2)
{
    enum { NUM = 4 };
    weft_coll *coll;
    void *block;
    const weft_coll_config config = WEFT_INIT(weft_coll_config);
    const struct {
        float bias[NUM];
        int32_t counts[2 * NUM];
    } before = {{0}, {context->rank == 0 ? 9 : 1, context->rank, 3, 3}};
    float bias[NUM];
    weft_comm *const comm = ranks_comm(context, NULL);
    weft_stream *const stream = ranks_stream(context);
    CHECK_OK(weft_coll_create(comm, &config, &coll));
    CHECK_OK(weft_memory_alloc(comm, sizeof before, &block));
    CHECK_OK(weft_memory_copy(comm, block, &before, sizeof before));
    int32_t *counts = (int32_t *)block + NUM;
    CHECK_OK(weft_coll_all_reduce(coll,
                                  WEFT_ARGS(weft_coll_args, .send = counts, .recv = counts,
                                            .count = NUM, .dtype = WEFT_INT32, .op = WEFT_SUM),
                                  stream));
    CHECK_OK(weft_gate_balance(comm,
                               WEFT_ARGS(weft_gate_balance_args, .bias = block,
                                         .num_tokens_per_expert = counts, .num_experts = NUM,
                                         .step = 0.001f),
                               stream));
    CHECK_OK(weft_stream_synchronize(stream));
    CHECK_OK(weft_memory_copy(comm, bias, block, sizeof bias));
    /* Sums 10, 1, 6, 6, of which the mean is 5.75. */
    CHECK(bias[0] == -0.001f && bias[1] == 0.001f && bias[2] == -0.001f && bias[3] == -0.001f,
          "the biases are %g %g %g %g", (double)bias[0], (double)bias[1], (double)bias[2],
          (double)bias[3]);
    CHECK_OK(weft_memory_free(comm, block));
    CHECK_OK(weft_coll_destroy(coll));
    return 0;
}

/* ---------------------------------------------------------------- arguments */

static weft_gate_args good_args(const struct actor *actor)
{
    weft_gate_args args = WEFT_INIT(weft_gate_args);
    args.logits = actor->block;
    args.topk_idx = actor->block + 8192;
    args.topk_weights = (float *)(actor->block + 12288);
    args.num_tokens = TOKENS;
    args.num_experts = EXPERTS;
    args.num_topk = TOPK;
    args.dtype = WEFT_BF16;
    args.index_type = WEFT_INT64;
    args.num_groups = 8;
    args.num_kept_groups = 4;
    return args;
}

static weft_gate_backward_args good_backward(const struct actor *actor)
{
    weft_gate_backward_args args = WEFT_INIT(weft_gate_backward_args);
    args.logits = actor->block;
    args.topk_idx = actor->block + 8192;
    args.grad_weights = (float *)(actor->block + 12288);
    args.grad_logits = (float *)(actor->block + 16384);
    args.num_tokens = TOKENS;
    args.num_experts = EXPERTS;
    args.num_topk = TOPK;
    args.dtype = WEFT_BF16;
    args.index_type = WEFT_INT64;
    return args;
}

#define REFUSED_BY(call, good, field, wrong, text)                                                 \
    do {                                                                                           \
        __typeof__(good(&actor)) args_ = good(&actor);                                             \
        args_.field = wrong;                                                                       \
        CHECK_ERROR(call(actor.comm, &args_, actor.stream), WEFT_ERROR_INVALID_ARGUMENT, text);    \
    } while (0)
#define REFUSED(field, wrong, text) REFUSED_BY(weft_gate_choose, good_args, field, wrong, text)
/* Both functions name what is wrong. */
#define BOTH_REFUSED(field, wrong, text)                                                           \
    do {                                                                                           \
        REFUSED(field, wrong, text);                                                               \
        REFUSED_BY(weft_gate_backward, good_backward, field, wrong, text);                         \
    } while (0)

TEST_ON_RANKS(refusals_name_the_argument, RANKS_THREADS, 1)
{
    struct actor actor;
    if (open_actor(context, &actor))
        return 1;
    BOTH_REFUSED(num_tokens, -1, "num_tokens is -1, allowed are 0..");
    BOTH_REFUSED(num_experts, 4097, "num_experts is 4097, allowed are 1..4096");
    BOTH_REFUSED(num_topk, 0, "num_topk is 0, allowed are 1..64");
    BOTH_REFUSED(num_topk, 65, "num_topk is 65, allowed are 1..64");
    BOTH_REFUSED(dtype, WEFT_FP64, "dtype is WEFT_FP64 (6), allowed are WEFT_BF16 (3), ");
    BOTH_REFUSED(index_type, WEFT_BF16, "index_type is WEFT_BF16 (3), allowed are WEFT_INT32");
    BOTH_REFUSED(score, (weft_gate_score)3, "score is 3, allowed are WEFT_GATE_SOFTMAX (0), ");
    BOTH_REFUSED(weights, (weft_gate_weights)2, "weights is 2, allowed are ");
    BOTH_REFUSED(scale, INFINITY, "scale is inf, must be finite");
    BOTH_REFUSED(logits, NULL, "logits is NULL");
    BOTH_REFUSED(logits, actor.block + 1, "must be aligned to 2 bytes");
    BOTH_REFUSED(logits_stride_bytes, 510, "logits_stride_bytes is 510, allowed are 0 and 512");
    BOTH_REFUSED(topk_idx, NULL, "topk_idx is NULL");
    REFUSED(topk_weights, NULL, "topk_weights is NULL");
    REFUSED(topk_idx, actor.block + 8, "overlap");
    REFUSED(num_tokens_per_expert, (int32_t *)actor.block, "overlap");
    REFUSED(num_groups, 7, "num_groups is 7, must divide num_experts, which is 256");
    REFUSED(num_groups, 128, "num_groups is 128, allowed are 0..64");
    REFUSED(num_kept_groups, 9, "num_kept_groups is 9, allowed are 0..8");
    weft_gate_args few = good_args(&actor);
    few.num_groups = 64;
    few.num_kept_groups = 1;
    CHECK_ERROR(weft_gate_choose(actor.comm, &few, actor.stream), WEFT_ERROR_INVALID_ARGUMENT,
                "num_topk is 8, allowed are 1..4, the experts of 1 groups");
    REFUSED(group_score, (weft_gate_group_score)2, "group_score is 2, allowed are ");
    REFUSED(reserved, 1, "reserved is 1, must be 0");
    REFUSED_BY(weft_gate_backward, good_backward, grad_weights, NULL, "grad_weights is NULL");
    REFUSED_BY(weft_gate_backward, good_backward, grad_logits, (float *)actor.block, "overlap");
    return close_actor(&actor);
}

TEST_ON_RANKS(arrays_must_be_aligned, RANKS_THREADS, 1)
{
    struct actor actor;
    if (open_actor(context, &actor))
        return 1;
    BOTH_REFUSED(topk_idx, actor.block + 8196, "must be aligned to 8 bytes");
    REFUSED(bias, (float *)(actor.block + 8194), "bias is ");
    REFUSED(topk_weights, (float *)(actor.block + 12290), "topk_weights is ");
    REFUSED(num_tokens_per_expert, (int32_t *)(actor.block + 16385), "num_tokens_per_expert is ");
    REFUSED_BY(weft_gate_backward, good_backward, grad_weights, (float *)(actor.block + 12289),
               "grad_weights is ");
    REFUSED_BY(weft_gate_backward, good_backward, grad_logits, (float *)(actor.block + 16386),
               "grad_logits is ");
    return close_actor(&actor);
}
