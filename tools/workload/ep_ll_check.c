/* SPDX-License-Identifier: MIT */
/* A pass of low latency with experts, and whether its rows, counts and sums are what follows from
 * the routing. Rows are followed to the places where they must be. */
#include <stdlib.h>
#include <string.h>

#include "workload/ep_check.h"
#include "workload/ep_ll.h"
#include "workload/failure.h"
#include "workload/low_latency_check.h"
#include "workload/try.h"

struct pass {
    struct ep_verifier *verifier;
    struct ep_layer *layer;
    struct ll_oracle oracle;
    struct ll_checker checker;
    unsigned char *row;
};

static int is_by_expert(const struct pass *pass)
{
    return pass->layer->options->ll_layout == WEFT_LL_BY_EXPERT;
}

/* ---------------------------------------------------------------- what is expected */

static void fill_token(const void *of, int64_t token, void *elements)
{
    const struct pass *pass = of;
    const struct payload payload = ep_layer_payload(pass->layer);
    payload_fill_row(&payload, token, 0, elements, pass->layer->options->row_bytes);
}

static void run_expert(const void *of, int32_t rank, int32_t local_expert, float *values,
                       int64_t num_values)
{
    const struct pass *pass = of;
    const float factor =
        ep_expert_factor(ep_routing_first_expert(pass->layer->routing, rank) + local_expert);
    for (int64_t i = 0; i < num_values; i++)
        values[i] *= factor;
}

static void fill_oracle(struct ll_oracle *oracle, const struct ep_problem *problem)
{
    for (int32_t rank = 0; rank < problem->num_ranks; rank++) {
        oracle->nodes[rank] = problem->nodes[rank];
        for (int32_t i = 0; i < ep_oracle_num_tokens(problem, rank); i++)
            for (int32_t k = 0; k < problem->num_topk; k++) {
                const struct ep_token token = {rank, i};
                const struct ep_choice choice = ep_oracle_choice(problem, token, k);
                ll_oracle_choices(oracle, ep_oracle_number(problem, token))[k] =
                    (struct ll_choice){choice.rank, choice.local_expert, choice.weight};
            }
    }
    ll_oracle_settle(oracle);
}

static weft_result open_oracle(struct pass *pass)
{
    const struct ep_layer *layer = pass->layer;
    const struct ep_routing *routing = layer->routing;
    const struct ll_content content = {fill_token, run_expert, pass};
    weft_ll_config config = ep_ll_config(layer->options);
    int32_t *num_tokens = calloc((size_t)layer->num_ranks, sizeof *num_tokens);
    const struct ll_world world = {layer->rank, layer->num_ranks,
                                   routing->num_experts / layer->num_ranks + 1, num_tokens};
    int result = -1;
    config.expert_capacity = is_by_expert(pass) ? layer->ll.capacity : 0;
    for (int32_t rank = 0; rank < layer->num_ranks && num_tokens; rank++)
        num_tokens[rank] = ep_oracle_num_tokens(&routing->problem, rank);
    if (num_tokens)
        result = ll_oracle_open(&pass->oracle, &config, &world, &content);
    if (result == 0)
        fill_oracle(&pass->oracle, &routing->problem);
    free(num_tokens);
    return result == 0 ? WEFT_OK : LACKS_MEMORY("what is expected");
}

/* ---------------------------------------------------------------- dispatch */

/* Slots cannot be written, so they are filled with rows of another payload. */
static weft_result spoil_slots(struct pass *pass)
{
    enum { NUM_RESULTS = 2 };
    struct ep_layer *layer = pass->layer;
    const struct payload payload = ep_layer_payload(layer);
    const struct payload other = {payload.seed + 1, payload.dtype};
    weft_result result = ep_layer_fill_x(layer, &other);
    for (int i = 0; i < NUM_RESULTS && result == WEFT_OK; i++) {
        result = ep_ll_dispatch(layer);
        if (result == WEFT_OK)
            result = weft_ll_release(layer->ll.ll, layer->stream);
    }
    if (result == WEFT_OK)
        result = weft_stream_synchronize(layer->stream);
    return result == WEFT_OK ? ep_layer_fill_x(layer, &payload) : result;
}

static weft_result spoil_row(const struct pass *pass, size_t place)
{
    const struct ep_layer *layer = pass->layer;
    const size_t element_bytes = ep_ll_element_bytes(layer->options);
    const size_t scale_bytes = ep_ll_scale_bytes(layer->options);
    TRY(weft_memory_copy(layer->comm, layer->ll.rows + place * element_bytes, pass->row,
                         element_bytes));
    return scale_bytes == 0 ? WEFT_OK
                            : weft_memory_copy(layer->comm, layer->ll.scales + place * scale_bytes,
                                               pass->row, scale_bytes);
}

static weft_result spoil(struct pass *pass)
{
    const int garbage = 0xa5;
    struct ep_layer *layer = pass->layer;
    const size_t row_bytes = layer->options->row_bytes;
    TRY(spoil_slots(pass));
    memset(pass->row, garbage, row_bytes);
    for (int64_t i = 0; i < pass->oracle.num_rows && is_by_expert(pass); i++)
        TRY(spoil_row(pass, (size_t)ll_oracle_place(&pass->oracle, &pass->oracle.rows[i])));
    for (int64_t t = 0; t < layer->num_tokens; t++)
        TRY(weft_memory_copy(layer->comm, layer->out + (size_t)t * row_bytes, pass->row,
                             row_bytes));
    return WEFT_OK;
}

static weft_result read(void *of, void *dst, const void *src, size_t num_bytes)
{
    const struct pass *pass = of;
    return weft_memory_copy(pass->layer->comm, dst, src, num_bytes);
}

static void tell(void *of, int is_right, const char *text)
{
    const struct pass *pass = of;
    ep_tally_row(pass->verifier, EP_LL_DISPATCH, is_right, "%s", text);
}

static weft_result dispatch(struct pass *pass)
{
    struct ep_layer *layer = pass->layer;
    struct ll_received *received = &pass->checker.received;
    received->rank_counts = layer->ll.rank_counts;
    TRY(ep_ll_dispatch(layer));
    TRY(weft_stream_synchronize(layer->stream));
    if (is_by_expert(pass)) {
        received->expert_counts = layer->ll.expert_counts;
        received->src_tokens = layer->ll.src_tokens;
        received->ranges = layer->ll.ranges;
        received->rows = layer->ll.rows;
        received->scales = layer->ll.scales;
        return WEFT_OK;
    }
    received->slots = (weft_ll_slots)WEFT_INIT(weft_ll_slots);
    TRY(weft_ll_query_slots(layer->ll.ll, &received->slots));
    return weft_memory_copy(layer->comm, &received->half, received->slots.half,
                            sizeof received->half);
}

/* ---------------------------------------------------------------- experts and combine */

/* Verifies what came, and puts in its place what the experts make of it. */
static weft_result run_experts(struct pass *pass)
{
    const struct ep_layer *layer = pass->layer;
    const size_t row_bytes = layer->options->row_bytes;
    TRY(ll_check_counts(&pass->checker));
    for (int64_t i = 0; i < pass->oracle.num_rows; i++) {
        const struct ll_row *row = &pass->oracle.rows[i];
        const size_t place = (size_t)ll_oracle_place(&pass->oracle, row);
        char *answer = ep_ll_fills_slots(layer) ? ll_slot_of(&pass->checker.received, row)
                                                : (char *)layer->ll.y + place * row_bytes;
        TRY(ll_check_row(&pass->checker, row));
        ll_oracle_fill_answer(&pass->oracle, row, pass->row);
        TRY(weft_memory_copy(layer->comm, answer, pass->row, row_bytes));
    }
    return WEFT_OK;
}

static void verify_sums(struct pass *pass)
{
    const struct ep_layer *layer = pass->layer;
    const size_t row_bytes = layer->options->row_bytes;
    const int64_t num_sampled = ep_sample_size(pass->verifier, layer->num_tokens);
    for (int64_t i = 0; i < num_sampled; i++) {
        const int64_t token = ep_sample_row(pass->verifier, layer->num_tokens, i);
        const unsigned char *out = pass->verifier->results.out + (size_t)token * row_bytes;
        ll_oracle_fill_combined(&pass->oracle, layer->routing->first_tokens[layer->rank] + token,
                                pass->row);
        ep_tally_row(pass->verifier, EP_LL_COMBINE, memcmp(out, pass->row, row_bytes) == 0,
                     "row of token %lld", (long long)token);
    }
}

static weft_result combine(struct pass *pass)
{
    struct ep_layer *layer = pass->layer;
    TRY(ep_ll_combine(layer, EP_LL_END));
    TRY(weft_stream_synchronize(layer->stream));
    TRY(weft_memory_copy(layer->comm, pass->verifier->results.out, layer->out,
                         (size_t)layer->num_tokens * layer->options->row_bytes));
    verify_sums(pass);
    return WEFT_OK;
}

static weft_result run_pass(struct pass *pass)
{
    TRY(open_oracle(pass));
    TRY(spoil(pass));
    TRY(dispatch(pass));
    TRY(run_experts(pass));
    return combine(pass);
}

weft_result ep_ll_verify(struct ep_verifier *verifier)
{
    struct ep_layer *layer = verifier->layer;
    struct pass pass = {
        .verifier = verifier,
        .layer = layer,
        .row = calloc(1, layer->options->row_bytes + ep_ll_scale_bytes(layer->options))};
    pass.checker = (struct ll_checker){.oracle = &pass.oracle,
                                       .num_local = layer->ll.num_local_experts,
                                       .read = read,
                                       .tell = tell,
                                       .of = &pass};
    const weft_result result = pass.row ? run_pass(&pass) : LACKS_MEMORY("a row");
    ll_oracle_close(&pass.oracle);
    free(pass.row);
    return result;
}
