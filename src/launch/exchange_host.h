/* SPDX-License-Identifier: MIT */
/* Host side of an exchange (programs/exchange.h): its mailbox and its place among the streams. */
#pragma once

#include "launch/programs.h"
#include "memory/node_table.h"
#include "programs/exchange.h"

struct weft__exchange {
    weft_comm *comm;
    int32_t number; /* in the communicator: the same on all ranks */
    struct wp_exchange device;
    char *mailbox;              /* own, in the heap; NULL: of another object */
    weft_event *last_operation; /* operations of one exchange run in the order they were issued */
    uint64_t last_stream_id;    /* where it was; 0: there was none */
    uint64_t num_meetings[WEFT__NUM_MEETINGS]; /* launches so far */
};

/* Whether this rank maps the memory of all ranks, as `what` needs it. */
weft_result weft__exchange_check_reach(weft_comm *comm, const char *what);

/* Collective, for launches of at most max_blocks, the same on all ranks. Allocates a zeroed
 * mailbox, followed by `extra_bytes` of zeroes in every heap. With nodes, which must outlive it,
 * the ranks of each exchange messages and signals among themselves; NULL: all ranks do. */
weft_result weft__exchange_create(weft_comm *comm, const struct weft__nodes *nodes,
                                  int32_t max_blocks, uint64_t extra_bytes,
                                  struct weft__exchange **exchange);
/* Local: makes an exchange with its mailbox at `mailbox`. That is zeroed memory of the heap, at the
 * same place on all ranks, and outlives the exchange. Needs an earlier exchange. */
weft_result weft__exchange_create_at(weft_comm *comm, int32_t max_blocks, char *mailbox,
                                     struct weft__exchange **exchange);
void weft__exchange_destroy(struct weft__exchange *exchange);
/* Waits on the host for the operations issued so far. */
void weft__exchange_wait(struct weft__exchange *exchange);
/* Where the extra bytes begin, as heap offset. */
uint64_t weft__exchange_extra_offset(const struct weft__exchange *exchange);

/* Notes, if `result` is WEFT_OK, that weft__current_call, or a part of it, has been enqueued: part
 * of where this rank stands (comm/rendezvous/standing.h). Returns `result`. */
weft_result weft__exchange_note(struct weft__exchange *exchange, weft_stream *stream,
                                enum weft__call_part part, weft_result result);
/* Notes a send or a receive of weft__current_call that has been enqueued. */
void weft__exchange_note_transfer(struct weft__exchange *exchange, weft_stream *stream,
                                  enum weft__call_part part, int32_t src, int32_t dst);

/* Launches a program of this exchange behind its last one. */
weft_result weft__exchange_launch(struct weft__exchange *exchange, weft_stream *stream,
                                  enum wp_program program, struct weft__grid grid, const void *args,
                                  size_t args_bytes);
