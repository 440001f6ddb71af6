/* SPDX-License-Identifier: MIT */
/* Host side of the stream-ordered barrier of a communicator. */
#pragma once

#include "comm/comm.h"

/* Collective; fills comm->barrier. Where the machine does not reach the other nodes, launches
 * tell. */
weft_result weft__barrier_create(weft_comm *comm);
void weft__barrier_destroy(weft_comm *comm);
weft_result weft__barrier_launch(weft_comm *comm, weft_stream *stream);
