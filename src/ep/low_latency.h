/* SPDX-License-Identifier: MIT */
/* Host side of low latency: what the api layer calls after checking arguments. */
#pragma once

#include "ep/ep.h"
#include "memory/node_table.h"
#include "programs/low_latency/ll_nodes.h"

#include "programs/low_latency/ll_launch.h"

_Static_assert(WEFT_LL_MAX_TOKENS == UINT16_MAX, "numbers of tokens fit 16 bits");

/* Counts of what has been issued, as the device counts when it runs, unless something has been
 * captured: a graph runs as often as its owner likes, and then only the device knows what is
 * outstanding. */
struct weft__ll_issued {
    int is_in_graphs;
    int64_t rows_sent, rows_received, rows_answered, rows_ended;
    int64_t answers_sent, answers_received;
    int keeps[WP_NUM_BUFFERS]; /* whether the answers of a buffer let their result stay */
    int32_t result_tokens[WP_NUM_BUFFERS];   /* this rank's, in the result of a buffer */
    int32_t answer_tokens[WP_NUM_BUFFERS];   /* the same, that the answers of a buffer are to */
    int32_t result_capacity[WP_NUM_BUFFERS]; /* by expert: of the dispatch that received it */
};

/* Memory for each weft_ll within another, taken piece by piece. */
struct weft__ll_pieces {
    char *memory;
    uint64_t bytes, taken_bytes;
};

struct weft_ll {
    weft_ep *ep;
    weft_ep *own_ep;     /* ep, if the weft_ll has its own experts; else NULL */
    weft_ll *within;     /* whose memory and masks this one uses; NULL: its own */
    int is_within_taken; /* it has taken its pieces and counts in within->num_within */
    int32_t num_within;
    struct weft__ll_pieces heap_pieces, network_pieces; /* for each weft_ll within it */
    int ranks_are_alike; /* 1: in the grids that they choose, so that none within needs to agree */
    struct weft__exchange *exchange; /* its extra bytes are the area */
    struct wp_low_latency device;
    struct weft__grid grid;    /* of every launch, */
    int32_t combine_warps;     /* but for the warps of combine, */
    int32_t combine_receivers; /* and its device.num_receivers */
    void *tables;              /* what the device's pointers point into, but those of the network */
    void *ranks;               /* device.network's */
    struct weft__nodes nodes;  /* the same, where partners relay */
    struct weft__ll_issued issued;
    uint64_t epoch; /* of the last weft_ll_unmask */
    int goes_on_without_the_dead;
    struct weft__masked masked; /* for records, if it has masks of its own */
};

/* low_latency_plan.c. Without what depends on the number of blocks, on which ranks agree. */
struct wp_ll_plan weft__ll_plan(const weft_ep *ep, const weft_ll_config *config);
/* and that. */
void weft__ll_plan_blocks(const weft_comm *comm, const weft_ll_config *config, int32_t num_blocks,
                          struct wp_ll_plan *plan);

/* The carrier of a weft_ll; and the one that was asked for, or would be the fastest, if that is
 * another one or cannot be. */
struct weft__ll_carrier {
    weft_ll_carrier carrier, wanted;
    const char *lacks; /* what `wanted` needs; NULL: nothing */
};
struct weft__ll_carrier weft__ll_choose_carrier(const weft_ep *ep, const weft_ll_config *config);

struct wp_ll_share weft__ll_share_of_sources(const struct wp_ll_plan *plan, int32_t num_ranks,
                                             int32_t num_warps);

/* low_latency_within.c. Agrees with the other ranks, unless the weft_ll is within another. */
weft_result weft__ll_agree(const weft_ll *ll, weft_result mine, const char *what);
/* OUT_OF_MEMORY: the next pieces are not large enough. */
weft_result weft__ll_check_room_within(const weft_ll *within, uint64_t heap_bytes,
                                       uint64_t network_bytes);
/* The first two place the weft_ll in the next pieces, the exchange in that of the heap. The third
 * one takes these pieces when the weft_ll is complete. */
weft_result weft__ll_exchange_within(weft_ll *ll);
void weft__ll_network_within(weft_ll *ll);
void weft__ll_take_pieces(weft_ll *ll, uint64_t network_bytes);
/* Makes the memory for others as new. No rank may send to a weft_ll within this one then. */
weft_result weft__ll_renew_pieces(weft_ll *ll);

/* low_latency_network.c: what partners relay, if they do, of a plan that has its blocks. */
struct wp_ll_message weft__ll_plan_message(const weft_comm *comm, const weft_ll_config *config,
                                           const struct wp_ll_plan *plan);
/* *bytes of memory of the network, on every rank. Without that, and tables. */
struct wp_ll_network weft__ll_plan_network(const weft_comm *comm, const struct wp_ll_plan *plan,
                                           uint64_t *bytes);
/* Collective, unless the weft_ll is within another. Needs the plans of message and network. */
weft_result weft__ll_network_create(weft_ll *ll, uint64_t network_bytes, uint64_t bytes_within);
void weft__ll_network_destroy(weft_ll *ll);

weft_result weft__ll_query_sizes(const weft_ep *ep, const weft_ll_config *config,
                                 weft_ll_sizes *sizes);

/* Local. Finds the experts of a weft_ll: ep itself, or new ones if config has its own. */
weft_result weft__ll_experts_of(weft_ep *ep, const weft_ll_config *config, weft_ep **experts);
void weft__ll_drop_experts(weft_ep *ep, weft_ep *experts);

/* Takes over the experts, also if it fails. */
weft_result weft__ll_create(weft_ep *ep, weft_ep *experts, const weft_ll_config *config,
                            weft_ll **ll);
void weft__ll_destroy(weft_ll *ll);
void weft__ll_query_slots(const weft_ll *ll, weft_ll_slots *slots);

/* To be issued next, on the stream: INVALID_ARGUMENT if there is one result too many or too few for
 * the operation, as far as the host knows. */
weft_result weft__ll_check_dispatch(weft_ll *ll, weft_ll_phases phases, weft_stream *stream);
weft_result weft__ll_check_combine(weft_ll *ll, weft_ll_phases phases, int32_t capacity,
                                   weft_stream *stream);
weft_result weft__ll_check_release(weft_ll *ll, weft_stream *stream);
/* The rows of each expert that the caller of an operation has room for. */
int32_t weft__ll_capacity(const weft_ll *ll, int32_t wished);
/* By expert: the words of row_signals that each expert has. */
int32_t weft__ll_words_per_expert(const weft_ll *ll, const weft_ll_combine_args *args);
/* How many tokens the combine has, or answers, that will be received next; in graphs if it is
 * issued as often as dispatch. */
int32_t weft__ll_num_tokens(const weft_ll *ll, weft_ll_phases phases);

weft_result weft__ll_dispatch(weft_ll *ll, const weft_ll_dispatch_args *args, weft_stream *stream);
weft_result weft__ll_combine(weft_ll *ll, const weft_ll_combine_args *args, weft_stream *stream);
weft_result weft__ll_release(weft_ll *ll, weft_stream *stream);
/* For a weft_ll whose answers stay: waits until nobody reads them. */
weft_result weft__ll_leave(weft_ll *ll);

/* With masks: `more` ranks are masked from now on, `mask` gets all; NULL: none, or not wanted. */
weft_result weft__ll_mask(weft_ll *ll, const int32_t *more, int32_t *mask, weft_stream *stream);
weft_result weft__ll_unmask(weft_ll *ll, const int32_t *mask, uint64_t epoch, weft_stream *stream);
