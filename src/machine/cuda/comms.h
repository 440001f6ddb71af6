/* SPDX-License-Identifier: MIT */
/* Sets of communicators, which leave them when they are destroyed: a stream may be synchronised,
 * and a graph be launched, long after one that had to do with it is gone. */
#pragma once

#include "comm/comm.h"

struct weft__cuda_stream;

struct weft__cuda_comms {
    struct weft__cuda_stream *stream; /* whose set it is; NULL: a graph's */
    weft_comm **members;
    int32_t num_members, max_members;
    struct weft__cuda_comms *next; /* of all sets of the process */
};

/* Makes an empty set of one that is zero. */
void weft__cuda_comms_open(struct weft__cuda_comms *comms);
void weft__cuda_comms_close(struct weft__cuda_comms *comms);

weft_result weft__cuda_comms_add(struct weft__cuda_comms *comms, weft_comm *comm);
weft_result weft__cuda_comms_add_all(struct weft__cuda_comms *comms,
                                     const struct weft__cuda_comms *added);
/* Removes one; NULL: there was none. */
weft_comm *weft__cuda_comms_take(struct weft__cuda_comms *comms);

/* Removes the communicator from the set of a stream, which it returns; NULL: it is in that of
 * none. */
struct weft__cuda_stream *weft__cuda_comms_leave(const weft_comm *comm);

/* The communicator is about to go: removes it from all sets. */
void weft__cuda_comms_forget(const weft_comm *comm);
