/* SPDX-License-Identifier: MIT */
#include <stdio.h>

#include "ep_options.h"
#include "workload/ep_oracle.h"

enum { DEFAULT_TOKENS = 512, DEFAULT_LL_TOKENS = 128, DEFAULT_TOPK = 8, DEFAULT_EXPERTS = 256 };

static int must_be(const char *option, int32_t *value, int32_t required, const char *reason,
                   char error[JOB_ERROR_BYTES])
{
    if (*value != EP_NOT_GIVEN && *value != required) {
        snprintf(error, JOB_ERROR_BYTES, "%s %d: must be absent or %d, %s", option, *value,
                 required, reason);
        return -1;
    }
    *value = required;
    return 0;
}

void ep_options_resolve_grid(struct ep_options *options, weft_machine machine)
{
    const int32_t usual = machine == WEFT_MACHINE_CPU ? 1 : 0;
    if (options->layer.num_blocks == EP_NOT_GIVEN)
        options->layer.num_blocks = usual;
    if (options->layer.num_warps == EP_NOT_GIVEN)
        options->layer.num_warps = usual;
}

static int32_t largest(const struct option_list *list)
{
    int64_t value = list->values[0];
    for (int32_t i = 1; i < list->count; i++)
        value = list->values[i] > value ? list->values[i] : value;
    return (int32_t)value;
}

int32_t ep_options_num_cases(const struct ep_options *options)
{
    return options->trace ? options->trace_layers.count : options->tokens.count;
}

void ep_options_choose_case(struct ep_options *options, int32_t i)
{
    if (options->trace)
        options->layer.trace_layer = (int32_t)options->trace_layers.values[i];
    else
        options->layer.num_tokens = (int32_t)options->tokens.values[i];
}

static int resolve_trace(struct ep_options *options, char error[JOB_ERROR_BYTES])
{
    const char *reason = "as in the trace";
    const struct trace *trace = options->trace;
    int64_t num_ranks = options->job.num_ranks;
    int32_t max_share = (int32_t)((trace->num_tokens + num_ranks - 1) / num_ranks);
    options->layer.num_tokens = max_share;
    for (int32_t i = 0; i < options->tokens.count; i++) {
        int32_t num_tokens = (int32_t)options->tokens.values[i];
        if (must_be("--tokens", &num_tokens, max_share, "the largest share of a rank in the trace",
                    error) != 0)
            return -1;
    }
    if (must_be("--topk", &options->layer.num_topk, trace->num_topk, reason, error) != 0 ||
        must_be("--experts", &options->layer.num_experts, trace->num_experts, reason, error) != 0)
        return -1;
    return 0;
}

static int resolve_gate(struct ep_options *options, char error[JOB_ERROR_BYTES])
{
    if (options->tokens.count == 0)
        options->tokens = (struct option_list){
            1, {options->layer.mode == EP_MODE_LOW_LATENCY ? DEFAULT_LL_TOKENS : DEFAULT_TOKENS}};
    options->layer.num_tokens =
        largest(&options->tokens); /* until a case is chosen: what needs most */
    if (options->layer.num_experts == EP_NOT_GIVEN)
        options->layer.num_experts = DEFAULT_EXPERTS;
    if (options->layer.num_topk == EP_NOT_GIVEN)
        options->layer.num_topk =
            options->layer.num_experts < DEFAULT_TOPK ? options->layer.num_experts : DEFAULT_TOPK;
    if (options->layer.num_topk > options->layer.num_experts) {
        snprintf(error, JOB_ERROR_BYTES, "--topk %d: must be 1 to %d, the number of experts",
                 options->layer.num_topk, options->layer.num_experts);
        return -1;
    }
    return 0;
}

int ep_options_resolve(struct ep_options *options, char error[JOB_ERROR_BYTES])
{
    for (int32_t i = 0; i < options->layer.masked.count; i++)
        if (options->layer.masked.values[i] >= options->job.num_ranks) {
            snprintf(error, JOB_ERROR_BYTES, "--masked %lld: must be below the number of ranks, %d",
                     (long long)options->layer.masked.values[i], options->job.num_ranks);
            return -1;
        }
    return options->trace ? resolve_trace(options, error) : resolve_gate(options, error);
}
