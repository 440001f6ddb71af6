/* SPDX-License-Identifier: MIT */
/* The library's objects of one rank, for any number of worlds one after the other, and output
 * memory that notices writes around it. Functions return 0, or 1 with context->failure set. */
#ifndef TESTS_EP_RANK_H
#define TESTS_EP_RANK_H

#include "harness/ranks.h"
#include "oracle/ep_case.h"

struct ep_rank {
    struct ranks_context *context;
    weft_comm *comm;
    weft_stream *stream;
    weft_arena *arena;
    const struct ep_world *world; /* that was entered, with its ep and handle */
    weft_ep *ep;
    weft_ep_handle *handle;
};

/* Makes communicator, stream and arena; num_nodes as in weft_comm_config. */
int ep_rank_open(struct ep_rank *self, struct ranks_context *context, int32_t num_nodes,
                 uint64_t arena_bytes);
int ep_rank_close(struct ep_rank *self);

/* Makes ep and handle for the world's shape. */
int ep_rank_enter(struct ep_rank *self, const struct ep_world *world);
int ep_rank_leave(struct ep_rank *self);

/* What weft_ep_create gets for this world on this rank. */
weft_ep_config ep_rank_config(const struct ep_world *world, int32_t rank);
weft_ep_handle_config ep_rank_handle_config(const struct ep_world *world);

enum ep_memory {
    EP_MEMORY_HEAP,   /* from the rank's arena */
    EP_MEMORY_PROCESS /* from malloc */
};

struct ep_output {
    char *block; /* guard bytes, data, guard bytes */
    void *data;  /* NULL when bytes is 0 */
    uint64_t bytes;
    enum ep_memory memory;
};

/* `data` is misalign_bytes (below 64) off a 64-byte boundary. */
int ep_output_alloc(struct ep_rank *self, struct ep_output *output, enum ep_memory memory,
                    uint64_t bytes, uint64_t misalign_bytes);
/* Frees it; fails if a guard byte changed. */
int ep_output_free(struct ep_rank *self, struct ep_output *output, const char *name);
/* Fails unless [begin, bytes) of data is as it was after allocation. */
int ep_output_untouched(struct ep_rank *self, const struct ep_output *output, uint64_t begin,
                        const char *name);

/* Fails, naming the first differing byte, unless both are the same. */
int ep_compare(struct ep_rank *self, const void *got, const void *expected, uint64_t bytes,
               const char *name, int64_t row_idx);

#endif
