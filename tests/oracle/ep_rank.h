/* SPDX-License-Identifier: MIT */
/* The library's objects of one rank, for any number of worlds one after the other. Functions return
 * 0, or 1 when a check has failed. */
#pragma once

#include "harness/ranks.h"
#include "oracle/ep_case.h"

struct ep_rank {
    struct ranks_context *context;
    weft_comm *comm;
    weft_stream *stream;
    weft_arena *arena;
    struct ep_memory *memory;
    const struct ep_world *world; /* that was entered, with its ep and handle */
    weft_ep *ep;
    weft_ep_handle *handle;
};

/* Makes communicator, stream and arena; num_nodes as in weft_comm_config. */
int ep_rank_open(struct ep_rank *self, struct ranks_context *context, int32_t num_nodes,
                 uint64_t arena_bytes);
int ep_rank_open_with(struct ep_rank *self, struct ranks_context *context,
                      const weft_comm_config *config, uint64_t arena_bytes);
/* The same on a communicator that exists, and is closed with the rest. */
int ep_rank_open_on(struct ep_rank *self, struct ranks_context *context, weft_comm *comm,
                    uint64_t arena_bytes);
int ep_rank_close(struct ep_rank *self);

/* Makes ep and handle for the world's shape. */
int ep_rank_enter(struct ep_rank *self, const struct ep_world *world);
int ep_rank_leave(struct ep_rank *self);

weft_ep_handle_config ep_rank_handle_config(const struct ep_world *world);
/* Blocks that an operation of the round asks for on this rank: 0, or up to those of its weft_ep. */
int32_t ep_rank_num_blocks(const struct ep_rank *self, uint64_t round);

/* Fails, naming the first differing byte, unless both are the same. */
int ep_compare(struct ep_rank *self, const void *got, const void *expected, uint64_t bytes,
               const char *name, int64_t row_idx);
