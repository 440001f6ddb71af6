/* SPDX-License-Identifier: MIT */
/* One collective operation as tools and benchmarks run it: sizes, inputs, and what must come out,
 * which is computed without exchanging anything. */
#pragma once

#include "weft.h"
#include "workload/elements.h"

/* By weft_collective; NULL behind the last. */
extern const char *const collective_names[NUM_COLLECTIVES + 1];

struct collective {
    weft_collective kind;
    struct element_source source; /* of the inputs */
    weft_reduce_op redop;         /* of operations that reduce */
    const float *factors;         /* [num_ranks], of WEFT_PREMUL_SUM; else NULL */
    int32_t root;                 /* of operations that have one */
    int32_t num_ranks;
    int32_t num_nodes;           /* 0: 1 */
    const int32_t *node_of_rank; /* of several nodes */
    uint64_t count;              /* that the operation is called with */
    enum element_order order;
};

static inline int collective_reduces(weft_collective kind)
{
    return kind == WEFT_ALL_REDUCE || kind == WEFT_REDUCE_SCATTER || kind == WEFT_REDUCE;
}

static inline int collective_has_root(weft_collective kind)
{
    return kind == WEFT_BROADCAST || kind == WEFT_REDUCE || kind == WEFT_GATHER ||
           kind == WEFT_SCATTER;
}

/* Both arrays consist of rows of `count` elements. */
enum collective_array { COLLECTIVE_SEND, COLLECTIVE_RECV };
int32_t collective_num_rows(weft_collective kind, enum collective_array array, int32_t num_ranks);
/* Whether the operation takes no notice of it, as the rank is not the root. */
int collective_is_ignored(weft_collective kind, enum collective_array array, int32_t root,
                          int32_t rank);

/* Where a row of a rank's output comes from: one rank's input, or all ranks' inputs, reduced. */
struct collective_source {
    int32_t rank; /* -1: all */
    int32_t row;
};
struct collective_source collective_source_of(weft_collective kind, int32_t root, int32_t rank,
                                              int32_t row);
/* The node whose sum is first in that reduction, which ends where it is wanted. */
int32_t collective_first_node(weft_collective kind, int32_t root, int32_t rank,
                              const struct element_ranks *ranks);

/* Whether the algorithm can do it on one node (weft.h). */
int collective_is_served(weft_collective kind, weft_algorithm algorithm);
/* The same over several nodes. */
int collective_is_served_between_nodes(weft_collective kind, weft_algorithm algorithm);

/* A buffer of `bytes` as nccl-tests counts them, or the largest below that holds whole counts. */
uint64_t collective_count(const struct collective *collective, uint64_t bytes);
/* As nccl-tests counts: the larger of input and output. */
uint64_t collective_bytes(const struct collective *collective);
/* Rows of a rank's arrays; 0 for those that are ignored. */
uint64_t collective_send_bytes(const struct collective *collective, int32_t rank);
uint64_t collective_recv_bytes(const struct collective *collective, int32_t rank);
/* That weft_coll_algorithm is asked with. */
uint64_t collective_algorithm_bytes(const struct collective *collective);
/* The factor of nccl-tests from the algorithm's bandwidth to that of the links. */
double collective_bus_factor(const struct collective *collective);

/* The part of a rank's output from byte `offset` on, both of whole elements. */
void collective_expect(const struct collective *collective, int32_t rank, uint64_t offset,
                       uint64_t bytes, void *expected);

/* How many elements differ; the index of the first in *first_wrong, if there is any. */
uint64_t elements_count_wrong(weft_dtype dtype, const void *elements, const void *expected,
                              uint64_t count, uint64_t *first_wrong);

/* The bytes between a rank's input and its output in place, which both lie in one buffer of
 * collective_bytes: at least one of the two begins with it. */
struct collective_places {
    uint64_t send_offset, recv_offset;
};
struct collective_places collective_in_place(const struct collective *collective, int32_t rank);
static inline int collective_has_in_place(weft_collective kind)
{
    return kind != WEFT_ALL_TO_ALL;
}

/* By weft_algorithm; NULL behind the last. Inline, so that this library does not need weft. */
static inline const char *const *collective_algorithm_names(void)
{
    static const char *names[NUM_ALGORITHMS + 1];
    for (int i = 0; i < NUM_ALGORITHMS; i++)
        names[i] = weft_coll_algorithm_name((weft_algorithm)i);
    return names;
}

/* Enqueues an operation with the fields of *args that it uses. Inline for the same reason. */
static inline weft_result collective_call(weft_collective kind, weft_coll *coll,
                                          const weft_coll_args *args, weft_stream *stream)
{
    static weft_result (*const calls[NUM_COLLECTIVES])(weft_coll *, const weft_coll_args *,
                                                       weft_stream *) = {
        [WEFT_ALL_REDUCE] = weft_coll_all_reduce, [WEFT_REDUCE_SCATTER] = weft_coll_reduce_scatter,
        [WEFT_ALL_GATHER] = weft_coll_all_gather, [WEFT_ALL_TO_ALL] = weft_coll_all_to_all,
        [WEFT_BROADCAST] = weft_coll_broadcast,   [WEFT_REDUCE] = weft_coll_reduce,
        [WEFT_GATHER] = weft_coll_gather,         [WEFT_SCATTER] = weft_coll_scatter,
    };
    weft_coll_args used = *args;
    if (!collective_reduces(kind))
        used.op = WEFT_SUM;
    if (!collective_has_root(kind))
        used.root = 0;
    return calls[kind](coll, &used, stream);
}

static inline weft_result collective_enqueue(const struct collective *collective, int32_t rank,
                                             weft_coll *coll, const void *send, void *recv,
                                             weft_stream *stream)
{
    return collective_call(collective->kind, coll,
                           WEFT_ARGS(weft_coll_args, .send = send, .recv = recv,
                                     .count = (int64_t)collective->count,
                                     .dtype = collective->source.dtype, .op = collective->redop,
                                     .root = collective->root,
                                     .factor = collective->factors ? collective->factors[rank] : 0),
                           stream);
}

/* ---------------------------------------------------------------- by other calls */

static inline int collective_sends(const struct collective *collective, int32_t from, int32_t to)
{
    if (collective->kind == WEFT_GATHER)
        return to == collective->root;
    return !collective_has_root(collective->kind) || from == collective->root;
}

/* Fills the rows of all ranks; rows in place stay where they are. */
static inline weft_result collective_send_rows(const struct collective *collective, int32_t rank,
                                               weft_coll *coll, const char *send, char *recv,
                                               weft_stream *stream)
{
    const weft_collective kind = collective->kind;
    const uint64_t row_bytes = collective->count * dtype_bytes(collective->source.dtype);
    const uint64_t sent_stride = kind == WEFT_ALL_TO_ALL || kind == WEFT_SCATTER ? row_bytes : 0;
    const uint64_t received_stride = kind == WEFT_BROADCAST || kind == WEFT_SCATTER ? 0 : row_bytes;
    weft_result result = WEFT_OK;
    for (int32_t peer = 0; peer < collective->num_ranks && result == WEFT_OK; peer++) {
        const char *from = send + (uint64_t)peer * sent_stride;
        char *to = recv + (uint64_t)peer * received_stride;
        if (peer == rank && from == to)
            continue;
        if (collective_sends(collective, rank, peer))
            result = weft_coll_send(coll,
                                    WEFT_ARGS(weft_coll_send_args, .send = from,
                                              .count = (int64_t)collective->count,
                                              .dtype = collective->source.dtype, .peer = peer),
                                    stream);
        if (result == WEFT_OK && collective_sends(collective, peer, rank))
            result = weft_coll_recv(coll,
                                    WEFT_ARGS(weft_coll_recv_args, .recv = to,
                                              .count = (int64_t)collective->count,
                                              .dtype = collective->source.dtype, .peer = peer),
                                    stream);
    }
    return result;
}

/* As a group of sends and receives, of operations that do not reduce. */
static inline weft_result collective_enqueue_group(const struct collective *collective,
                                                   int32_t rank, weft_coll *coll, const void *send,
                                                   void *recv, weft_stream *stream)
{
    const weft_result begun = weft_coll_group_begin(coll);
    if (begun != WEFT_OK)
        return begun;
    const weft_result result = collective_send_rows(collective, rank, coll, send, recv, stream);
    const weft_result ended = weft_coll_group_end(coll);
    return result != WEFT_OK ? result : ended;
}
