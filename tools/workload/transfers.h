/* SPDX-License-Identifier: MIT */
/* Rows between ranks, exchanged by sends and receives in a group: each row in pieces, which both
 * ends know, in an order that is each rank's own. */
#pragma once

#include <stdlib.h>

#include "weft.h"
#include "workload/elements.h"
#include "workload/failure.h"

/* The rows that a rank sends to each rank, or receives of each: in elements of their array. */
struct transfer_rows {
    const int64_t *counts, *offsets; /* [num_ranks] */
};

struct transfers {
    uint64_t key; /* of the pieces, the same on all ranks, and the order */
    int32_t rank, num_ranks;
    struct transfer_rows sent, received;
};

struct transfer {
    int is_sent;
    int32_t peer;
    int64_t begin, count; /* elements of the array */
};

/* One row. */
enum { TRANSFERS_MOST_PIECES = 3 };

/* In the rank's order, [2 * num_ranks * TRANSFERS_MOST_PIECES] at most; returns how many, or -1
 * without memory. */
int32_t transfers_list(const struct transfers *transfers, struct transfer *list);

/* The exchange; the group has begun. Inline, so that this library does not need weft. */
struct transfer_arrays {
    const char *send;
    char *recv;
    weft_dtype dtype;
};

static inline weft_result transfer_issue(const struct transfer *transfer,
                                         const struct transfer_arrays *arrays, weft_coll *coll,
                                         weft_stream *stream)
{
    const int64_t offset = transfer->begin * (int64_t)dtype_bytes(arrays->dtype);
    if (transfer->is_sent)
        return weft_coll_send(coll,
                              WEFT_ARGS(weft_coll_send_args, .send = arrays->send + offset,
                                        .count = transfer->count, .dtype = arrays->dtype,
                                        .peer = transfer->peer),
                              stream);
    return weft_coll_recv(coll,
                          WEFT_ARGS(weft_coll_recv_args, .recv = arrays->recv + offset,
                                    .count = transfer->count, .dtype = arrays->dtype,
                                    .peer = transfer->peer),
                          stream);
}

static inline weft_result transfers_issue(const struct transfers *transfers,
                                          const struct transfer_arrays *arrays, weft_coll *coll,
                                          weft_stream *stream)
{
    struct transfer *list =
        calloc(2 * (size_t)transfers->num_ranks * TRANSFERS_MOST_PIECES, sizeof *list);
    const int32_t num = list == NULL ? -1 : transfers_list(transfers, list);
    weft_result result = num < 0 ? LACKS_MEMORY("transfers of %d ranks", transfers->num_ranks)
                                 : weft_coll_group_begin(coll);
    if (result != WEFT_OK) {
        free(list);
        return result;
    }
    for (int32_t i = 0; i < num && result == WEFT_OK; i++)
        result = transfer_issue(&list[i], arrays, coll, stream);
    const weft_result ended = weft_coll_group_end(coll);
    free(list);
    return result != WEFT_OK ? result : ended;
}
