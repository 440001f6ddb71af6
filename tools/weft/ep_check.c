/* SPDX-License-Identifier: MIT */
#include "ep_check.h"

#include <stdlib.h>
#include <string.h>

#include "ep_verify.h"

static weft_result verify(struct ep_verifier *verifier)
{
    const struct ep_options *options = verifier->layer->options;
    if (ep_verify_layout(verifier) != 0 || ep_verify_notify(verifier) != 0)
        return WEFT_ERROR_OUT_OF_MEMORY;
    ep_verify_dispatch(verifier);
    if (ep_op_exists(EP_COMBINE, options))
        ep_verify_combine(verifier);
    if (options->check == EP_CHECK_FULL &&
        weft_comm_machine(verifier->layer->comm) != WEFT_MACHINE_CPU)
        return ep_verify_machine(verifier);
    return WEFT_OK;
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
    memset(tallies, 0, EP_NUM_OPS * sizeof *tallies);
    weft_result result = ep_verifier_open(&verifier, layer, tallies);
    if (result == WEFT_OK)
        result = ep_pass(layer, &verifier.results);
    if (result == WEFT_OK)
        result = verify(&verifier);
    if (result == WEFT_OK)
        result = sum_tallies(layer->comm, tallies);
    ep_verifier_close(&verifier);
    return result;
}
