/* SPDX-License-Identifier: MIT */
#include "compare.h"

#include <stdio.h>
#include <string.h>

#include "expert.h"
#include "reference.h"

enum { COMPARE_Y, COMPARE_DX, COMPARE_DWEIGHTS, COMPARE_DPARAMETERS, NUM_COMPARISONS };

struct comparison {
    const char *name;
    size_t value_bytes;
    int64_t num_values, num_identical;
};

static void compare(struct comparison *comparison, const void *seen, const void *expected,
                    size_t num_values)
{
    for (size_t i = 0; i < num_values; i++) {
        const size_t offset = i * comparison->value_bytes;
        comparison->num_identical +=
            memcmp((const char *)seen + offset, (const char *)expected + offset,
                   comparison->value_bytes) == 0;
    }
    comparison->num_values += (int64_t)num_values;
}

static void compare_rank(weft_comm *comm, const struct shape *shape, const struct results *results,
                         const struct reference *reference, int32_t rank,
                         struct comparison *comparisons)
{
    const size_t first = (size_t)shape_first_token(shape, rank);
    const size_t num_tokens = (size_t)shape_num_tokens(shape, rank);
    const size_t hidden = (size_t)shape->hidden;
    const size_t topk = (size_t)shape->num_topk;
    const size_t num_parameters = expert_num_parameters(shape);
    const size_t first_expert = (size_t)reference_first_expert(shape, rank);
    const size_t num_experts = (size_t)reference_first_expert(shape, rank + 1) - first_expert;
    compare(&comparisons[COMPARE_Y], weft_heap_ptr(comm, results->y, rank),
            reference->y + first * hidden, num_tokens * hidden);
    compare(&comparisons[COMPARE_DX], weft_heap_ptr(comm, results->dx, rank),
            reference->dx + first * hidden, num_tokens * hidden);
    compare(&comparisons[COMPARE_DWEIGHTS], weft_heap_ptr(comm, results->dweights, rank),
            reference->dweights + first * topk, num_tokens * topk);
    compare(&comparisons[COMPARE_DPARAMETERS], weft_heap_ptr(comm, results->dparameters, rank),
            reference->dparameters + first_expert * num_parameters, num_experts * num_parameters);
}

static void describe(weft_comm *comm, const struct shape *shape, const struct results *results)
{
    printf("A MoE layer on %d ranks, forward and backward: %lld tokens, hidden %d, top-%d of %d "
           "experts (inner width %d).\n",
           shape->num_ranks, (long long)shape_first_token(shape, shape->num_ranks), shape->hidden,
           shape->num_topk, shape->num_experts, shape->ffn);
    printf("Rows received by each rank:");
    for (int32_t rank = 0; rank < shape->num_ranks; rank++)
        printf(" %d", *(int32_t *)weft_heap_ptr(comm, results->num_rows, rank));
    printf("\n");
}

static enum verdict report(const struct comparison *comparisons)
{
    enum verdict verdict = VERDICT_IDENTICAL;
    printf("Bits identical to those of one dense process:\n");
    for (int32_t i = 0; i < NUM_COMPARISONS; i++) {
        const struct comparison *comparison = &comparisons[i];
        const char *remark = "";
        if (comparison->num_identical != comparison->num_values) {
            verdict = VERDICT_DIFFERENT;
            remark = "  <-- DIFFERENT";
        }
        printf("  %-34s %8lld of %8lld values%s\n", comparison->name,
               (long long)comparison->num_identical, (long long)comparison->num_values, remark);
    }
    return verdict;
}

weft_result compare_with_reference(weft_comm *comm, const struct shape *shape,
                                   const struct results *results, enum verdict *verdict)
{
    struct reference reference = {0};
    struct comparison comparisons[NUM_COMPARISONS] = {
        [COMPARE_Y] = {.name = "output, bf16", .value_bytes = sizeof(uint16_t)},
        [COMPARE_DX] = {.name = "gradient of the input, bf16", .value_bytes = sizeof(uint16_t)},
        [COMPARE_DWEIGHTS] = {.name = "gradient of the gate weights, fp32",
                              .value_bytes = sizeof(float)},
        [COMPARE_DPARAMETERS] = {.name = "gradient of the experts, fp32",
                                 .value_bytes = sizeof(float)}};
    describe(comm, shape, results);
    const weft_result result = reference_compute(&reference, shape);
    if (result == WEFT_OK) {
        for (int32_t rank = 0; rank < shape->num_ranks; rank++)
            compare_rank(comm, shape, results, &reference, rank, comparisons);
        *verdict = report(comparisons);
    }
    reference_destroy(&reference);
    return result;
}
