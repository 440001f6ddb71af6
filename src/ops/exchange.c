/* SPDX-License-Identifier: MIT */
#include "ops/exchange.h"

#include <stdlib.h>
#include <string.h>

#include "machine/stream.h"

static weft_result allocate_mailbox(struct weft__exchange *exchange, uint64_t bytes)
{
    weft_comm *comm = exchange->comm;
    void *mailbox;
    weft_result result = weft__heap_alloc(comm, bytes, &mailbox);
    if (result != WEFT_OK)
        return result;
    memset(mailbox, 0, bytes);
    exchange->mailbox = mailbox;
    result =
        weft__heap_offset(comm->heap, mailbox, bytes, "mailbox", &exchange->device.mailbox_offset);
    /* Nobody may signal before everybody has zeroed. */
    return result == WEFT_OK ? weft__comm_all_gather(comm, NULL, 0, NULL) : result;
}

weft_result weft__exchange_create(weft_comm *comm, uint64_t extra_bytes,
                                  struct weft__exchange **out)
{
    struct weft__exchange *exchange = calloc(1, sizeof *exchange);
    if (exchange == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for an exchange");
    exchange->comm = comm;
    exchange->device.rank = comm->rank;
    exchange->device.num_ranks = comm->num_ranks;
    exchange->device.heap_bases = weft__heap_bases(comm->heap);
    exchange->device.state = calloc(1, sizeof *exchange->device.state);
    weft_result result = weft__event_create(&exchange->last_operation);
    if (result == WEFT_OK && exchange->device.state == NULL)
        result = weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for an exchange");
    if (result == WEFT_OK)
        result = allocate_mailbox(exchange, weft_mailbox_bytes(comm->num_ranks) + extra_bytes);
    if (result != WEFT_OK) {
        weft__exchange_destroy(exchange);
        return result;
    }
    *out = exchange;
    return WEFT_OK;
}

void weft__exchange_destroy(struct weft__exchange *exchange)
{
    if (exchange == NULL)
        return;
    if (exchange->mailbox != NULL)
        (void)weft__heap_free(exchange->comm->heap, exchange->mailbox);
    if (exchange->last_operation != NULL)
        weft__event_destroy(exchange->last_operation);
    free(exchange->device.state);
    free(exchange);
}

uint64_t weft__exchange_extra_offset(const struct weft__exchange *exchange)
{
    return exchange->device.mailbox_offset + weft_mailbox_bytes(exchange->device.num_ranks);
}

weft_result weft__exchange_launch(struct weft__exchange *exchange, weft_stream *stream,
                                  enum weft_program program, struct weft__grid grid,
                                  const void *args, size_t args_bytes)
{
    weft_result result = weft__status_check(&exchange->comm->status);
    if (result == WEFT_OK && exchange->last_stream != NULL && exchange->last_stream != stream)
        result = weft__stream_wait_event(stream, exchange->last_operation);
    if (result == WEFT_OK)
        result = weft__program_launch(exchange->comm, stream, program, grid, args, args_bytes);
    if (result == WEFT_OK) {
        exchange->last_stream = stream;
        result = weft__event_record(exchange->last_operation, stream);
    }
    return result;
}
