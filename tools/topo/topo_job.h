/* SPDX-License-Identifier: MIT */
/* The machines of weft topo: of files, of this host, or of all hosts of a job. */
#pragma once

#include "topo_options.h"
#include "topo_view.h"

/* Facts about them, without channels: those of the files, or this one. Freed by topo_job_free,
 * also after an error. */
weft_result topo_job_read(const struct topo_options *options, struct topo_job *job);
/* Collective, as ranks of a job: the same of the first rank of each node, in the order of the
 * nodes, on rank 0; elsewhere nothing. */
weft_result topo_job_gather(const struct topo_options *options, weft_comm *comm,
                            struct topo_job *job);
/* Graphs, paths and channels. */
weft_result topo_job_search(const struct topo_options *options, struct topo_job *job);
void topo_job_free(struct topo_job *job);

/* topo_machine.c: of one machine, whose GPUs have ranks from first_rank on, or as its file says
 * (-1). */
weft_result topo_machine_read(const char *file, struct topo_view *view);
weft_result topo_machine_build(const struct topo_options *options, int32_t first_rank,
                               struct topo_view *view);
weft_result topo_machine_search(struct topo_view *view);
