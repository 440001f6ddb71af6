/* SPDX-License-Identifier: MIT */
/* Host side of the stream-ordered barrier of a communicator. */
#ifndef WEFT_COLL_BARRIER_H
#define WEFT_COLL_BARRIER_H

#include "comm/comm.h"

/* Collective; fills comm->barrier. Where the machine does not reach the other nodes, launches tell. */
weft_result weft__barrier_create(weft_comm *comm);
void weft__barrier_destroy(weft_comm *comm);
weft_result weft__barrier_launch(weft_comm *comm, weft_stream *stream);

#endif
