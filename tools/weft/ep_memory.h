/* SPDX-License-Identifier: MIT */
/* The memory that weft ep takes, told before the work that would find out. */
#pragma once

#include "ep_options.h"

/* For all ranks on this host, with resolved options: tells on standard error what is needed if that
 * is much. 0, or -1, with the reason told, if the host has not so much. */
int ep_memory_check(const char *command, const struct ep_options *options, weft_machine machine);

/* The memory that low latency would have. Rank 0 prints what the rank has that needs most, of the
 * job that the options describe. These must be resolved. */
weft_result ep_query(weft_comm *comm, const struct ep_options *options);
