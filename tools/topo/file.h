/* SPDX-License-Identifier: MIT */
/* Files of topologies, as NCCL_TOPO_FILE reads and NCCL_TOPO_DUMP_FILE writes them. */
#pragma once

#include "topo/xml.h"

extern const struct xml_format topo_format;

/* The element system of a file; an error if it is of another version than 1. */
weft_result topo_read(const char *path, struct xml **system);
/* The same of text; `source` is what messages call it. */
weft_result topo_parse(const char *source, const char *text, size_t num_bytes, struct xml **system);

/* The file that WEFT_TOPO_FILE names, else NCCL_TOPO_FILE, else where NVIDIA's virtual machines
 * have one; NULL: there is none. And where a topology is to be written. */
const char *topo_file_to_read(void);
const char *topo_file_to_write(void);
