/* SPDX-License-Identifier: MIT */
#include "ep_check.h"

#include <stdlib.h>
#include <string.h>

#include "ep_verify.h"

/* Earlier passes left the right results in every buffer. */
static void spoil_outputs(struct ep_layer *layer, int64_t num_recv)
{
    const int garbage = 0xa5;
    size_t num_tokens = (size_t)layer->num_tokens, num_ranks = (size_t)layer->num_ranks;
    size_t capacity = (size_t)layer->capacity, num_topk = (size_t)layer->options->num_topk;
    size_t row_bytes = layer->options->row_bytes;
    memset(layer->tokens_per_rank, garbage, num_ranks * sizeof(int32_t));
    memset(layer->tokens_per_node, garbage, (size_t)layer->num_nodes * sizeof(int32_t));
    memset(layer->tokens_per_expert, garbage,
           (size_t)layer->options->num_experts * sizeof(int32_t));
    memset(layer->is_token_in_rank, garbage, num_tokens * num_ranks);
    memset(layer->out, garbage, num_tokens * row_bytes);
    if (capacity == 0)
        return;
    memset(layer->recv_x, garbage, (size_t)num_recv * row_bytes);
    memset(layer->recv_topk_idx, garbage, capacity * num_topk * sizeof(int32_t));
    memset(layer->recv_topk_weights, garbage, capacity * num_topk * sizeof(float));
    memset(layer->recv_src_token, garbage, capacity * sizeof(int32_t));
}

static weft_result run(struct ep_layer *layer, enum ep_op op)
{
    weft_result result = ep_layer_enqueue(layer, op);
    return result == WEFT_OK ? weft_stream_synchronize(layer->stream) : result;
}

static weft_result check_ops(struct ep_verifier *verifier)
{
    struct ep_layer *layer = verifier->layer;
    weft_ep_counts counts;
    weft_result result = run(layer, EP_LAYOUT);
    if (result == WEFT_OK && ep_verify_layout(verifier) != 0)
        result = WEFT_ERROR_OUT_OF_MEMORY;
    if (result == WEFT_OK)
        result = run(layer, EP_NOTIFY);
    if (result == WEFT_OK)
        result = weft_ep_wait_counts(layer->handle, &counts);
    if (result == WEFT_OK && ep_verify_notify(verifier, &counts) != 0)
        result = WEFT_ERROR_OUT_OF_MEMORY;
    if (result == WEFT_OK)
        result = run(layer, EP_DISPATCH);
    if (result == WEFT_OK)
        result = weft_ep_check(layer->handle, NULL);
    if (result != WEFT_OK)
        return result;
    ep_verify_dispatch(verifier);
    if (!ep_op_exists(EP_COMBINE, layer->options))
        return WEFT_OK;
    ep_apply_experts(verifier);
    result = run(layer, EP_COMBINE);
    if (result == WEFT_OK)
        ep_verify_combine(verifier);
    return result;
}

/* Over ranks, and over operations into EP_LAYER. */
static weft_result sum_tallies(weft_comm *comm, struct ep_tally tallies[EP_NUM_OPS])
{
    const size_t bytes = EP_NUM_OPS * sizeof *tallies;
    size_t num_ranks = (size_t)weft_comm_num_ranks(comm);
    struct ep_tally *gathered = calloc(num_ranks, bytes);
    if (!gathered)
        return WEFT_ERROR_OUT_OF_MEMORY;
    weft_result result = weft_host_all_gather(comm, tallies, bytes, gathered);
    if (result == WEFT_OK)
        memset(tallies, 0, bytes);
    for (size_t i = 0; i < num_ranks * EP_NUM_OPS && result == WEFT_OK; i++) {
        struct ep_tally *sums[] = {&tallies[i % EP_NUM_OPS], &tallies[EP_LAYER]};
        for (int s = 0; s < 2; s++) {
            sums[s]->checked_rows += gathered[i].checked_rows;
            sums[s]->errors += gathered[i].errors;
        }
    }
    free(gathered);
    return result;
}

weft_result ep_check(struct ep_layer *layer, struct ep_tally tallies[EP_NUM_OPS])
{
    struct ep_verifier verifier;
    weft_result result = WEFT_ERROR_OUT_OF_MEMORY;
    memset(tallies, 0, EP_NUM_OPS * sizeof *tallies);
    if (ep_verifier_open(&verifier, layer, tallies) == 0) {
        spoil_outputs(layer, verifier.num_recv);
        /* No rank may dispatch into rows that their owner still spoils. */
        result = weft_host_barrier(layer->comm);
    }
    if (result == WEFT_OK)
        result = check_ops(&verifier);
    if (result == WEFT_OK)
        result = sum_tallies(layer->comm, tallies);
    ep_verifier_close(&verifier);
    return result;
}
