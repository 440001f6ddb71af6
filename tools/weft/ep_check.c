/* SPDX-License-Identifier: MIT */
#include "ep_check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ep_verify.h"
#include "workload/failure.h"
#include "workload/of_ranks.h"
#include "workload/try.h"

static weft_result verifier_open(struct ep_verifier *verifier, struct ep_layer *layer,
                                 struct ep_tally tallies[EP_NUM_OPS])
{
    const struct ep_problem *problem = &layer->routing->problem;
    size_t hidden = (size_t)layer->options->hidden;
    *verifier = (struct ep_verifier){
        .layer = layer,
        .tallies = tallies,
        .received_memory = calloc(1, ep_received_bytes(problem)),
        .row = calloc(1, layer->options->row_bytes),
        .x = calloc(hidden, sizeof(float)),
        .sum = calloc(hidden, sizeof(float)),
        .scratch = calloc(2 * hidden, sizeof(float)),
    };
    if (!verifier->received_memory || !verifier->row || !verifier->x || !verifier->sum ||
        !verifier->scratch)
        return LACKS_MEMORY("the check of what arrives");
    ep_oracle_receive(problem, layer->rank, verifier->received_memory, &verifier->received);
    return ep_results_open(&verifier->results, layer, verifier->received.num_rows);
}

static void verifier_close(struct ep_verifier *verifier)
{
    ep_results_close(&verifier->results);
    free(verifier->received_memory);
    free(verifier->row);
    free(verifier->x);
    free(verifier->sum);
    free(verifier->scratch);
}

void ep_tally_row(struct ep_verifier *verifier, enum ep_op op, int is_equal, const char *format,
                  ...)
{
    struct ep_tally *of_op = &verifier->tallies[op];
    of_op->checked_rows++;
    if (is_equal || of_op->errors++ > 0)
        return;
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "weft ep: rank %d: check of %s: first difference: %s\n", verifier->layer->rank,
            ep_op_names[op], text);
}

static weft_result verify(struct ep_verifier *verifier)
{
    const struct ep_options *options = verifier->layer->options;
    if (options->mode == EP_MODE_LOW_LATENCY)
        return ep_ll_verify(verifier);
    ep_verify_layout(verifier);
    ep_verify_notify(verifier);
    ep_verify_dispatch(verifier);
    if (ep_op_exists(EP_COMBINE, options))
        ep_verify_combine(verifier);
    return WEFT_OK;
}

/* Over ranks, and over operations into the layer. */
static weft_result add_tallies(const struct ep_layer *layer, struct ep_tally own[EP_NUM_OPS],
                               struct ep_tally tallies[EP_NUM_OPS])
{
    TRY(sum_of_ranks(layer->comm, (int64_t *)own, 2 * (size_t)EP_NUM_OPS));
    for (int op = 0; op < EP_NUM_OPS; op++) {
        struct ep_tally *sums[] = {&tallies[op], &tallies[ep_whole_layer(layer->options)]};
        for (int s = 0; s < 2; s++) {
            sums[s]->checked_rows += own[op].checked_rows;
            sums[s]->errors += own[op].errors;
        }
    }
    return WEFT_OK;
}

weft_result ep_check(struct ep_layer *layer, struct ep_tally tallies[EP_NUM_OPS])
{
    struct ep_verifier verifier;
    struct ep_tally own[EP_NUM_OPS] = {{0, 0}};
    weft_result result = verifier_open(&verifier, layer, own);
    if (result == WEFT_OK && layer->options->mode == EP_MODE_NORMAL)
        result = ep_pass(layer, &verifier.results);
    if (result == WEFT_OK)
        result = verify(&verifier);
    if (result == WEFT_OK)
        result = add_tallies(layer, own, tallies);
    verifier_close(&verifier);
    return result;
}
