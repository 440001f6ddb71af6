/* SPDX-License-Identifier: MIT */
/* Ranks tell each other how far and how fast other nodes are; the model (model.h) gets the result
 * of that. */
#include "coll/coll_internode.h"
#include "comm/host/settings.h"
#include "net/attach.h"
#include "programs/coll/streams.h"

struct weft__coll_wire weft__coll_own_wire(const weft_comm *comm)
{
    const struct weft__machine *machine = weft__machine_of(comm);
    struct weft__coll_wire wire = {0};
    int64_t told_us = 0;
    if (machine->ranks_per_core != NULL)
        wire.ranks_per_core = machine->ranks_per_core(comm);
    if (comm->network != NULL) {
        wire.latency_us = comm->network->round_trip_us / 2;
        wire.port_gbps = comm->network->port_gbps;
    }
    (void)weft__setting_number(WEFT__SETTING_NET_LATENCY_US,
                               &told_us); /* checked with the communicator */
    if (told_us > 0)
        wire.latency_us = (double)told_us;
    return wire;
}

static double least_known(double a, double b)
{
    return a > 0 && (a < b || b <= 0) ? a : b;
}

/* Other work makes messages later, never earlier: so the least counts. */
void weft__coll_add_wire(struct weft__coll_wire *agreed, const struct weft__coll_wire *wire)
{
    agreed->latency_us = least_known(agreed->latency_us, wire->latency_us);
    agreed->port_gbps = least_known(agreed->port_gbps, wire->port_gbps);
    if (wire->ranks_per_core > agreed->ranks_per_core)
        agreed->ranks_per_core = wire->ranks_per_core;
}

static struct weft__coll_between between_nodes(const weft_coll *coll, int32_t num_rails)
{
    const struct wp_rings *rings = &coll->internode->rings;
    const uint64_t chunk_bytes = wp_chunk_payload(rings);
    const uint64_t tree_bytes = WEFT__COLL_TREE_SLOT_BYTES - WP_CHUNK_HEADER_BYTES;
    return (struct weft__coll_between){
        .wire = coll->wire,
        .num_nodes = rings->nodes.num_nodes,
        .most_local = rings->nodes.most_local,
        .num_rails = num_rails,
        .num_channels = rings->num_channels,
        .window = wp_ring_window(rings),
        .chunk_bytes = chunk_bytes,
        .tree_chunk_bytes = chunk_bytes < tree_bytes ? chunk_bytes : tree_bytes,
    };
}

/* Nothing was measured between nodes on machine cuda. */
int weft__coll_expect_by(const weft_coll *coll, const struct weft__coll_work *work,
                         struct weft__coll_expectation *expectation)
{
    const int32_t num_rails = work->algorithm == WEFT_ALGORITHM_TREE
                                  ? coll->internode->rings.nodes.num_rails
                                  : weft__coll_num_rails(coll, work->collective, work->row_bytes);
    const struct weft__coll_between between = between_nodes(coll, num_rails);
    return weft__machine_of(coll->comm)->kind == WEFT_MACHINE_CPU &&
           weft__coll_expect_between(&between, work, expectation);
}
