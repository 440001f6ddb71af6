/* SPDX-License-Identifier: MIT */
/* This host's GPUs and their NVLinks, from the driver and NVML. */
#pragma once

#include "topo/facts.h"

/* The GPUs that this process can use, each the rank of its number: how many, 0 without a driver. */
int32_t topo_find_gpus(struct topo_gpu_facts *gpus, int32_t most);
