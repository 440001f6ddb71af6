/* SPDX-License-Identifier: MIT */
/* All calls that make a communicator share this. */
#pragma once

#include "comm/comm.h"

weft_result weft__read_comm_config(const weft_comm_config *given, weft_comm_config *config);
/* Gives a new communicator its barrier, without which there is no communicator, and hands it to the
 * caller. Collective. */
weft_result weft__finish_comm(weft_comm *created, weft_comm **comm);
/* As weft__finish_comm, of ranks that make a job. */
weft_result weft__begin_job(weft_comm *created, weft_comm **comm);
