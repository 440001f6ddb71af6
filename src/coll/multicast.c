/* SPDX-License-Identifier: MIT */
#include "coll/multicast.h"

#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ life */

void weft__coll_multicast_plan(weft_coll *coll, const weft_coll_config *config)
{
    enum { ALIGNMENT = 16 };
    struct wp_multicast_queues *queues = &coll->queues;
    *queues = weft__coll_defaults(coll->comm)->multicast;
    queues->num_heads = coll->comm->num_ranks;
    if (config->num_channels > 0)
        queues->num_channels = config->num_channels;
    if (config->num_staging_slots > 0)
        queues->num_slots = config->num_staging_slots;
    if (config->staging_slot_bytes > 0)
        queues->slot_bytes = (config->staging_slot_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static void add_head(struct weft__coll_multicast *multicast, int32_t *num_heads, int32_t rank)
{
    for (int32_t head = 0; head < *num_heads; head++) {
        if (multicast->heads[head] == rank)
            return;
    }
    multicast->heads[(*num_heads)++] = rank;
}

/* As rank 0's machine says, if it knows; a rank that it does not name is a head of its own rows alone. */
static weft_result find_heads(weft_comm *comm, struct weft__coll_multicast *multicast)
{
    struct weft__heads own = {0};
    weft_result result = WEFT_OK;
    if (weft__machine_of(comm)->find_heads != NULL)
        result = weft__machine_of(comm)->find_heads(comm, &own);
    struct weft__heads *told = weft__comm_gather_new(comm, result, &own, sizeof own, &result);
    int32_t num_heads = 0;
    if (told == NULL)
        return result;
    for (int32_t i = 0; i < told[0].num_heads; i++)
        add_head(multicast, &num_heads, told[0].ranks[i]);
    multicast->num_reducers = num_heads > 0 ? num_heads : comm->num_ranks;
    for (int32_t rank = 0; rank < comm->num_ranks; rank++)
        add_head(multicast, &num_heads, rank);
    free(told);
    return WEFT_OK;
}

static weft_result set_up(weft_coll *coll)
{
    weft_comm *comm = coll->comm;
    struct weft__coll_multicast *multicast = coll->multicast;
    const struct wp_multicast_queues *queues = &multicast->queues;
    const uint64_t counts_bytes = (uint64_t)queues->num_channels * WP_NUM_QUEUES * sizeof(uint64_t);
    void *counts = NULL;
    WEFT__TRY(find_heads(comm, multicast));
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

/* Of an all-reduce the first heads share the row; else each has the row of its rank. */
static void find_parts(const struct weft__coll_call *call, struct wp_multicast_args *args)
{
    const struct weft__coll_multicast *multicast = call->coll->multicast;
    const uint64_t row_bytes = weft__coll_row_bytes(call);
    const uint64_t part_bytes = weft__coll_part_bytes(row_bytes, multicast->num_reducers);
    for (int32_t head = 0; head < args->queues.num_heads; head++) {
        const int32_t rank = multicast->heads[head];
        args->heads[head] = rank;
        args->parts[head] = call->collective == WEFT_ALL_REDUCE
                                ? wp_span_of_row(row_bytes, (uint64_t)head * part_bytes, part_bytes)
                                : (struct wp_span){(uint64_t)rank * row_bytes, row_bytes};
        if (rank == call->coll->comm->rank)
            args->own_head = head;
    }
    const uint64_t longest = weft__coll_longest_row(args->parts, args->queues.num_heads);
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
