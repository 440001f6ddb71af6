/* SPDX-License-Identifier: MIT */
/* The network of a communicator whose ranks have GPUs: memory of the host that both reach, the
 * heaps, and a queue. */
#pragma once

#include "machine/cuda/device.h"
#include "machine/cuda/gpudirect.h"

/* Collective; without other nodes there is nothing to do. */
weft_result weft__cuda_network_start(weft_comm *comm);
void weft__cuda_network_stop(weft_comm *comm);
/* For the launches. */
struct weft__cuda_work_queue weft__cuda_network_queue(const struct weft__cuda *cuda);

const struct weft__cuda_gpudirect *weft__cuda_network_gpudirect(const struct weft__cuda *cuda);

/* Entries of the machine's table (machine/host.h). */
weft_result weft__cuda_network_alloc(weft_comm *comm, uint64_t bytes, void **memory,
                                     uint64_t *place);
weft_result weft__cuda_network_staging_alloc(weft_comm *comm, uint64_t bytes, void **memory,
                                             uint64_t *place);
void weft__cuda_network_free(weft_comm *comm, void *memory);
