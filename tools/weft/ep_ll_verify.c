/* SPDX-License-Identifier: MIT */
/* A pass of low latency with experts, and whether its rows, counts and sums are what follows from the
 * routing. Rows are followed to the places where they must be. */
#include <stdlib.h>
#include <string.h>

#include "ep_ll.h"
#include "ep_verify.h"
#include "workload/convert.h"
#include "workload/try.h"

struct expected_row {
    int64_t token;
    int32_t source;
    int32_t idx;    /* by rank: in the source's slots; by expert: among the expert's rows */
    int32_t expert; /* by expert: its global number; else -1 */
};

struct pass {
    struct ep_verifier *verifier;
    struct ep_layer *layer;
    int64_t num_rows;
    struct expected_row *rows;
    weft_ll_slots slots; /* by rank */
    int32_t half;
    unsigned char *row;
};

static int is_by_expert(const struct pass *pass)
{
    return pass->layer->options->ll_layout == WEFT_LL_BY_EXPERT;
}

static int chooses(const struct ep_routing *routing, int64_t token, int32_t expert)
{
    const int32_t *topk_idx = ep_routing_topk_idx(routing, token);
    for (int32_t k = 0; k < routing->num_topk; k++)
        if (topk_idx[k] == expert)
            return 1;
    return 0;
}

/* Of a source if by rank, else of a local expert: appends its rows. */
static void list_rows_of(struct pass *pass, int32_t of)
{
    const struct ep_verifier *verifier = pass->verifier;
    const struct ep_routing *routing = pass->layer->routing;
    const int32_t expert =
        is_by_expert(pass) ? ep_routing_first_expert(routing, pass->layer->rank) + of : -1;
    int32_t source = 0, idx = 0;
    for (int64_t i = 0; i < verifier->num_recv; i++) {
        const int64_t token = verifier->recv_tokens[i];
        while (token >= routing->first_tokens[source + 1])
            source++;
        if (expert >= 0 ? chooses(routing, token, expert) : source == of)
            pass->rows[pass->num_rows++] = (struct expected_row){token, source, idx++, expert};
    }
}

static int list_rows(struct pass *pass)
{
    const struct ep_layer *layer = pass->layer;
    const int32_t num_lists = is_by_expert(pass) ? layer->ll.num_local_experts : layer->num_ranks;
    const size_t most = (size_t)pass->verifier->num_recv * (size_t)layer->options->num_topk;
    pass->rows = calloc(most + 1, sizeof *pass->rows);
    pass->row = calloc(1, layer->options->row_bytes + ep_ll_scale_bytes(layer->options));
    if (!pass->rows || !pass->row)
        return -1;
    for (int32_t of = 0; of < num_lists; of++)
        list_rows_of(pass, of);
    return 0;
}

/* Among [local experts][capacity], or [ranks][max tokens]. */
static int64_t place_of(const struct pass *pass, const struct expected_row *row)
{
    const struct ep_layer *layer = pass->layer;
    const int64_t list = row->expert >= 0
                             ? row->expert - ep_routing_first_expert(layer->routing, layer->rank)
                             : row->source;
    return list * layer->ll.capacity + row->idx;
}

static int is_quantised(const struct pass *pass)
{
    return pass->layer->options->row_format != EP_ROW_FORMAT_DTYPE;
}

static unsigned char *answer_at(const struct pass *pass, const struct expected_row *row)
{
    return pass->layer->ll.y + (size_t)place_of(pass, row) * pass->layer->options->row_bytes;
}

static uint64_t slot_offset(const struct pass *pass, const struct expected_row *row)
{
    return (uint64_t)row->source * pass->slots.source_stride_bytes +
           (uint64_t)row->idx * pass->slots.row_stride_bytes;
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

static weft_result spoil_row(const struct pass *pass, const struct expected_row *row)
{
    const struct ep_layer *layer = pass->layer;
    const size_t place = (size_t)place_of(pass, row);
    const size_t element_bytes = ep_ll_element_bytes(layer->options);
    const size_t scale_bytes = ep_ll_scale_bytes(layer->options);
    if (!is_by_expert(pass))
        return WEFT_OK; /* it is in a slot */
    const weft_result result = weft_memory_copy(layer->comm, layer->ll.rows + place * element_bytes,
                                                pass->row, element_bytes);
    return result != WEFT_OK || scale_bytes == 0
               ? result
               : weft_memory_copy(layer->comm, layer->ll.scales + place * scale_bytes, pass->row,
                                  scale_bytes);
}

static weft_result spoil(struct pass *pass)
{
    const int garbage = 0xa5;
    struct ep_layer *layer = pass->layer;
    const size_t row_bytes = layer->options->row_bytes;
    weft_result result = spoil_slots(pass);
    memset(pass->row, garbage, row_bytes);
    for (int64_t i = 0; i < pass->num_rows && result == WEFT_OK; i++)
        result = spoil_row(pass, &pass->rows[i]);
    for (int64_t t = 0; t < layer->num_tokens && result == WEFT_OK; t++)
        result =
            weft_memory_copy(layer->comm, layer->out + (size_t)t * row_bytes, pass->row, row_bytes);
    return result;
}

static weft_result dispatch(struct pass *pass)
{
    struct ep_layer *layer = pass->layer;
    TRY(ep_ll_dispatch(layer));
    TRY(weft_stream_synchronize(layer->stream));
    if (is_by_expert(pass))
        return WEFT_OK;
    TRY(weft_ll_query_slots(layer->ll.ll, &pass->slots));
    return weft_memory_copy(layer->comm, &pass->half, pass->slots.half, sizeof pass->half);
}

/* counts[i] must be how many rows `list` i has. */
static weft_result verify_counts(struct pass *pass, const char *what, const int32_t *counts,
                                 int32_t num_counts, const int32_t *expected)
{
    int32_t *seen = calloc((size_t)num_counts + 1, sizeof *seen);
    if (!seen)
        return WEFT_ERROR_OUT_OF_MEMORY;
    weft_result result = WEFT_OK;
    if (num_counts > 0)
        result =
            weft_memory_copy(pass->layer->comm, seen, counts, (size_t)num_counts * sizeof *seen);
    for (int32_t i = 0; i < num_counts && result == WEFT_OK; i++)
        ep_tally_row(pass->verifier, EP_LL_DISPATCH, seen[i] == expected[i],
                     "rows of %s %d: %d, expected %d", what, i, seen[i], expected[i]);
    free(seen);
    return result;
}

static weft_result verify_all_counts(struct pass *pass)
{
    const struct ep_verifier *verifier = pass->verifier;
    const struct ep_layer *layer = pass->layer;
    const struct ep_routing *routing = layer->routing;
    const int32_t first_expert = ep_routing_first_expert(routing, layer->rank);
    int32_t *per_rank = calloc((size_t)layer->num_ranks, sizeof *per_rank);
    int32_t *per_expert = calloc((size_t)layer->ll.num_local_experts + 1, sizeof *per_expert);
    weft_result result = WEFT_ERROR_OUT_OF_MEMORY;
    if (per_rank && per_expert) {
        for (int64_t i = 0, source = 0; i < verifier->num_recv; i++) {
            while (verifier->recv_tokens[i] >= routing->first_tokens[source + 1])
                source++;
            per_rank[source]++;
        }
        result = verify_counts(pass, "rank", layer->ll.rank_counts, layer->num_ranks, per_rank);
        for (int64_t i = 0; i < pass->num_rows && is_by_expert(pass); i++)
            per_expert[pass->rows[i].expert - first_expert]++;
        if (is_by_expert(pass) && result == WEFT_OK)
            result = verify_counts(pass, "expert", layer->ll.expert_counts,
                                   layer->ll.num_local_experts, per_expert);
    }
    free(per_rank);
    free(per_expert);
    return result;
}

/* What this rank's experts make of a row by rank, and whether its slot says so. */
static weft_result read_slot(struct pass *pass, const struct expected_row *row, int32_t *token,
                             float *scale, int *is_right)
{
    const struct ep_layer *layer = pass->layer;
    const struct ep_routing *routing = layer->routing;
    const uint64_t offset = slot_offset(pass, row);
    const char *experts_at = (const char *)pass->slots.experts[pass->half] + offset;
    const char *weights_at = (const char *)pass->slots.topk_weights[pass->half] + offset;
    const char *token_at = (const char *)pass->slots.src_token[pass->half] + offset;
    const int32_t num_topk = routing->num_topk;
    const int32_t first_expert = ep_routing_first_expert(routing, layer->rank);
    const int32_t *topk_idx = ep_routing_topk_idx(routing, row->token);
    const float *topk_weights = ep_routing_topk_weights(routing, row->token);
    int32_t experts[WEFT_MAX_TOPK];
    float weights[WEFT_MAX_TOPK];
    weft_result result = weft_memory_copy(layer->comm, experts, experts_at, (size_t)num_topk * 4);
    if (result == WEFT_OK)
        result = weft_memory_copy(layer->comm, weights, weights_at, (size_t)num_topk * 4);
    if (result == WEFT_OK)
        result = weft_memory_copy(layer->comm, token, token_at, sizeof *token);
    *scale = 0;
    for (int32_t k = 0; k < num_topk && result == WEFT_OK; k++) {
        const int is_local = routing->expert_rank[topk_idx[k]] == layer->rank;
        *is_right &= experts[k] == (is_local ? topk_idx[k] - first_expert : -1) &&
                     fp32_bits(weights[k]) == fp32_bits(is_local ? topk_weights[k] : 0);
        if (experts[k] >= 0)
            *scale += weights[k] * ep_expert_factor(first_expert + experts[k]);
    }
    return result;
}

/* Copies a row as it came, elements and then scales. */
static weft_result read_elements(struct pass *pass, const struct expected_row *row)
{
    const struct ep_layer *layer = pass->layer;
    const size_t element_bytes = ep_ll_element_bytes(layer->options);
    const size_t scale_bytes = ep_ll_scale_bytes(layer->options);
    const char *elements, *scales;
    if (is_by_expert(pass)) {
        elements = (char *)layer->ll.rows + (size_t)place_of(pass, row) * element_bytes;
        scales = (char *)layer->ll.scales + (size_t)place_of(pass, row) * scale_bytes;
    } else {
        elements = (const char *)pass->slots.x[pass->half] + slot_offset(pass, row);
        scales = (const char *)pass->slots.scales[pass->half] + slot_offset(pass, row);
    }
    const weft_result result = weft_memory_copy(layer->comm, pass->row, elements, element_bytes);
    return result != WEFT_OK || scale_bytes == 0
               ? result
               : weft_memory_copy(layer->comm, pass->row + element_bytes, scales, scale_bytes);
}

/* A row as it came; *scale is what its experts multiply it by. */
static weft_result read_row(struct pass *pass, const struct expected_row *row, float *scale,
                            int *is_right)
{
    const struct ep_layer *layer = pass->layer;
    int32_t token;
    weft_result result;
    *is_right = 1;
    if (is_by_expert(pass)) {
        *scale = ep_expert_factor(row->expert);
        result = weft_memory_copy(layer->comm, &token, &layer->ll.src_tokens[place_of(pass, row)],
                                  sizeof token);
    } else {
        result = read_slot(pass, row, &token, scale, is_right);
    }
    *is_right &= token == row->token - layer->routing->first_tokens[row->source];
    return result == WEFT_OK ? read_elements(pass, row) : result;
}

/* Whether elements and scales are those that the token must have. */
static int row_is_equal(const struct pass *pass, const struct expected_row *row)
{
    const struct ep_verifier *verifier = pass->verifier;
    const struct ep_options *options = pass->layer->options;
    const size_t element_bytes = ep_ll_element_bytes(options);
    const size_t scale_bytes = ep_ll_scale_bytes(options);
    const size_t idx = (size_t)(row->token - pass->layer->routing->loaded_begin);
    if (is_quantised(pass))
        return memcmp(pass->row, verifier->quantised.elements + idx * element_bytes,
                      element_bytes) == 0 &&
               memcmp(pass->row + element_bytes, verifier->quantised.scales + idx * scale_bytes,
                      scale_bytes) == 0;
    ep_verify_fill_row(verifier, row->token, verifier->row);
    return memcmp(pass->row, verifier->row, element_bytes) == 0;
}

static void verify_row(struct pass *pass, const struct expected_row *row, int is_right)
{
    ep_tally_row(pass->verifier, EP_LL_DISPATCH, is_right && row_is_equal(pass, row),
                 "%s %d of rank %d, expert %d (token %lld)",
                 is_right ? "payload of row" : "src_token, experts or weights of row", row->idx,
                 row->source, row->expert, (long long)row->token);
}

/* ---------------------------------------------------------------- experts and combine */

/* Verifies what came, and puts in its place what the experts make of it. */
static weft_result run_experts(struct pass *pass)
{
    struct ep_verifier *verifier = pass->verifier;
    const struct ep_options *options = pass->layer->options;
    const size_t hidden = (size_t)options->hidden;
    const int64_t num_sampled =
        is_quantised(pass) ? pass->num_rows : ep_sample_size(verifier, pass->num_rows);
    weft_result result = WEFT_OK;
    for (int64_t i = 0, sample = 0; i < pass->num_rows && result == WEFT_OK; i++) {
        const struct expected_row *row = &pass->rows[i];
        float scale;
        int is_right;
        result = read_row(pass, row, &scale, &is_right);
        if (result != WEFT_OK)
            return result;
        if (num_sampled == pass->num_rows ||
            (sample < num_sampled && i == ep_sample_row(verifier, pass->num_rows, sample))) {
            verify_row(pass, row, is_right);
            sample++;
        }
        if (is_quantised(pass)) /* and therefore compared with what this stands for */
            ep_verify_fill_row(verifier, row->token, pass->row);
        elements_to_fp32(options->kind, pass->row, hidden, verifier->y);
        ep_scale_row(options->kind, hidden, scale, verifier->y, verifier->y, pass->row);
        result = weft_memory_copy(pass->layer->comm, answer_at(pass, row), pass->row,
                                  options->row_bytes);
    }
    return result;
}

static weft_result combine(struct pass *pass)
{
    struct ep_layer *layer = pass->layer;
    TRY(ep_ll_combine(layer, EP_LL_LAYER));
    TRY(weft_stream_synchronize(layer->stream));
    TRY(weft_memory_copy(layer->comm, pass->verifier->results.out, layer->out,
                         (size_t)layer->num_tokens * layer->options->row_bytes));
    ep_verify_combine(pass->verifier, EP_LL_COMBINE);
    return WEFT_OK;
}

weft_result ep_ll_verify(struct ep_verifier *verifier)
{
    struct pass pass = {
        .verifier = verifier, .layer = verifier->layer, .slots = WEFT_INIT(weft_ll_slots)};
    weft_result result = list_rows(&pass) == 0 ? WEFT_OK : WEFT_ERROR_OUT_OF_MEMORY;
    if (result == WEFT_OK)
        result = spoil(&pass);
    if (result == WEFT_OK)
        result = dispatch(&pass);
    if (result == WEFT_OK)
        result = verify_all_counts(&pass);
    if (result == WEFT_OK)
        result = run_experts(&pass);
    if (result == WEFT_OK)
        result = combine(&pass);
    free(pass.rows);
    free(pass.row);
    return result;
}
