/* SPDX-License-Identifier: MIT */
#include "ep_network.h"

#include <stdlib.h>
#include <string.h>

/* What one rank has sent. */
struct sent {
    uint64_t bytes[EP_NUM_OPS];
    int64_t num_relayed_tokens;
};

/* After the quiet all is counted that the operation has sent, its last credits too. */
static weft_result count_bytes(struct ep_layer *layer, enum ep_op op, uint64_t *bytes)
{
    weft_net_info before = WEFT_INIT(weft_net_info), after = WEFT_INIT(weft_net_info);
    weft_result result = weft_net_query(layer->comm, &before);
    if (result == WEFT_OK)
        result = ep_layer_enqueue(layer, op);
    if (result == WEFT_OK)
        result = weft_rma_quiet(layer->comm, layer->stream);
    if (result == WEFT_OK)
        result = weft_stream_synchronize(layer->stream);
    if (result == WEFT_OK)
        result = weft_host_barrier(layer->comm);
    if (result == WEFT_OK)
        result = weft_net_query(layer->comm, &after);
    if (result == WEFT_OK)
        *bytes = after.sent_bytes - before.sent_bytes;
    return result;
}

static weft_result count(struct ep_layer *layer, struct sent *sent)
{
    weft_ep_counts counts = WEFT_INIT(weft_ep_counts);
    weft_result result = WEFT_OK;
    for (int op = 0; op < EP_NUM_OPS && result == WEFT_OK; op++)
        if (ep_op_exists((enum ep_op)op, layer->options))
            result = count_bytes(layer, (enum ep_op)op, &sent->bytes[op]);
    if (result == WEFT_OK)
        result = weft_ep_wait_counts(layer->handle, &counts);
    if (result == WEFT_OK)
        sent->num_relayed_tokens = counts.num_relayed_tokens;
    return result;
}

/* A rank relays a sum in combine for each token that it relays in dispatch. */
static int64_t rows_of(enum ep_op op, const struct ep_options *options, int64_t num_relayed_tokens)
{
    switch (op) {
    case EP_DISPATCH:
    case EP_COMBINE:
        return num_relayed_tokens;
    case EP_LAYER:
        return num_relayed_tokens * (1 + ep_op_exists(EP_COMBINE, options));
    default:
        return 0;
    }
}

static void add(struct ep_network *network, const struct ep_options *options,
                const struct sent *sent)
{
    for (int op = 0; op < EP_NUM_OPS; op++) {
        network->bytes[op] += sent->bytes[op];
        if (sent->bytes[op] > network->of_rank[op])
            network->of_rank[op] = sent->bytes[op];
        network->num_rows[op] += rows_of((enum ep_op)op, options, sent->num_relayed_tokens);
    }
}

weft_result ep_network_measure(struct ep_layer *layer, struct ep_network *network)
{
    struct sent own = {{0}, 0};
    weft_net_info info = WEFT_INIT(weft_net_info);
    *network = (struct ep_network){.engine = ""};
    weft_result result = weft_net_query(layer->comm, &info);
    if (result != WEFT_OK || layer->num_nodes == 1)
        return result;
    memcpy(network->engine, info.engine, sizeof network->engine);
    struct sent *all = calloc((size_t)layer->num_ranks, sizeof *all);
    if (!all)
        return WEFT_ERROR_OUT_OF_MEMORY;
    result = count(layer, &own);
    if (result == WEFT_OK)
        result = weft_host_all_gather(layer->comm, &own, sizeof own, all);
    for (int32_t rank = 0; rank < layer->num_ranks && result == WEFT_OK; rank++)
        add(network, layer->options, &all[rank]);
    free(all);
    return result;
}
