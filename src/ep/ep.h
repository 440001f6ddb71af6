/* SPDX-License-Identifier: MIT */
/* Host side of expert parallelism: what the api layer calls after checking arguments. */
#pragma once

#include "ep/ep_internode.h"
#include "launch/exchange_host.h"

/* Limits of a configuration. */
enum { WEFT__EP_MAX_BLOCKS = 65535, WEFT__EP_MAX_ALIGNMENT = 1 << 20 };

struct weft_ep {
    weft_comm *comm;
    struct weft__exchange *exchange;   /* of the node; its extra bytes are notify's counts */
    struct weft__internode *internode; /* NULL: there is one node, or they are not alike */
    struct weft__placement placement;
    void *node_of_rank;     /* [num_ranks] int32_t, for the programs */
    struct weft__grid grid; /* as configured: 0 for what suits each operation */
    int32_t max_blocks;     /* of any launch, on any rank */
    int32_t max_topk;
    int32_t counts_stride; /* of notify's counts */
    /* In the heap (staging.h); 0 and NULL: nothing is staged. */
    uint64_t staging_bytes;
    char *staging;
    weft_dtype combine_wire; /* as configured */
};

enum weft__handle_state { WEFT__HANDLE_EMPTY, WEFT__HANDLE_LAID_OUT, WEFT__HANDLE_NOTIFIED };

/* Memory of a handle's tables (handle.c). */
enum weft__handle_block {
    WEFT__BLOCK_COUNTS,
    WEFT__BLOCK_TOKENS,
    WEFT__BLOCK_RELAYED,
    WEFT__NUM_BLOCKS
};

/* For how many tokens there is memory. */
struct weft__handle_room {
    int32_t own_tokens, relayed_tokens; /* the latter of each other node */
};

struct weft_ep_handle {
    weft_ep *ep;
    enum weft__handle_state state; /* after the operations issued so far */
    int32_t max_tokens;            /* as configured; 0: there is always room, which grows */
    struct weft__handle_room room;
    int has_room; /* for what comes from other nodes after the last notify */
    weft_ep_order order;
    int32_t expert_alignment;
    const struct weft__placement *placement; /* the ep's, or the following */
    struct weft__placement own_placement;
    struct wp_routing routing;
    struct wp_expansion expansion;
    int is_expanded;           /* choices have been placed since the last notify */
    uint32_t *num_blocks_done; /* of layout and expand */
    int32_t *selections;
    int32_t tag;                    /* of the last layout */
    void *blocks[WEFT__NUM_BLOCKS]; /* the tables that routing and num_blocks_done point into */
    struct weft__handle_counts {
        char *host; /* copy of the tables from recv_rows to dropped_rows */
        uint64_t bytes;
    } counts;
    weft_event *notified;
    /* Rows of other nodes' tokens, since the last notify, if nothing is in graphs. */
    int has_relayed;
    /* Some operation between nodes: then the machine alone knows what has relayed. */
    int is_in_graphs;
    uint64_t notify_stream_id; /* of the last notify */
    int is_captured;           /* the last notify went into a graph: the host cannot wait for it */
};

weft_result weft__ep_create(weft_comm *comm, const weft_ep_config *config, weft_ep **ep);
/* Local. Makes only the placement of experts, for a weft_ll with experts of its own. */
weft_result weft__ep_create_experts(weft_comm *comm, const weft_ep_config *config, weft_ep **ep);
/* Copies the tables that the programs use to the machine. */
weft_result weft__ep_upload(weft_ep *ep);
void weft__ep_destroy(weft_ep *ep);

weft_result weft__handle_create(weft_ep *ep, const weft_ep_handle_config *config,
                                weft_ep_handle **handle);
void weft__handle_destroy(weft_ep_handle *handle);
/* For a layout of so many tokens; where the tables grow, waits for what has been issued. */
weft_result weft__handle_make_room(weft_ep_handle *handle, int32_t num_tokens);
/* For the tokens that notify has announced. Waits for it in a handle without max_tokens; `call` is
 * the caller's. */
weft_result weft__handle_make_room_for_relayed(weft_ep_handle *handle, const char *call);
/* Copies what notify and dispatch have counted to counts.host. */
weft_result weft__handle_read_counts(weft_ep_handle *handle);
/* Where the copy has a table, which is one of those that are copied. */
const void *weft__handle_counted(const weft_ep_handle *handle, const void *table);
/* Waits for the last notify, then does weft__handle_read_counts. */
weft_result weft__handle_wait_counts(weft_ep_handle *handle);
/* The grid of an operation on the weft_ep. */
struct weft__grid weft__ep_grid(const weft_ep *ep, const struct weft__work *work);
/* The grid of a call that names its num_blocks; 0: that of weft__ep_grid. */
struct weft__grid weft__ep_grid_of_call(const weft_ep *ep, const struct weft__work *work,
                                        int32_t num_blocks);
/* The most blocks that an operation may ask for here, beside those that rings need. */
int32_t weft__ep_max_local_blocks(const weft_ep *ep);
/* The most tokens that a layout of any handle may have. */
int32_t weft__ep_most_tokens(const weft_ep *ep, int32_t num_topk);
/* Bytes of a handle's tables. */
uint64_t weft__handle_bytes(const weft_ep *ep, int32_t max_tokens, int32_t num_topk);

weft_result weft__ep_layout(weft_ep_handle *handle, const weft_ep_layout_args *args,
                            weft_stream *stream);
weft_result weft__ep_notify(weft_ep_handle *handle, weft_stream *stream);
weft_result weft__ep_dispatch(weft_ep_handle *handle, const weft_ep_dispatch_args *args,
                              weft_stream *stream);
weft_result weft__ep_combine(weft_ep_handle *handle, const weft_ep_combine_args *args,
                             weft_stream *stream);

weft_result weft__ep_expand(weft_ep_handle *handle, const weft_ep_expand_args *args,
                            weft_stream *stream);
weft_result weft__ep_reduce(weft_ep_handle *handle, const weft_ep_reduce_args *args,
                            weft_stream *stream);

weft_result weft__ep_query_sizes(const weft_ep *ep, const weft_ep_size_args *args,
                                 weft_ep_sizes *sizes);
