/* SPDX-License-Identifier: MIT */
/* What the parts of building a graph share. */
#pragma once

#include "topo/graph.h"

/* A bus id "0000:3b:00.0" as a number; a target's may be longer. */
weft_result weft__topo_bus_id(const struct weft__xml *element, const char *attribute, uint64_t *id);
/* What a PCI class "0x030200" stands for. */
enum weft__topo_kind weft__topo_kind_of_class(const char *class_text);

/* Links between what is there: NVLink, C2C, switch to switch, processor to processor. */
weft_result weft__topo_add_links(struct weft__topo *topo, const struct weft__xml *system);
/* Two-level Broadcom switches become one level. */
weft_result weft__topo_flatten_switches(struct weft__topo *topo);

/* The host of a cpu element, entered if it is new. */
weft_result weft__topo_host_of(struct weft__topo *topo, const struct weft__xml *cpu, int32_t *host);
