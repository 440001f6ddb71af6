/* SPDX-License-Identifier: MIT */
/*
 * Memory of all GPUs of a node that their switch reaches at one address: an object of the driver's, to which every
 * rank adds its device and binds memory of its own.
 *
 * None of this is tried, nor is the driver asked whether it could be, unless WEFT_MULTICAST is 1 on every rank. On
 * systems whose fabric is not set up for it a bind may fail though the driver says that it is supported, and leave the
 * GPUs out of service, also for others who use them.
 */
#pragma once

#include "machine/cuda/device.h"

/* As multicast_create and multicast_destroy of the machine's table. */
weft_result weft__cuda_multicast_create(weft_comm *comm, uint64_t num_bytes,
                                        struct weft__switched_memory *memory);
void weft__cuda_multicast_destroy(weft_comm *comm, struct weft__switched_memory *memory);
