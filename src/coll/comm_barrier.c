/* SPDX-License-Identifier: MIT */
#include "coll/comm_barrier.h"

#include <stdio.h>
#include <stdlib.h>

#include "launch/exchange_host.h"
#include "programs/coll/barrier.h"
#include "programs/coll/internode_barrier.h"

struct weft__barrier {
    struct weft__exchange *exchange;
    /* Between several nodes. */
    struct weft__nodes nodes;
    void *words; /* in memory of the network */
    uint64_t words_place;
    weft_result obstacle; /* why there is none, with the message */
    char message[WEFT__MAX_TEXT_BYTES];
};

static const struct wp_message message = {
    .call = {.head = {.kind = (uint64_t)WP_OPERATION_BARRIER << WP_CALL_OPERATION_BIT}},
    .num_blocks = 1,
};

/* ---------------------------------------------------------------- several nodes */

/* That so many nodes meet in. */
static uint64_t num_rounds(int32_t num_nodes)
{
    uint64_t num = 0;
    while (1 << num < num_nodes)
        num++;
    return num;
}

static weft_result reach_nodes(weft_comm *comm)
{
    struct weft__barrier *barrier = comm->barrier;
    WEFT__TRY(weft__nodes_create(comm, &barrier->nodes));
    WEFT__TRY(weft__exchange_create(comm, &barrier->nodes, 1, 0, &barrier->exchange));
    return weft__machine_of(comm)->network_alloc(
        comm, num_rounds(comm->topology.num_nodes) * sizeof(uint64_t), &barrier->words,
        &barrier->words_place);
}

/* A communicator without it is of use all the same. */
static weft_result try_to_reach_nodes(weft_comm *comm)
{
    struct weft__barrier *barrier = comm->barrier;
    barrier->obstacle = reach_nodes(comm);
    if (barrier->obstacle == WEFT_OK)
        return WEFT_OK;
    snprintf(barrier->message, sizeof barrier->message, "%s", weft__last_error());
    return barrier->obstacle == WEFT_ERROR_UNSUPPORTED ? WEFT_OK : barrier->obstacle;
}

static weft_result launch_between_nodes(weft_comm *comm, weft_stream *stream,
                                        struct weft__grid grid)
{
    const struct weft__barrier *barrier = comm->barrier;
    if (barrier->obstacle != WEFT_OK)
        return weft__error(barrier->obstacle, "%s", barrier->message);
    const struct wp_internode_barrier_args args = {
        .exchange = barrier->exchange->device,
        .message = message,
        .nodes = barrier->nodes.device,
        .words = barrier->words,
        .words_place = barrier->words_place,
    };
    return weft__exchange_launch(barrier->exchange, stream, WP_PROGRAM_internode_barrier, grid,
                                 &args, sizeof args);
}

/* ---------------------------------------------------------------- life and launch */

weft_result weft__barrier_create(weft_comm *comm)
{
    weft_result result;
    struct weft__barrier *barrier =
        weft__comm_calloc(comm, sizeof *barrier, "have a barrier", &result);
    if (barrier == NULL)
        return result;
    comm->barrier = barrier;
    return comm->topology.num_nodes > 1
               ? try_to_reach_nodes(comm)
               : weft__exchange_create(comm, NULL, 1, 0, &barrier->exchange);
}

void weft__barrier_destroy(weft_comm *comm)
{
    struct weft__barrier *barrier = comm->barrier;
    if (barrier == NULL)
        return;
    if (barrier->words != NULL)
        weft__machine_of(comm)->network_free(comm, barrier->words);
    weft__exchange_destroy(barrier->exchange);
    weft__nodes_destroy(comm, &barrier->nodes);
    free(barrier);
    comm->barrier = NULL;
}

static weft_result launch(weft_comm *comm, weft_stream *stream)
{
    const struct weft__grid grid = {.num_blocks = 1, .num_warps = 1};
    if (comm->topology.num_nodes > 1)
        return launch_between_nodes(comm, stream, grid);
    const struct wp_barrier_args args = {
        .exchange = comm->barrier->exchange->device,
        .message = message,
    };
    return weft__exchange_launch(comm->barrier->exchange, stream, WP_PROGRAM_barrier, grid, &args,
                                 sizeof args);
}

weft_result weft__barrier_launch(weft_comm *comm, weft_stream *stream)
{
    return weft__exchange_note(comm->barrier->exchange, stream, WEFT__CALL_IS_WHOLE,
                               launch(comm, stream));
}
