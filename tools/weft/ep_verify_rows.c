/* SPDX-License-Identifier: MIT */
/* What dispatch must deliver, and what combine must sum. */
#include <string.h>

#include "ep_ll.h"
#include "ep_pass.h"
#include "ep_verify.h"
#include "workload/convert.h"
#include "workload/node_sums.h"
#include "workload/quantised.h"
#include "workload/rng.h"

enum { SAMPLE_ROWS = 64 };

int64_t ep_sample_size(const struct ep_verifier *verifier, int64_t num_rows)
{
    int is_full = verifier->layer->options->check == EP_CHECK_FULL || num_rows < SAMPLE_ROWS;
    return is_full ? num_rows : SAMPLE_ROWS;
}

/* Member `index` of the sample of 0..num_rows-1: one of each of sample_size equal parts. */
int64_t ep_sample_row(const struct ep_verifier *verifier, int64_t num_rows, int64_t index)
{
    int64_t size = ep_sample_size(verifier, num_rows);
    int64_t begin = num_rows * index / size, end = num_rows * (index + 1) / size;
    uint64_t random = rng_key(verifier->layer->options->seed, (uint64_t)index);
    return begin + (int64_t)(random % (uint64_t)(end - begin));
}

static int32_t source_of(const struct ep_routing *routing, int64_t token)
{
    int32_t source = 0;
    while (token >= routing->first_tokens[source + 1])
        source++;
    return source;
}

/* Local ids and weights of one received row. */
static int topk_is_equal(const struct ep_verifier *verifier, int64_t row, int64_t token)
{
    const struct ep_layer *layer = verifier->layer;
    const struct ep_routing *routing = layer->routing;
    int32_t num_topk = routing->num_topk;
    const int32_t *topk_idx = ep_routing_topk_idx(routing, token);
    const float *topk_weights = ep_routing_topk_weights(routing, token);
    const int32_t *recv_idx = verifier->results.recv_topk_idx + row * num_topk;
    const float *recv_weights = verifier->results.recv_topk_weights + row * num_topk;
    int32_t first_expert = ep_routing_first_expert(routing, layer->rank);
    for (int32_t k = 0; k < num_topk; k++) {
        int is_local = routing->expert_rank[topk_idx[k]] == layer->rank;
        int32_t expected_idx = is_local ? topk_idx[k] - first_expert : -1;
        float expected_weight = is_local ? topk_weights[k] : 0;
        if (recv_idx[k] != expected_idx || fp32_bits(recv_weights[k]) != fp32_bits(expected_weight))
            return 0;
    }
    return 1;
}

/* What the row stands for when it has been quantised. */
static void quantise_row(struct ep_verifier *verifier, unsigned char *row)
{
    const struct ep_options *options = verifier->layer->options;
    const weft_rows_args args = ep_ll_rows_args(options);
    const struct quantised_form form = {options->kind, args.narrow_dtype, args.scale,
                                        args.group_elements, sizeof(float)};
    char *codes = (char *)verifier->scratch, *scales = codes + options->hidden;
    quantised_make_row(&form, row, options->hidden, codes, scales);
    for (int64_t h = 0; h < options->hidden; h++)
        element_store(options->kind, row, h, quantised_number(&form, codes, scales, h));
}

/* The row of a token as experts get it. */
static void fill_row(struct ep_verifier *verifier, int64_t token, unsigned char *row)
{
    const struct ep_layer *layer = verifier->layer;
    const struct payload payload = ep_layer_payload(layer);
    payload_fill_row(&payload, token, 0, row, layer->options->row_bytes);
    if (layer->options->row_format != EP_ROW_FORMAT_DTYPE)
        quantise_row(verifier, row);
}

static void verify_recv_row(struct ep_verifier *verifier, int64_t row)
{
    const struct ep_layer *layer = verifier->layer;
    size_t row_bytes = layer->options->row_bytes;
    int64_t token = verifier->recv_tokens[row];
    int32_t source = source_of(layer->routing, token);
    int64_t source_token = token - layer->routing->first_tokens[source];
    fill_row(verifier, token, verifier->row);
    const char *difference = NULL;
    if (memcmp(verifier->results.recv_x + (size_t)row * row_bytes, verifier->row, row_bytes) != 0)
        difference = "payload";
    else if (!topk_is_equal(verifier, row, token))
        difference = "topk_idx or topk_weights";
    else if (verifier->results.recv_src_token[row] != source_token)
        difference = "src_token";
    ep_tally_row(verifier, EP_DISPATCH, !difference, "%s of row %lld (token %lld of rank %d)",
                 difference ? difference : "", (long long)row, (long long)source_token, source);
}

void ep_verify_dispatch(struct ep_verifier *verifier)
{
    const struct ep_layer *layer = verifier->layer;
    int64_t num_sampled = ep_sample_size(verifier, verifier->num_recv);
    for (int64_t i = 0; i < num_sampled; i++)
        verify_recv_row(verifier, ep_sample_row(verifier, verifier->num_recv, i));
    int64_t num_topk = layer->options->num_topk;
    int is_equal = 1;
    for (int64_t i = verifier->num_recv * num_topk; i < layer->capacity * num_topk; i++)
        is_equal &= verifier->results.recv_topk_idx[i] == -1;
    if (!is_equal)
        ep_tally_row(verifier, EP_DISPATCH, 0, "topk_idx is not -1 after the last row");
}

struct answering {
    struct ep_verifier *verifier;
    int64_t token;
};

/* What a rank answers: the token's row, scaled by all its experts at once, as a row of the payload's format. */
static int read_answer(void *of, int32_t rank, float *values)
{
    const struct answering *answering = of;
    struct ep_verifier *verifier = answering->verifier;
    const struct ep_options *options = verifier->layer->options;
    const struct ep_routing *routing = verifier->layer->routing;
    const int32_t *topk_idx = ep_routing_topk_idx(routing, answering->token);
    const float *topk_weights = ep_routing_topk_weights(routing, answering->token);
    float scale = 0;
    int answers = 0;
    for (int32_t k = 0; k < routing->num_topk; k++)
        if (routing->expert_rank[topk_idx[k]] == rank) {
            scale += topk_weights[k] * ep_expert_factor(topk_idx[k]);
            answers = 1;
        }
    if (answers)
        ep_scale_row(options->kind, (size_t)options->hidden, scale, verifier->x, values,
                     verifier->row);
    return answers;
}

/* The rows of the token on all ranks that had it, summed as combine documents. */
static void combine_token(struct ep_verifier *verifier, int64_t token)
{
    const struct ep_layer *layer = verifier->layer;
    const size_t hidden = (size_t)layer->options->hidden;
    struct answering answering = {verifier, token};
    const struct node_sums sums = {.num_ranks = layer->num_ranks,
                                   .num_nodes = layer->num_nodes,
                                   .node_of_rank = verifier->nodes,
                                   .num_values = (int64_t)hidden,
                                   .dtype = layer->options->kind,
                                   .wire = ep_wire_dtype(layer->options),
                                   .read = read_answer,
                                   .of = &answering};
    fill_row(verifier, token, verifier->row);
    elements_to_fp32(layer->options->kind, verifier->row, hidden, verifier->x);
    memset(verifier->sum, 0, hidden * sizeof(float));
    node_sums_add(&sums, verifier->sum, verifier->scratch);
    elements_from_fp32(layer->options->kind, verifier->sum, hidden, verifier->row);
}

void ep_verify_combine(struct ep_verifier *verifier)
{
    const struct ep_layer *layer = verifier->layer;
    size_t row_bytes = layer->options->row_bytes;
    int64_t num_sampled = ep_sample_size(verifier, layer->num_tokens);
    for (int64_t i = 0; i < num_sampled; i++) {
        int64_t own_token = ep_sample_row(verifier, layer->num_tokens, i);
        const unsigned char *out = verifier->results.out + (size_t)own_token * row_bytes;
        combine_token(verifier, layer->routing->first_tokens[layer->rank] + own_token);
        ep_tally_row(verifier, EP_COMBINE, memcmp(out, verifier->row, row_bytes) == 0,
                     "row of token %lld", (long long)own_token);
    }
}
