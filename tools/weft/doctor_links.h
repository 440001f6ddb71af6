/* SPDX-License-Identifier: MIT */
/* The links between all ranks of a job. */
#ifndef WEFT_TOOL_DOCTOR_LINKS_H
#define WEFT_TOOL_DOCTOR_LINKS_H

#include "link.h"

/* Collective. links[num_ranks][num_ranks], from row to column, on all ranks the same. */
weft_result doctor_measure_links(weft_comm *comm, struct link_figures *links);

#endif
