/* SPDX-License-Identifier: MIT */
#include "coll/coll_multicast.h"

#include <stdlib.h>

/* ------------------------------------------------------------------ life */

void weft__coll_multicast_plan(weft_coll *coll, const weft_coll_config *config)
{
    enum { ALIGNMENT = 16 };
    struct wp_multicast_queues *queues = &coll->queues;
    *queues = weft__coll_defaults(coll->comm)->multicast;
    if (config->num_channels > 0)
        queues->num_channels = config->num_channels;
    if (config->num_staging_slots > 0)
        queues->num_slots = config->num_staging_slots;
    if (config->staging_slot_bytes > 0)
        queues->slot_bytes = (config->staging_slot_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static weft_result set_up(weft_coll *coll)
{
    weft_comm *comm = coll->comm;
    struct weft__coll_multicast *multicast = coll->multicast;
    const struct wp_multicast_queues *queues = &multicast->queues;
    const uint64_t counts_bytes = (uint64_t)queues->num_channels * WP_NUM_QUEUES * sizeof(uint64_t);
    void *counts = NULL;
    const weft_result allocated = weft__machine_of(comm)->alloc(comm, counts_bytes, &counts);
    multicast->num_chunks_before = counts;
    WEFT__TRY(weft__comm_agree(comm, allocated, "count the chunks of a multicast object"));
    return weft__multicast_create(comm, wp_multicast_object_bytes(queues, comm->num_ranks),
                                  &multicast->object);
}

weft_result weft__coll_multicast_create(weft_coll *coll)
{
    weft_result result = WEFT_OK;
    if (!weft__coll_is_asked_for(coll, WEFT_ALGORITHM_MULTICAST))
        return WEFT_OK;
    if (coll->queues.num_slots < 2)
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT,
                           "num_staging_slots is %d: algorithm %s needs 2 at least",
                           coll->queues.num_slots, weft__algorithm_name(WEFT_ALGORITHM_MULTICAST));
    coll->multicast = weft__comm_calloc(coll->comm, sizeof *coll->multicast,
                                        "have queues of a multicast object", &result);
    if (coll->multicast == NULL)
        return result;
    coll->multicast->queues = coll->queues;
    if (coll->multicast->queues.num_channels > coll->area.exchange.max_blocks)
        coll->multicast->queues.num_channels = coll->area.exchange.max_blocks;
    return set_up(coll);
}

void weft__coll_multicast_destroy(weft_coll *coll)
{
    struct weft__coll_multicast *multicast = coll->multicast;
    if (multicast == NULL)
        return;
    weft__multicast_destroy(coll->comm, &multicast->object);
    weft__machine_of(coll->comm)->free(coll->comm, multicast->num_chunks_before);
    free(multicast);
    coll->multicast = NULL;
}

/* ------------------------------------------------------------------ calls */

/* The ranks share the row of an all-reduce; else each rank has the row of its number. */
static void find_parts(const struct weft__coll_call *call, struct wp_multicast_args *args)
{
    const int32_t num_ranks = call->coll->comm->num_ranks;
    const uint64_t row_bytes = weft__coll_row_bytes(call);
    const uint64_t part_bytes = weft__coll_part_bytes(row_bytes, num_ranks);
    for (int32_t rank = 0; rank < num_ranks; rank++)
        args->parts[rank] = call->collective == WEFT_ALL_REDUCE
                                ? wp_span_of_row(row_bytes, (uint64_t)rank * part_bytes, part_bytes)
                                : (struct wp_span){(uint64_t)rank * row_bytes, row_bytes};
    const uint64_t longest = weft__coll_longest_row(args->parts, num_ranks);
    args->num_chunks = (longest + args->queues.slot_bytes - 1) / args->queues.slot_bytes;
}

static struct weft__grid choose_grid(const struct weft__coll_call *call)
{
    const weft_coll *coll = call->coll;
    struct weft__grid grid = weft__coll_tensor_grid(call, WEFT__WORK_PULL_TENSOR);
    if (call->num_blocks == 0) /* as of direct programs */
        grid.num_blocks = coll->direct_blocks[WEFT__WORK_PULL_TENSOR];
    if (grid.num_blocks > coll->multicast->queues.num_channels)
        grid.num_blocks = coll->multicast->queues.num_channels;
    return grid;
}

weft_result weft__coll_multicast_run(const struct weft__coll_call *call)
{
    weft_coll *coll = call->coll;
    const struct weft__coll_multicast *multicast = coll->multicast;
    struct wp_multicast_args args = {
        .area = coll->area,
        .header = weft__coll_header(call, WEFT_ALGORITHM_MULTICAST, weft__coll_told_bytes(call)),
        .queues = multicast->queues,
        .num_chunks_before = multicast->num_chunks_before,
        .uses_up = call->collective != WEFT_ALL_GATHER,
        .uses_down = call->collective != WEFT_REDUCE_SCATTER,
        .reduction = {.dtype = call->dtype, .op = weft__coll_reduction_op(call)},
        .in = call->send,
        .out = call->recv,
    };
    const struct wp_reduction copies = {.dtype = WEFT_DTYPE_NONE};
    args.object = weft__multicast_for(&multicast->object, args.uses_up ? args.reduction : copies);
    find_parts(call, &args);
    weft__coll_note(call, WP_PROGRAM_multicast);
    return weft__exchange_launch(coll->exchange, call->stream, WP_PROGRAM_multicast,
                                 choose_grid(call), &args, sizeof args);
}
