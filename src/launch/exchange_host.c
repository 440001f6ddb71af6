/* SPDX-License-Identifier: MIT */
#include "launch/exchange_host.h"

#include <stdlib.h>

#include "memory/windows.h"

weft_result weft__exchange_check_reach(weft_comm *comm, const char *what)
{
    char *const *heap_bases = weft__heap_bases(comm->heap);
    for (int32_t rank = 0; rank < comm->num_ranks; rank++) {
        if (heap_bases[rank] == NULL)
            return weft__error(WEFT_ERROR_UNSUPPORTED,
                               "rank %d's memory cannot be mapped by rank %d: there is no support "
                               "for %s over several hosts yet",
                               rank, comm->rank, what);
    }
    return WEFT_OK;
}

static uint64_t mailbox_bytes(const struct weft__exchange *exchange)
{
    const struct wp_exchange *device = &exchange->device;
    return wp_mailbox_bytes(device->most_members, device->max_blocks);
}

static weft_result allocate_mailbox(struct weft__exchange *exchange, uint64_t bytes)
{
    weft_comm *comm = exchange->comm;
    uint64_t dirty_bytes;
    void *mailbox;
    WEFT__TRY(weft__heap_alloc_to_zero(comm, bytes, &mailbox, &dirty_bytes));
    exchange->mailbox = mailbox;
    WEFT__TRY(
        weft__heap_offset(comm->heap, mailbox, bytes, "mailbox", &exchange->device.mailbox_offset));
    /* Nobody may signal before everybody has zeroed. */
    return weft__comm_agree(comm, weft__machine_zero(comm, mailbox, dirty_bytes),
                            "zero its mailbox");
}

/* The first exchange of a communicator makes its windows: ranks agree on the result in any case. */
static weft_result set_up_own(struct weft__exchange *exchange)
{
    weft_comm *comm = exchange->comm;
    const struct weft__machine *machine = weft__machine_of(comm);
    void *state = NULL;
    if (comm->windows == NULL)
        WEFT__TRY(weft__windows_create(comm));
    exchange->device.bases = comm->windows->table;
    WEFT__TRY(machine->event_create(comm, WEFT__EVENT_ORDERS, &exchange->last_operation));
    WEFT__TRY(machine->alloc(comm,
                             sizeof *exchange->device.state +
                                 (uint64_t)exchange->device.max_blocks * sizeof(uint64_t),
                             &state));
    exchange->device.state = state;
    return WEFT_OK;
}

static weft_result set_up(struct weft__exchange *exchange, uint64_t extra_bytes)
{
    weft_comm *comm = exchange->comm;
    WEFT__TRY(weft__comm_agree(comm, set_up_own(exchange), "have an exchange"));
    return allocate_mailbox(exchange, mailbox_bytes(exchange) + extra_bytes);
}

static void choose_members(struct wp_exchange *device, const struct weft__nodes *nodes)
{
    if (nodes == NULL) {
        device->num_members = device->num_ranks;
        device->most_members = device->num_ranks;
        device->member_idx = device->rank;
        return;
    }
    device->num_members = nodes->device.num_local;
    device->most_members = nodes->device.most_local;
    device->member_idxs = nodes->device.local_idxs;
    device->member_idx = nodes->device.local_idx;
    device->members = nodes->device.ranks + (int64_t)nodes->device.node * nodes->device.most_local;
}

static void describe(struct weft__exchange *exchange, weft_comm *comm,
                     const struct weft__nodes *nodes, int32_t max_blocks)
{
    exchange->comm = comm;
    exchange->number = ++comm->num_exchanges;
    exchange->device.rank = comm->rank;
    exchange->device.num_ranks = comm->num_ranks;
    exchange->device.max_blocks = max_blocks;
    choose_members(&exchange->device, nodes);
}

/* Destroys the exchange if it could not be made. */
static weft_result give(struct weft__exchange *exchange, weft_result result,
                        struct weft__exchange **out)
{
    if (result == WEFT_OK)
        *out = exchange;
    else
        weft__exchange_destroy(exchange);
    return result;
}

weft_result weft__exchange_create(weft_comm *comm, const struct weft__nodes *nodes,
                                  int32_t max_blocks, uint64_t extra_bytes,
                                  struct weft__exchange **out)
{
    weft_result result;
    struct weft__exchange *exchange =
        weft__comm_calloc(comm, sizeof *exchange, "have an exchange", &result);
    if (exchange == NULL)
        return result;
    describe(exchange, comm, nodes, max_blocks);
    return give(exchange, set_up(exchange, extra_bytes), out);
}

weft_result weft__exchange_create_at(weft_comm *comm, int32_t max_blocks, char *mailbox,
                                     struct weft__exchange **out)
{
    struct weft__exchange *exchange = calloc(1, sizeof *exchange);
    WEFT__CHECK_MEMORY(exchange, "no memory for an exchange");
    describe(exchange, comm, NULL, max_blocks);
    weft_result result = weft__heap_offset(comm->heap, mailbox, mailbox_bytes(exchange), "mailbox",
                                           &exchange->device.mailbox_offset);
    if (result == WEFT_OK)
        result = set_up_own(exchange);
    return give(exchange, result, out);
}

void weft__exchange_destroy(struct weft__exchange *exchange)
{
    if (exchange == NULL)
        return;
    weft_comm *comm = exchange->comm;
    const struct weft__machine *machine = weft__machine_of(comm);
    if (exchange->mailbox != NULL)
        (void)weft__heap_free(comm->heap, exchange->mailbox);
    if (exchange->last_operation != NULL)
        machine->event_destroy(exchange->last_operation);
    machine->free(comm, exchange->device.state);
    free(exchange);
}

void weft__exchange_wait(struct weft__exchange *exchange)
{
    weft__standing_hold(
        (struct weft__hold){.kind = WEFT__HELD_BY_STREAM, .stream_id = exchange->last_stream_id});
    (void)weft__machine_of(exchange->comm)->event_synchronize(exchange->last_operation);
    weft__standing_release();
}

/* A captured call runs as often as its graph does, so the host cannot count it. */
static void note(struct weft__exchange *exchange, weft_stream *stream,
                 struct weft__stream_call call)
{
    weft_comm *comm = exchange->comm;
    call.object = exchange->number;
    call.exchange = exchange->device.mailbox_offset;
    call.stream_id = stream->id;
    if (stream->machine->stream_is_capturing(stream))
        weft__standing_forget(&comm->standing);
    else
        weft__standing_note(&comm->standing, &call, comm->rank);
}

weft_result weft__exchange_note(struct weft__exchange *exchange, weft_stream *stream,
                                enum weft__call_part part, weft_result result)
{
    if (result == WEFT_OK)
        note(exchange, stream, (struct weft__stream_call){WEFT__CALL_OF_ALL, .part = part});
    return result;
}

void weft__exchange_note_transfer(struct weft__exchange *exchange, weft_stream *stream,
                                  enum weft__call_part part, int32_t src, int32_t dst)
{
    note(exchange, stream, (struct weft__stream_call){.src = src, .dst = dst, .part = part});
}

uint64_t weft__exchange_extra_offset(const struct weft__exchange *exchange)
{
    return exchange->device.mailbox_offset + mailbox_bytes(exchange);
}

/* Captured work runs whenever its graph does: its order among other operations is the user's. */
weft_result weft__exchange_launch(struct weft__exchange *exchange, weft_stream *stream,
                                  enum wp_program program, struct weft__grid grid, const void *args,
                                  size_t args_bytes)
{
    const struct weft__machine *machine = weft__machine_of(exchange->comm);
    WEFT__TRY(weft__status_check(&exchange->comm->status));
    const int is_ordered = stream->machine == machine && !machine->stream_is_capturing(stream);
    if (is_ordered && exchange->last_stream_id != 0 && exchange->last_stream_id != stream->id)
        WEFT__TRY(machine->stream_wait_event(stream, exchange->last_operation));
    const struct weft__program_run run = {
        program, grid, args, args_bytes, exchange->number, exchange->num_meetings};
    WEFT__TRY(weft__program_launch(exchange->comm, stream, &run));
    if (!is_ordered)
        return WEFT_OK;
    exchange->last_stream_id = stream->id;
    return machine->event_record(exchange->last_operation, stream);
}
