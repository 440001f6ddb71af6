/* SPDX-License-Identifier: MIT */
#include "ep_verify.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static int64_t collect_recv_tokens(struct ep_verifier *verifier)
{
    const struct ep_routing *routing = verifier->layer->routing;
    int64_t num_recv = 0;
    for (int64_t token = routing->loaded_begin; token < routing->loaded_end; token++)
        if (ep_routing_goes_to(routing, token, verifier->layer->rank))
            verifier->recv_tokens[num_recv++] = token;
    return num_recv;
}

weft_result ep_verifier_open(struct ep_verifier *verifier, const struct ep_layer *layer,
                             struct ep_tally tallies[EP_NUM_OPS])
{
    const struct ep_routing *routing = layer->routing;
    size_t num_tokens = (size_t)(routing->loaded_end - routing->loaded_begin);
    size_t hidden = (size_t)layer->options->hidden;
    *verifier = (struct ep_verifier){
        .layer = layer,
        .tallies = tallies,
        .recv_tokens = calloc(num_tokens + 1, sizeof(int64_t)),
        .row = calloc(1, layer->options->row_bytes),
        .x = calloc(hidden, sizeof(float)),
        .y = calloc(hidden, sizeof(float)),
        .partial = calloc(hidden, sizeof(float)),
        .sum = calloc(hidden, sizeof(float)),
    };
    if (!verifier->recv_tokens || !verifier->row || !verifier->x || !verifier->y ||
        !verifier->partial || !verifier->sum)
        return WEFT_ERROR_OUT_OF_MEMORY;
    verifier->num_recv = collect_recv_tokens(verifier);
    return ep_results_open(&verifier->results, layer, verifier->num_recv);
}

void ep_verifier_close(struct ep_verifier *verifier)
{
    ep_results_close(&verifier->results);
    free(verifier->recv_tokens);
    free(verifier->row);
    free(verifier->x);
    free(verifier->y);
    free(verifier->partial);
    free(verifier->sum);
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
