/* SPDX-License-Identifier: MIT */
/* Shared by the parts of building a graph. */
#pragma once

#include "topo/graph.h"

/* A bus id "0000:3b:00.0" as a number; a target's may be longer. */
weft_result topo_bus_id(const struct xml *element, const char *attribute, uint64_t *id);
/* The meaning of a PCI class, "0x030200". */
enum topo_kind topo_kind_of_class(const char *class_text);

/* Links between what is there: NVLink, C2C, switch to switch, processor to processor. */
weft_result topo_add_links(struct topo *topo, const struct xml *system);
/* Two-level Broadcom switches become one level. */
weft_result topo_flatten_switches(struct topo *topo);

/* The host of a cpu element, entered if it is new. */
weft_result topo_host_of(struct topo *topo, const struct xml *cpu, int32_t *host);
