/* SPDX-License-Identifier: MIT */
/* The memory that low latency would have. */
#pragma once

#include "ep_options.h"

/* Rank 0 prints what the rank has that needs most, of the job that the options describe. These must
 * be resolved. */
weft_result ep_query(weft_comm *comm, const struct ep_options *options);
