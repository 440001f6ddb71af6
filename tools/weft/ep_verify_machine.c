/* SPDX-License-Identifier: MIT */
/* The same pass on machine cpu: every byte must be the same. */
#include <string.h>

#include "ep_verify.h"

/* The rows of one output of both passes. */
struct rows {
    enum ep_op op;
    const char *name;
    const void *got, *expected;
    int64_t num_rows;
    size_t row_bytes;
};

static void compare_rows(struct ep_verifier *verifier, const struct rows *rows)
{
    const char *got = rows->got, *expected = rows->expected;
    for (int64_t row = 0; row < rows->num_rows; row++) {
        const size_t offset = (size_t)row * rows->row_bytes;
        ep_tally_row(verifier, rows->op,
                     memcmp(got + offset, expected + offset, rows->row_bytes) == 0,
                     "%s %lld is not that of machine cpu", rows->name, (long long)row);
    }
}

static void compare_counts(struct ep_verifier *verifier, const struct ep_results *expected)
{
    const struct ep_layer *layer = verifier->layer;
    const struct ep_results *got = &verifier->results;
    const struct rows all_rows[] = {
        {EP_LAYOUT, "tokens for rank", got->tokens_per_rank, expected->tokens_per_rank,
         layer->num_ranks, 4},
        {EP_LAYOUT, "tokens for node", got->tokens_per_node, expected->tokens_per_node,
         layer->num_nodes, 4},
        {EP_LAYOUT, "selections of expert", got->tokens_per_expert, expected->tokens_per_expert,
         layer->options->num_experts, 4},
        {EP_LAYOUT, "is_token_in_rank of token", got->is_token_in_rank, expected->is_token_in_rank,
         layer->num_tokens, (size_t)layer->num_ranks},
        {EP_NOTIFY, "num_recv_tokens", &got->num_recv_tokens, &expected->num_recv_tokens, 1, 4},
        {EP_NOTIFY, "num_local_experts", &got->num_local_experts, &expected->num_local_experts, 1,
         4},
        {EP_NOTIFY, "num_relayed_tokens", &got->num_relayed_tokens, &expected->num_relayed_tokens,
         1, 4},
        {EP_NOTIFY, "num_recv_per_rank", got->recv_per_rank, expected->recv_per_rank,
         layer->num_ranks, 4},
        {EP_NOTIFY, "num_recv_per_expert", got->recv_per_expert, expected->recv_per_expert,
         expected->num_local_experts, 4},
    };
    for (size_t i = 0; i < sizeof all_rows / sizeof *all_rows; i++)
        compare_rows(verifier, &all_rows[i]);
}

static void compare_payload(struct ep_verifier *verifier, const struct ep_results *expected)
{
    const struct ep_layer *layer = verifier->layer;
    const struct ep_results *got = &verifier->results;
    const size_t row_bytes = layer->options->row_bytes;
    const size_t topk_bytes = (size_t)layer->options->num_topk * 4;
    const int64_t num_out = ep_op_exists(EP_COMBINE, layer->options) ? layer->num_tokens : 0;
    const struct rows all_rows[] = {
        {EP_DISPATCH, "row", got->recv_x, expected->recv_x, got->num_recv, row_bytes},
        {EP_DISPATCH, "topk_idx of row", got->recv_topk_idx, expected->recv_topk_idx,
         layer->capacity, topk_bytes},
        {EP_DISPATCH, "topk_weights of row", got->recv_topk_weights, expected->recv_topk_weights,
         got->num_recv, topk_bytes},
        {EP_DISPATCH, "src_token of row", got->recv_src_token, expected->recv_src_token,
         got->num_recv, 4},
        {EP_COMBINE, "row of token", got->out, expected->out, num_out, row_bytes},
    };
    for (size_t i = 0; i < sizeof all_rows / sizeof *all_rows; i++)
        compare_rows(verifier, &all_rows[i]);
}

static weft_result run_on_cpu(const struct ep_verifier *verifier, weft_comm *comm,
                              struct ep_results *results)
{
    struct ep_layer layer;
    weft_result result =
        ep_layer_open(&layer, comm, verifier->layer->options, verifier->layer->routing);
    if (result == WEFT_OK)
        result = ep_results_open(results, &layer, verifier->num_recv);
    if (result == WEFT_OK)
        result = ep_pass(&layer, results);
    if (result != WEFT_OK)
        weft_comm_abort(comm);
    ep_layer_close(&layer);
    return result;
}

weft_result ep_verify_machine(struct ep_verifier *verifier)
{
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    struct ep_results expected = {0};
    weft_comm *comm;
    config.timeout_ms = (uint32_t)verifier->layer->options->timeout_ms;
    config.num_nodes = verifier->layer->num_nodes;
    config.machine = WEFT_MACHINE_CPU;
    weft_result result = weft_comm_create_from_env(&config, &comm);
    if (result != WEFT_OK)
        return result;
    result = run_on_cpu(verifier, comm, &expected);
    if (result == WEFT_OK) {
        compare_counts(verifier, &expected);
        compare_payload(verifier, &expected);
    }
    ep_results_close(&expected);
    weft_comm_destroy(comm);
    return result;
}
