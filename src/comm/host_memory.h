/* SPDX-License-Identifier: MIT */
/* What memory this host, and the control group of this process, has and has left. */
#pragma once

#include <stdint.h>

uint64_t weft__host_memory_total_bytes(void);
/* An estimate: other processes take and give too. UINT64_MAX if the system does not say. */
uint64_t weft__host_memory_available_bytes(void);
