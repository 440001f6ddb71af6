/* SPDX-License-Identifier: MIT */
#include "coll/barrier.h"

#include "ops/exchange.h"
#include "programs/barrier.h"

weft_result weft__barrier_create(weft_comm *comm)
{
    return weft__exchange_create(comm, 1, 0, &comm->barrier);
}

void weft__barrier_destroy(weft_comm *comm)
{
    weft__exchange_destroy(comm->barrier);
    comm->barrier = NULL;
}

weft_result weft__barrier_launch(weft_comm *comm, weft_stream *stream)
{
    const struct weft_barrier_args args = {
        .exchange = comm->barrier->device,
        .message = {.call = {[WEFT_CALL_PROGRAM] = WEFT_PROGRAM_barrier}, .num_blocks = 1},
    };
    const struct weft__grid grid = {.num_blocks = 1, .num_warps = 1};
    return weft__exchange_launch(comm->barrier, stream, WEFT_PROGRAM_barrier, grid, &args,
                                 sizeof args);
}
