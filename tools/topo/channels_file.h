/* SPDX-License-Identifier: MIT */
/* Files of channels, as NCCL_GRAPH_FILE reads and NCCL_GRAPH_DUMP_FILE writes them. */
#pragma once

#include "topo/search.h"
#include "topo/xml.h"

/* The element graphs of what NCCL would write, in the dialect of the topology's constants. */
weft_result channels_to_xml(const struct topo *topo, const struct channel_sets *sets,
                            enum topo_reach reach, struct xml **graphs);

extern const struct xml_format channels_format;

/* Channels of such an element for a topology; sets that it lacks stay NULL. Each channel names
 * every GPU once; of NVLS one. */
weft_result channels_from_xml(const struct topo *topo, const struct xml *graphs,
                              struct channel_sets *sets);
/* The same of a file. */
weft_result channels_read(const struct topo *topo, const char *path, struct channel_sets *sets);
