/* SPDX-License-Identifier: MIT */
/* Files of channels, as NCCL_GRAPH_DUMP_FILE writes them. */
#pragma once

#include "topo/search.h"
#include "topo/xml.h"

/* The element graphs of what NCCL would write, in the dialect of the topology's constants. */
weft_result channels_to_xml(const struct topo *topo, const struct channel_sets *sets,
                            enum topo_reach reach, struct xml **graphs);
