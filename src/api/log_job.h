/* SPDX-License-Identifier: MIT */
/* WEFT_LOG=info tells of a job: rank 0's lines on one screen, when a communicator from an id
 * or from a launcher is complete, and a line for each object that chooses how data go. */
#pragma once

#include "weft.h"

void weft__log_job(const weft_comm *comm);
void weft__log_collectives(const weft_coll *coll);
void weft__log_low_latency(const weft_comm *comm, const weft_ep *experts,
                           const weft_ll_config *config);
