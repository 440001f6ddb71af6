/* SPDX-License-Identifier: MIT */
/* An operation by the algorithm that was chosen for it: its rows, and what moves them. */
#include "coll/coll_internode.h"

static weft_result reduce(const struct weft__coll_call *call, weft_algorithm algorithm)
{
    if (algorithm == WEFT_ALGORITHM_ONESHOT)
        return weft__coll_packets_reduce(call);
    if (algorithm == WEFT_ALGORITHM_TWOSHOT_PACKETS)
        return weft__coll_packets_two_step(call);
    return weft__coll_rows_anywhere(call, algorithm);
}

static weft_result exchange(const struct weft__coll_call *call,
                            const struct wp_exchanged_rows *rows, weft_algorithm algorithm)
{
    if (algorithm == WEFT_ALGORITHM_ONESHOT)
        return weft__coll_packets_exchange(call, rows);
    return weft__coll_push_anywhere(call, rows);
}

/* Whether a row goes from the one rank to the other. */
static int sends(const struct weft__coll_call *call, int32_t from, int32_t to)
{
    if (call->collective == WEFT_GATHER)
        return to == call->root;
    return !weft__coll_has_root(call->collective) || from == call->root;
}

/* The rows that operations without a reduction send, and where. */
static void find_rows(const struct weft__coll_call *call, struct wp_exchanged_rows *rows)
{
    const weft_comm *comm = call->coll->comm;
    const weft_collective collective = call->collective;
    const uint64_t row_bytes = weft__coll_row_bytes(call);
    const int has_row_for_each = collective == WEFT_ALL_TO_ALL || collective == WEFT_SCATTER;
    const int has_row_of_each = collective != WEFT_BROADCAST && collective != WEFT_SCATTER;
    for (int32_t rank = 0; rank < comm->num_ranks; rank++) {
        const uint64_t place = (uint64_t)rank * row_bytes;
        if (sends(call, comm->rank, rank))
            rows->sent[rank] = (struct wp_span){has_row_for_each ? place : 0, row_bytes};
        if (sends(call, rank, comm->rank))
            rows->received[rank] = (struct wp_span){has_row_of_each ? place : 0, row_bytes};
    }
}

weft_result weft__coll_run_by(const struct weft__coll_call *call, weft_algorithm algorithm)
{
    if (algorithm == WEFT_ALGORITHM_RAILS || call->coll->comm->topology.num_nodes > 1)
        return weft__coll_internode_run(call, algorithm);
    if (algorithm == WEFT_ALGORITHM_RELAY)
        return weft__coll_rows_anywhere(call, algorithm);
    if (weft__coll_reduces(call->collective))
        return reduce(call, algorithm);
    struct wp_exchanged_rows rows = {0};
    find_rows(call, &rows);
    return exchange(call, &rows, algorithm);
}

weft_result weft__coll_exchange_v_by(const struct weft__coll_call *call,
                                     const struct weft__coll_v_rows *v_rows,
                                     weft_algorithm algorithm)
{
    struct wp_exchanged_rows rows = {0};
    if (algorithm == WEFT_ALGORITHM_RAILS)
        return weft__coll_groups_exchange_v(call, v_rows);
    for (int32_t rank = 0; rank < call->coll->comm->num_ranks; rank++) {
        rows.sent[rank] = v_rows->sent[rank];
        rows.received[rank] = v_rows->received[rank];
    }
    return exchange(call, &rows, algorithm);
}
