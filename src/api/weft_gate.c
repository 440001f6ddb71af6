/* SPDX-License-Identifier: MIT */
#include <math.h>

#include "ep/gate.h"

#include "api/objects.h"
#include "api/overlap.h"
#include "api/structs.h"

/* The arguments that the choice and its gradient have in common. */
struct common {
    const void *logits;
    const uint8_t *expert_mask;
    uint64_t logits_stride_bytes;
    int32_t num_tokens, num_experts, num_topk;
    weft_dtype dtype, index_type;
    weft_gate_score score;
    weft_gate_weights weights;
    float scale;
};

#define COMMON_OF(args)                                                                            \
    {                                                                                              \
        (args)->logits, (args)->expert_mask, (args)->logits_stride_bytes, (args)->num_tokens,      \
            (args)->num_experts, (args)->num_topk, (args)->dtype, (args)->index_type,              \
            (args)->score, (args)->weights, (args)->scale                                          \
    }

/* ---------------------------------------------------------------- checks */

static weft_result check_finite(float value, const char *name)
{
    return isfinite(value) ? WEFT_OK
                           : weft__invalid("%s is %g, must be finite", name, (double)value);
}

static weft_result check_numbers(const struct common *common)
{
    WEFT__TRY(weft__check_range(common->num_tokens, 0, INT32_MAX, "num_tokens"));
    WEFT__TRY(weft__check_range(common->num_experts, 1, WEFT_GATE_MAX_EXPERTS, "num_experts"));
    const int32_t most_topk =
        common->num_experts < WEFT_MAX_TOPK ? common->num_experts : WEFT_MAX_TOPK;
    WEFT__TRY(weft__check_range(common->num_topk, 1, most_topk, "num_topk"));
    WEFT__TRY(
        weft__check_enum(WEFT__ENUM_DTYPE, (int32_t)common->dtype, WEFT_BF16, WEFT_FP32, "dtype"));
    WEFT__TRY(weft__check_enum(WEFT__ENUM_DTYPE, (int32_t)common->index_type, WEFT_INT32,
                               WEFT_INT64, "index_type"));
    WEFT__TRY(weft__check_enum(WEFT__ENUM_GATE_SCORE, (int32_t)common->score, WEFT_GATE_SOFTMAX,
                               WEFT_GATE_SQRT_SOFTPLUS, "score"));
    WEFT__TRY(weft__check_enum(WEFT__ENUM_GATE_WEIGHTS, (int32_t)common->weights,
                               WEFT_GATE_WEIGHTS_AS_SCORED, WEFT_GATE_WEIGHTS_NORMALISED,
                               "weights"));
    return check_finite(common->scale, "scale");
}

static weft_result check_logits(const struct common *common)
{
    const uint64_t element_bytes = wp_dtype_bytes(common->dtype);
    const uint64_t row_bytes = (uint64_t)common->num_experts * element_bytes;
    WEFT__TRY(weft__check_array(common->logits, common->num_tokens, "logits"));
    WEFT__TRY(weft__check_address(common->logits, element_bytes, "logits"));
    if (common->logits_stride_bytes % element_bytes != 0)
        return weft__invalid(
            "logits_stride_bytes is %llu, must be a multiple of %llu, the bytes of an element",
            (unsigned long long)common->logits_stride_bytes, (unsigned long long)element_bytes);
    if (common->logits_stride_bytes != 0 && common->logits_stride_bytes < row_bytes)
        return weft__invalid(
            "logits_stride_bytes is %llu, allowed are 0 and %llu or more, the bytes of a row",
            (unsigned long long)common->logits_stride_bytes, (unsigned long long)row_bytes);
    return WEFT_OK;
}

/* Sets num_groups and num_kept_groups where they were 0. */
static weft_result check_groups(weft_gate_args *args)
{
    const int32_t most =
        args->num_experts < WEFT_GATE_MAX_GROUPS ? args->num_experts : WEFT_GATE_MAX_GROUPS;
    WEFT__TRY(weft__check_range(args->num_groups, 0, most, "num_groups"));
    if (args->num_groups == 0)
        args->num_groups = 1;
    if (args->num_experts % args->num_groups != 0)
        return weft__invalid("num_groups is %d, must divide num_experts, which is %d",
                             args->num_groups, args->num_experts);
    WEFT__TRY(weft__check_range(args->num_kept_groups, 0, args->num_groups, "num_kept_groups"));
    if (args->num_kept_groups == 0)
        args->num_kept_groups = args->num_groups;
    const int32_t num_remaining = args->num_experts / args->num_groups * args->num_kept_groups;
    if (args->num_topk > num_remaining)
        return weft__invalid("num_topk is %d, allowed are 1..%d, the experts of %d groups",
                             args->num_topk, num_remaining, args->num_kept_groups);
    WEFT__TRY(weft__check_enum(WEFT__ENUM_GATE_GROUP_SCORE, (int32_t)args->group_score,
                               WEFT_GATE_GROUP_TOP2, WEFT_GATE_GROUP_MAX, "group_score"));
    return weft__check_unused((uint64_t)args->reserved, "reserved");
}

static struct wp_gate_logits logits_of(const struct common *common)
{
    const uint64_t row_bytes = (uint64_t)common->num_experts * wp_dtype_bytes(common->dtype);
    return (struct wp_gate_logits){
        .rows = common->logits,
        .stride_bytes = common->logits_stride_bytes == 0 ? row_bytes : common->logits_stride_bytes,
        .expert_mask = common->expert_mask,
        .dtype = common->dtype,
        .score = common->score,
        .num_experts = common->num_experts};
}

static struct weft__extent extent_of_logits(const struct common *common)
{
    const struct wp_gate_logits logits = logits_of(common);
    struct weft__extent extent =
        weft__extent_of("logits", WEFT__EXTENT_READ, common->logits, (uint64_t)common->num_tokens,
                        (uint64_t)common->num_experts * wp_dtype_bytes(common->dtype));
    extent.stride_bytes = logits.stride_bytes;
    return extent;
}

static struct weft__extent extent_of_topk(const struct common *common, const char *name,
                                          enum weft__extent_use use, const void *ptr,
                                          uint64_t bytes)
{
    return weft__extent_of(name, use, ptr, (uint64_t)common->num_tokens,
                           (uint64_t)common->num_topk * bytes);
}

static struct weft__extent extent_of_experts(const struct common *common, const char *name,
                                             enum weft__extent_use use, const void *ptr,
                                             uint64_t bytes)
{
    return weft__extent_of(name, use, ptr, (uint64_t)common->num_experts, bytes);
}

static weft_result check_choose_memory(const weft_gate_args *args, const struct common *common)
{
    WEFT__TRY(weft__check_array(args->topk_idx, args->num_tokens, "topk_idx"));
    WEFT__TRY(weft__check_array(args->topk_weights, args->num_tokens, "topk_weights"));
    WEFT__TRY(weft__check_address(args->topk_idx, wp_dtype_bytes(args->index_type), "topk_idx"));
    WEFT__TRY(weft__check_address(args->topk_weights, sizeof(float), "topk_weights"));
    WEFT__TRY(weft__check_address(args->bias, sizeof(float), "bias"));
    WEFT__TRY(
        weft__check_address(args->num_tokens_per_expert, sizeof(int32_t), "num_tokens_per_expert"));
    const struct weft__extent extents[] = {
        extent_of_logits(common),
        extent_of_experts(common, "bias", WEFT__EXTENT_READ, args->bias, sizeof(float)),
        extent_of_experts(common, "expert_mask", WEFT__EXTENT_READ, args->expert_mask, 1),
        weft__extent_of("token_mask", WEFT__EXTENT_READ, args->token_mask,
                        (uint64_t)args->num_tokens, 1),
        extent_of_topk(common, "topk_idx", WEFT__EXTENT_WRITTEN, args->topk_idx,
                       wp_dtype_bytes(args->index_type)),
        extent_of_topk(common, "topk_weights", WEFT__EXTENT_WRITTEN, args->topk_weights,
                       sizeof(float)),
        extent_of_experts(common, "num_tokens_per_expert", WEFT__EXTENT_WRITTEN,
                          args->num_tokens_per_expert, sizeof(int32_t))};
    return weft__check_overlaps(extents, sizeof extents / sizeof *extents);
}

static weft_result check_backward_memory(const weft_gate_backward_args *args,
                                         const struct common *common)
{
    WEFT__TRY(weft__check_array(args->topk_idx, args->num_tokens, "topk_idx"));
    WEFT__TRY(weft__check_array(args->grad_weights, args->num_tokens, "grad_weights"));
    WEFT__TRY(weft__check_array(args->grad_logits, args->num_tokens, "grad_logits"));
    WEFT__TRY(weft__check_address(args->topk_idx, wp_dtype_bytes(args->index_type), "topk_idx"));
    WEFT__TRY(weft__check_address(args->grad_weights, sizeof(float), "grad_weights"));
    WEFT__TRY(weft__check_address(args->grad_logits, sizeof(float), "grad_logits"));
    const struct weft__extent extents[] = {
        extent_of_logits(common),
        extent_of_experts(common, "expert_mask", WEFT__EXTENT_READ, args->expert_mask, 1),
        extent_of_topk(common, "topk_idx", WEFT__EXTENT_READ, args->topk_idx,
                       wp_dtype_bytes(args->index_type)),
        extent_of_topk(common, "grad_weights", WEFT__EXTENT_READ, args->grad_weights,
                       sizeof(float)),
        weft__extent_of("grad_logits", WEFT__EXTENT_WRITTEN, args->grad_logits,
                        (uint64_t)args->num_tokens, (uint64_t)args->num_experts * sizeof(float))};
    return weft__check_overlaps(extents, sizeof extents / sizeof *extents);
}

/* ---------------------------------------------------------------- launches */

static float scale_of(float scale)
{
    return scale == 0.0f ? 1.0f : scale;
}

weft_result weft_gate_choose(weft_comm *comm, const weft_gate_args *given, weft_stream *stream)
{
    weft_gate_args args;
    weft__current_call = WEFT__CALL_GATE_CHOOSE;
    WEFT__TRY(weft__operands_check(comm, stream));
    WEFT__TRY(WEFT__READ(weft_gate_args, &args, given, "args"));
    const struct common common = COMMON_OF(&args);
    WEFT__TRY(check_numbers(&common));
    WEFT__TRY(check_groups(&args));
    WEFT__TRY(check_logits(&common));
    WEFT__TRY(check_choose_memory(&args, &common));
    const struct wp_gate_args filled = {.logits = logits_of(&common),
                                        .bias = args.bias,
                                        .token_mask = args.token_mask,
                                        .topk_idx = args.topk_idx,
                                        .index_type = args.index_type,
                                        .topk_weights = args.topk_weights,
                                        .num_tokens_per_expert = args.num_tokens_per_expert,
                                        .num_tokens = args.num_tokens,
                                        .num_topk = args.num_topk,
                                        .num_groups = args.num_groups,
                                        .num_kept_groups = args.num_kept_groups,
                                        .group_score = args.group_score,
                                        .weights = args.weights,
                                        .scale = scale_of(args.scale)};
    return weft__gate_choose(comm, &filled, stream);
}

weft_result weft_gate_backward(weft_comm *comm, const weft_gate_backward_args *given,
                               weft_stream *stream)
{
    weft_gate_backward_args args;
    weft__current_call = WEFT__CALL_GATE_BACKWARD;
    WEFT__TRY(weft__operands_check(comm, stream));
    WEFT__TRY(WEFT__READ(weft_gate_backward_args, &args, given, "args"));
    const struct common common = COMMON_OF(&args);
    WEFT__TRY(check_numbers(&common));
    WEFT__TRY(check_logits(&common));
    WEFT__TRY(check_backward_memory(&args, &common));
    const struct wp_gate_backward_args filled = {.logits = logits_of(&common),
                                                 .topk_idx = args.topk_idx,
                                                 .index_type = args.index_type,
                                                 .grad_weights = args.grad_weights,
                                                 .grad_logits = args.grad_logits,
                                                 .num_tokens = args.num_tokens,
                                                 .num_topk = args.num_topk,
                                                 .weights = args.weights,
                                                 .scale = scale_of(args.scale)};
    return weft__gate_backward(comm, &filled, stream);
}

weft_result weft_gate_balance(weft_comm *comm, const weft_gate_balance_args *given,
                              weft_stream *stream)
{
    weft_gate_balance_args args;
    weft__current_call = WEFT__CALL_GATE_BALANCE;
    WEFT__TRY(weft__operands_check(comm, stream));
    WEFT__TRY(WEFT__READ(weft_gate_balance_args, &args, given, "args"));
    WEFT__TRY(weft__check_range(args.num_experts, 1, WEFT_GATE_MAX_EXPERTS, "num_experts"));
    WEFT__TRY(weft__check_not_null(args.bias, "bias"));
    WEFT__TRY(weft__check_not_null(args.num_tokens_per_expert, "num_tokens_per_expert"));
    WEFT__TRY(weft__check_address(args.bias, sizeof(float), "bias"));
    WEFT__TRY(
        weft__check_address(args.num_tokens_per_expert, sizeof(int32_t), "num_tokens_per_expert"));
    WEFT__TRY(check_finite(args.step, "step"));
    const uint64_t num_experts = (uint64_t)args.num_experts;
    const struct weft__extent extents[] = {
        weft__extent_of("bias", WEFT__EXTENT_WRITTEN, args.bias, num_experts, sizeof(float)),
        weft__extent_of("num_tokens_per_expert", WEFT__EXTENT_WRITTEN, args.num_tokens_per_expert,
                        num_experts, sizeof(int32_t))};
    WEFT__TRY(weft__check_overlaps(extents, 2));
    const struct wp_gate_balance_args filled = {.bias = args.bias,
                                                .num_tokens_per_expert = args.num_tokens_per_expert,
                                                .num_experts = args.num_experts,
                                                .step = args.step};
    return weft__gate_balance(comm, &filled, stream);
}
