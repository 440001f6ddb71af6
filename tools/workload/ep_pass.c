/* SPDX-License-Identifier: MIT */
#include "workload/ep_pass.h"

#include <stdlib.h>
#include <string.h>

#include "workload/failure.h"
#include "workload/try.h"

/* The outputs that are arrays, with the memory of the machine that they are copied from. */
struct output {
    void **host;
    void *machine;
    size_t bytes;
};
enum { OUT = 9, NUM_OUTPUTS }; /* that of combine comes last */

static void list_outputs(struct ep_results *results, const struct ep_layer *layer,
                         struct output outputs[NUM_OUTPUTS])
{
    const size_t num_tokens = (size_t)layer->num_tokens, num_ranks = (size_t)layer->num_ranks;
    const size_t num_recv = (size_t)results->received->num_rows,
                 num_topk = (size_t)layer->options->num_topk;
    const size_t row_bytes = layer->options->row_bytes;
    const struct output list[NUM_OUTPUTS] = {
        {(void **)&results->tokens_per_rank, layer->tokens_per_rank, num_ranks * 4},
        {(void **)&results->tokens_per_node, layer->tokens_per_node, (size_t)layer->num_nodes * 4},
        {(void **)&results->tokens_per_expert, layer->tokens_per_expert,
         (size_t)layer->options->num_experts * 4},
        {(void **)&results->is_token_in_rank, layer->is_token_in_rank, num_tokens * num_ranks},
        {(void **)&results->recv_x[0], layer->recv_x[0], num_recv * layer->options->plane_bytes[0]},
        {(void **)&results->recv_x[1], layer->recv_x[1], num_recv * layer->options->plane_bytes[1]},
        {(void **)&results->recv_topk_idx, layer->recv_topk_idx,
         (size_t)layer->capacity * num_topk * 4},
        {(void **)&results->recv_topk_weights, layer->recv_topk_weights, num_recv * num_topk * 4},
        {(void **)&results->recv_src_token, layer->recv_src_token, num_recv * 4},
        {(void **)&results->out, layer->out, num_tokens * row_bytes},
    };
    memcpy(outputs, list, sizeof list);
}

weft_result ep_results_open(struct ep_results *results, const struct ep_layer *layer,
                            const struct ep_received *received)
{
    struct output outputs[NUM_OUTPUTS];
    int is_ready = 1;
    *results = (struct ep_results){.received = received};
    list_outputs(results, layer, outputs);
    for (int i = 0; i < NUM_OUTPUTS; i++) {
        *outputs[i].host = malloc(outputs[i].bytes + 1);
        is_ready = is_ready && *outputs[i].host;
    }
    return is_ready ? WEFT_OK : LACKS_MEMORY("the results of a pass");
}

void ep_results_close(struct ep_results *results, const struct ep_layer *layer)
{
    struct output outputs[NUM_OUTPUTS];
    if (!results->received)
        return;
    list_outputs(results, layer, outputs);
    for (int i = 0; i < NUM_OUTPUTS; i++)
        free(*outputs[i].host);
    *results = (struct ep_results){0};
}

enum { GARBAGE = 0xa5 };

static weft_result spoil(struct ep_layer *layer, void *memory, size_t num_bytes)
{
    void *garbage = malloc(num_bytes + 1);
    if (garbage == NULL)
        return LACKS_MEMORY("%zu bytes", num_bytes);
    memset(garbage, GARBAGE, num_bytes);
    const weft_result result = weft_memory_copy(layer->comm, memory, garbage, num_bytes);
    free(garbage);
    return result;
}

static weft_result spoil_outputs(struct ep_layer *layer, const struct output *outputs)
{
    weft_result result = WEFT_OK;
    for (int i = 0; i < NUM_OUTPUTS && result == WEFT_OK; i++) {
        memset(*outputs[i].host, GARBAGE, outputs[i].bytes);
        result =
            weft_memory_copy(layer->comm, outputs[i].machine, *outputs[i].host, outputs[i].bytes);
    }
    const size_t capacity = (size_t)layer->capacity;
    if (result == WEFT_OK && layer->recv_narrow != NULL)
        result = spoil(layer, layer->recv_narrow, capacity * ep_ll_element_bytes(layer->options));
    if (result == WEFT_OK && layer->recv_scales != NULL)
        result = spoil(layer, layer->recv_scales, capacity * ep_ll_scale_bytes(layer->options));
    /* No rank may dispatch into rows that their owner still spoils. */
    return result == WEFT_OK ? weft_comm_host_barrier(layer->comm) : result;
}

static weft_result fetch(struct ep_layer *layer, const struct output *outputs, int num_outputs)
{
    for (int i = 0; i < num_outputs; i++)
        TRY(weft_memory_copy(layer->comm, *outputs[i].host, outputs[i].machine, outputs[i].bytes));
    return WEFT_OK;
}

static weft_result run(struct ep_layer *layer, enum ep_op op)
{
    weft_result result = ep_layer_enqueue(layer, op);
    return result == WEFT_OK ? weft_stream_synchronize(layer->stream) : result;
}

static weft_result run_notify(struct ep_layer *layer, struct ep_results *results)
{
    results->counts = (weft_ep_counts)WEFT_INIT(weft_ep_counts);
    TRY(weft_ep_notify(layer->handle, layer->stream));
    return weft_ep_wait_counts(layer->handle, &results->counts);
}

float ep_answer_scale(const struct ep_problem *problem, struct ep_token token, int32_t rank)
{
    float scale = 0;
    for (int32_t k = 0; k < problem->num_topk; k++) {
        const struct ep_choice choice = ep_oracle_choice(problem, token, k);
        if (choice.rank == rank)
            scale += choice.weight * ep_expert_factor(choice.expert);
    }
    return scale;
}

/* On the host: `y` and `row` have room for a row. */
static weft_result answer_rows(struct ep_layer *layer, const struct ep_results *results, float *y,
                               unsigned char *row)
{
    const weft_dtype kind = layer->options->kind;
    const size_t hidden = (size_t)layer->options->hidden, row_bytes = layer->options->row_bytes;
    weft_result result = WEFT_OK;
    for (int32_t i = 0; i < results->received->num_rows && result == WEFT_OK; i++) {
        const float scale =
            ep_answer_scale(&layer->routing->problem, results->received->rows[i], layer->rank);
        elements_to_fp32(kind, results->recv_x[0] + (size_t)i * row_bytes, hidden, y);
        ep_scale_row(kind, hidden, scale, y, y, row);
        result =
            weft_memory_copy(layer->comm, layer->recv_x[0] + (size_t)i * row_bytes, row, row_bytes);
    }
    return result;
}

static weft_result run_experts(struct ep_layer *layer, const struct ep_results *results)
{
    float *y = calloc((size_t)layer->options->hidden, sizeof *y);
    unsigned char *row = calloc(1, layer->options->row_bytes);
    const weft_result result =
        y && row ? answer_rows(layer, results, y, row) : LACKS_MEMORY("a row");
    free(y);
    free(row);
    return result;
}

/* Where dispatch has quantised them. */
static weft_result restore_rows(struct ep_layer *layer, const struct ep_results *results)
{
    const weft_result result = ep_layer_restore_rows(layer, results->counts.num_recv_tokens);
    return result == WEFT_OK ? weft_stream_synchronize(layer->stream) : result;
}

weft_result ep_pass(struct ep_layer *layer, struct ep_results *results)
{
    struct output outputs[NUM_OUTPUTS];
    list_outputs(results, layer, outputs);
    TRY(spoil_outputs(layer, outputs));
    TRY(run(layer, EP_LAYOUT));
    TRY(run_notify(layer, results));
    TRY(run(layer, EP_DISPATCH));
    TRY(restore_rows(layer, results));
    TRY(weft_ep_check(layer->handle, NULL));
    TRY(fetch(layer, outputs, OUT));
    if (!ep_op_parts(EP_COMBINE, layer->options))
        return WEFT_OK;
    TRY(run_experts(layer, results));
    TRY(run(layer, EP_COMBINE));
    return fetch(layer, &outputs[OUT], 1);
}

void ep_scale_row(weft_dtype kind, size_t hidden, float scale, const float *x, float *y, void *row)
{
    for (size_t h = 0; h < hidden; h++)
        y[h] = x[h] * scale;
    elements_from_fp32(kind, y, hidden, row);
    elements_to_fp32(kind, row, hidden, y);
}
