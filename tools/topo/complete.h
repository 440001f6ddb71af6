/* SPDX-License-Identifier: MIT */
/* Completes a file that an operator has written, which has switches but no GPUs, or an empty one.
 * What the file says counts more than what the system says. */
#pragma once

#include "topo/facts.h"
#include "topo/system.h"
#include "topo/xml.h"

/* Adds the GPUs and ports of the facts, and what is missing of the devices above them. Branches
 * with none of them are removed. `sysfs` NULL: the system shows nothing. */
weft_result topo_complete(struct xml *system, const struct topo_facts *facts,
                          const struct weft__sysfs *sysfs);

/* This machine: the file, or with NULL none, completed. Where there is neither GPU nor port, its
 * processors. */
weft_result topo_detect(const char *path, const struct topo_gpu_facts *gpus, int32_t num_gpus,
                        const struct weft__sysfs *sysfs, struct xml **system);
