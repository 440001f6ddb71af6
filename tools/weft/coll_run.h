/* SPDX-License-Identifier: MIT */
/* One collective operation on this rank: its objects and buffers. */
#pragma once

#include "coll_options.h"

enum coll_place { COLL_OUT_OF_PLACE, COLL_IN_PLACE, COLL_NUM_PLACES };

struct coll_run {
    const struct coll_options *options;
    weft_comm *comm;
    int32_t rank;
    int32_t num_nodes;
    int32_t node_of_rank[COLL_MAX_JOB_RANKS];
    weft_coll *coll;
    weft_stream *stream;
    weft_event *start, *stop; /* around an operation that is timed */
    void *send, *recv;        /* of the largest size; memory of the machine, not for the host */
};

/* Collective; options must be resolved and lie beyond coll_run_close, which also releases what a
 * failed open left. */
weft_result coll_run_open(struct coll_run *run, weft_comm *comm,
                          const struct coll_options *options);
void coll_run_close(struct coll_run *run);

/* Where the ranks are. */
void coll_run_find_nodes(struct coll_run *run);

/* Collective: what the options say of a weft_coll. */
weft_result coll_run_open_coll(struct coll_run *run);

/* The operation at the largest size up to `bytes`. */
struct collective coll_run_at(const struct coll_run *run, uint64_t bytes);

/* In place both lie in recv. */
struct coll_buffers {
    char *send, *recv;
};
struct coll_buffers coll_run_buffers(const struct coll_run *run,
                                     const struct collective *collective, enum coll_place place);

/* Buffers go through the host in pieces of this size, a multiple of every element. */
enum { COLL_PIECE_BYTES = 1 << 20 };
static inline uint64_t coll_piece_bytes(uint64_t offset, uint64_t bytes)
{
    return bytes - offset < COLL_PIECE_BYTES ? bytes - offset : COLL_PIECE_BYTES;
}

/* The input of this rank, and poison wherever output is to be. Waits until it is there. */
weft_result coll_run_fill(const struct coll_run *run, const struct collective *collective,
                          enum coll_place place);

/* Enqueues the operation. */
weft_result coll_run_enqueue(const struct coll_run *run, const struct collective *collective,
                             enum coll_place place);
