/* SPDX-License-Identifier: MIT */
/* Weights of experts on their way to other ranks, and gradients on their way back. */
#pragma once

#include "ep/ep.h"

/* An array of weights, a row for each local expert: its places in the heaps of all ranks. */
struct weft__expert_weights {
    uint64_t from, to, row_bytes;
};

/* Enqueues the accesses that bring this rank's experts of `to` from the ranks that have them in
 * `from`. */
weft_result weft__ep_fetch_experts(const weft_ep *from, const weft_ep *to,
                                   const struct weft__expert_weights *weights, int32_t num_arrays,
                                   weft_stream *stream);

/* How far the memory of another rank is. */
enum weft__distance { WEFT__HERE, WEFT__SAME_NODE, WEFT__OTHER_NODE };
enum weft__distance weft__distance_of(const weft_comm *comm, int32_t rank);

/* The experts of all replicas, before and in a step (weft_ep_copies_args). */
struct weft__copies {
    const int32_t *base, *experts;
    int32_t num_replicas;
};

/* Where gradients of copies wait for their sum, in the own heap. */
struct weft__copies_staging {
    uint64_t place, bytes;
};

/* *most_beside: the most replicas that an expert has beside its owner, which is the first one that
 * is in both placements. *orphan: a copy whose expert has no such replica, or -1. */
weft_result weft__copies_survey(const struct weft__copies *copies, int32_t *most_beside,
                                int32_t *orphan);
/* Enqueues the accesses that bring rows of experts to the copies of this rank. */
weft_result weft__ep_fetch_copies(weft_comm *comm, const struct weft__copies *copies,
                                  const struct weft__expert_weights *arrays, int32_t num_arrays,
                                  weft_stream *stream);
/* Enqueues what adds the rows of copies to those of which this rank is the owner. */
weft_result weft__ep_reduce_copies(weft_comm *comm, const struct weft__copies *copies,
                                   const struct weft__expert_weights *arrays, int32_t num_arrays,
                                   weft_dtype dtype, struct weft__copies_staging staging,
                                   weft_stream *stream);
