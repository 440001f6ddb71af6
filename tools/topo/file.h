/* SPDX-License-Identifier: MIT */
/* Where files of topologies are, as NCCL_TOPO_FILE and NCCL_TOPO_DUMP_FILE name them. */
#pragma once

/* The file that WEFT_TOPO_FILE names, else NCCL_TOPO_FILE, else where NVIDIA's virtual machines
 * have one; NULL: there is none. And where a topology is to be written. */
const char *topo_file_to_read(void);
const char *topo_file_to_write(void);
