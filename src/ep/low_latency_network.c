/* SPDX-License-Identifier: MIT */
/* How a weft_ll reaches the ranks of other nodes: whom, and its memory of the network. */
#include <stdlib.h>

#include "ep/low_latency.h"

static int is_remote(const weft_comm *comm, int32_t rank)
{
    return comm->topology.node_of_rank[rank] != comm->topology.node_of_rank[comm->rank];
}

static int32_t count_remote(const weft_comm *comm)
{
    int32_t num_remote = 0;
    for (int32_t rank = 0; rank < comm->num_ranks; rank++)
        num_remote += is_remote(comm, rank);
    return num_remote;
}

/* On any rank. */
static int32_t most_remote(const weft_comm *comm)
{
    int32_t most = 0;
    for (int32_t rank = 0; rank < comm->num_ranks; rank++) {
        int32_t num_remote = 0;
        for (int32_t other = 0; other < comm->num_ranks; other++)
            num_remote += comm->topology.node_of_rank[other] != comm->topology.node_of_rank[rank];
        most = num_remote > most ? num_remote : most;
    }
    return most;
}

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* The ranks of the smallest node. */
static int32_t least_local(const weft_comm *comm)
{
    int32_t smallest = comm->num_ranks;
    for (int32_t node = 0; node < comm->topology.num_nodes; node++) {
        int32_t size = 0;
        for (int32_t rank = 0; rank < comm->num_ranks; rank++)
            size += comm->topology.node_of_rank[rank] == node;
        smallest = least(smallest, size);
    }
    return smallest;
}

static int32_t most_local(const weft_comm *comm)
{
    int32_t largest = 0;
    for (int32_t rank = 0; rank < comm->num_ranks; rank++)
        if (comm->topology.local_of_rank[rank] >= largest)
            largest = comm->topology.local_of_rank[rank] + 1;
    return largest;
}

struct wp_ll_message weft__ll_plan_message(const weft_comm *comm, const weft_ll_config *config,
                                           const struct wp_ll_plan *plan)
{
    const uint64_t num_local = (uint64_t)most_local(comm);
    const uint64_t num_counts = plan->is_by_expert ? (uint64_t)plan->max_local_experts : 0;
    struct wp_ll_message message = {0};
    if (!plan->has_nodes || config->route != WEFT_LL_RELAYED)
        return message;
    message.num_nodes = comm->topology.num_nodes;
    message.node_sources = (most_local(comm) + least_local(comm) - 1) / least_local(comm);
    message.num_sources = (message.num_nodes - 1) * message.node_sources;
    message.row_ranks = least(plan->num_topk, most_local(comm));
    message.ranges_offset = wp_ll_align(num_local * num_counts * sizeof(int32_t));
    message.rows_offset =
        wp_ll_align(message.ranges_offset + num_local * sizeof(struct wp_ll_range));
    message.row_bytes =
        wp_ll_align(plan->slot.bytes + (uint64_t)plan->num_topk * sizeof(struct wp_ll_target));
    message.bytes = message.rows_offset + (uint64_t)plan->block_tokens * message.row_bytes;
    return message;
}

struct wp_ll_network weft__ll_plan_network(const weft_comm *comm, const struct wp_ll_plan *plan,
                                           uint64_t *bytes)
{
    const int32_t num_tokens = plan->block_tokens, num_topk = plan->num_topk;
    const uint64_t blocks = (uint64_t)plan->num_buffers * (uint64_t)plan->num_blocks;
    const int32_t most = most_remote(comm); /* all ranks have as much memory */
    struct wp_ll_network network = {.num_remote = count_remote(comm)};
    *bytes = 0;
    if (!plan->has_nodes)
        return network;
    while (plan->max_tokens >> network.range_bits > 0)
        network.range_bits++;
    const uint64_t messages_bytes = /* of a block; the next as well */
        plan->message.bytes *
        (uint64_t)(plan->message.num_sources > 0 ? plan->message.num_nodes - 1 : 0);
    if (plan->answer_slots.rank_stride > 0) { /* masks */
        network.staged_rank_rows = num_tokens;
        network.staged_rows = num_tokens * most;
    } else if (plan->message.num_sources == 0)
        network.staged_rows =
            num_tokens * (plan->answers_are_rows ? num_topk : least(num_topk, most));
    const uint64_t rows_bytes = (uint64_t)network.staged_rows * plan->slot.bytes;
    network.staged_answers = num_tokens * (plan->answers_are_rows ? num_topk : 1);
    const int partners_sum = wp_ll_has_node_sums(plan);
    network.num_answered = partners_sum ? plan->message.num_sources : network.num_remote;
    const int32_t most_answered = partners_sum ? plan->message.num_sources : most;
    const struct wp_ll_offsets area = wp_ll_offsets_of(plan, comm->num_ranks);
    network.heads_offset = wp_ll_network_words_bytes(plan, comm->num_ranks);
    network.rows_offset = network.heads_offset + 2 * (area.rows - area.heads); /* from, and to */
    network.messages_offset = network.rows_offset + wp_ll_align(blocks * rows_bytes);
    network.answers_offset = network.messages_offset + wp_ll_align(blocks * messages_bytes);
    *bytes =
        network.answers_offset + wp_ll_align(blocks * (uint64_t)most_answered *
                                             (uint64_t)network.staged_answers * plan->answer_bytes);
    return network;
}

/* [2][num_ranks]: the ranks, those of other nodes first and the next first, and where each is. */
static void list_ranks(const weft_comm *comm, int32_t *ranks)
{
    int32_t *idx_of_rank = ranks + comm->num_ranks;
    int32_t num_listed = 0;
    for (int listed_remote = 1; listed_remote >= 0; listed_remote--)
        for (int32_t i = 0; i < comm->num_ranks; i++) {
            const int32_t rank = (comm->rank + i) % comm->num_ranks;
            if (is_remote(comm, rank) != listed_remote)
                continue;
            idx_of_rank[rank] = num_listed;
            ranks[num_listed++] = rank;
        }
}

static weft_result upload_ranks(weft_ll *ll)
{
    weft_comm *comm = ll->ep->comm;
    const size_t bytes = 2 * (size_t)comm->num_ranks * sizeof(int32_t);
    int32_t *ranks = malloc(bytes);
    WEFT__CHECK_MEMORY(ranks, "no memory for %d ranks", comm->num_ranks);
    list_ranks(comm, ranks);
    const weft_result result = weft__machine_duplicate(comm, ranks, bytes, &ll->ranks);
    free(ranks);
    ll->device.network.ranks = ll->ranks;
    ll->device.network.idx_of_rank = ll->device.network.ranks + comm->num_ranks;
    return result;
}

/* Collective. */
static weft_result create_nodes(weft_ll *ll)
{
    struct wp_ll_network *network = &ll->device.network;
    if (ll->device.plan.message.num_sources == 0)
        return WEFT_OK;
    WEFT__TRY(weft__nodes_create(ll->ep->comm, &ll->nodes));
    network->nodes = ll->nodes.device;
    network->node_of_rank = ll->ep->node_of_rank;
    return WEFT_OK;
}

/* Collective. */
static weft_result allocate(weft_ll *ll, uint64_t network_bytes, uint64_t bytes_within)
{
    weft_comm *comm = ll->ep->comm;
    struct wp_ll_network *network = &ll->device.network;
    const uint64_t own_bytes = wp_ll_align(network_bytes);
    void *memory;
    WEFT__TRY(weft__machine_of(comm)->network_alloc(comm, own_bytes + bytes_within, &memory,
                                                    &network->place));
    network->memory = memory;
    ll->network_pieces =
        (struct weft__ll_pieces){.memory = network->memory + own_bytes, .bytes = bytes_within};
    return WEFT_OK;
}

weft_result weft__ll_network_create(weft_ll *ll, uint64_t network_bytes, uint64_t bytes_within)
{
    if (!ll->device.plan.has_nodes)
        return WEFT_OK;
    WEFT__TRY(weft__ll_agree(ll, upload_ranks(ll), "have the ranks of a weft_ll"));
    WEFT__TRY(create_nodes(ll));
    if (ll->within == NULL)
        return allocate(ll, network_bytes, bytes_within);
    weft__ll_network_within(ll);
    return WEFT_OK;
}

void weft__ll_network_destroy(weft_ll *ll)
{
    const struct weft__machine *machine = weft__machine_of(ll->ep->comm);
    if (ll->within == NULL)
        machine->network_free(ll->ep->comm, ll->device.network.memory);
    machine->free(ll->ep->comm, ll->ranks);
    weft__nodes_destroy(ll->ep->comm, &ll->nodes);
}
