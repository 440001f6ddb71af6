/* SPDX-License-Identifier: MIT */
/* The memory that low latency would have. */
#ifndef WEFT_TOOL_EP_QUERY_H
#define WEFT_TOOL_EP_QUERY_H

#include "ep_options.h"

/* Collective; rank 0 prints what the rank has that needs most. Options must be resolved. */
weft_result ep_query(weft_comm *comm, const struct ep_options *options);

#endif
