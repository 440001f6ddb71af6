/* SPDX-License-Identifier: MIT */
/* How many launches of a communicator are queued or run, so that its end can wait for them. */
#pragma once

#include "comm/comm.h"

void weft__cpu_launch_is_queued(weft_comm *comm);
/* From then on the launch has nothing to do with the communicator, which may be gone. */
void weft__cpu_launch_is_done(weft_comm *comm);
void weft__cpu_wait_launches(weft_comm *comm);
