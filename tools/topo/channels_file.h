/* SPDX-License-Identifier: MIT */
/* Files of channels, as NCCL_GRAPH_FILE reads and NCCL_GRAPH_DUMP_FILE writes them. */
#pragma once

#include "topo/search.h"
#include "topo/xml.h"

/* The element graphs of what NCCL would write, in the dialect of the topology's constants. */
weft_result weft__channels_to_xml(const struct weft__topo *topo,
                                  const struct weft__channel_sets *sets,
                                  enum weft__topo_reach reach, struct weft__xml **graphs);

extern const struct weft__xml_format weft__channels_format;

/* Channels of such an element for a topology; sets that it lacks stay NULL. Each channel names every GPU once; of NVLS
 * one. */
weft_result weft__channels_from_xml(const struct weft__topo *topo, const struct weft__xml *graphs,
                                    struct weft__channel_sets *sets);
/* The same of a file. */
weft_result weft__channels_read(const struct weft__topo *topo, const char *path,
                                struct weft__channel_sets *sets);
