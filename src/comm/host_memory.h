/* SPDX-License-Identifier: MIT */
/* What memory this host, and the control group of this process, has and has left, and what limits allow. */
#pragma once

#include <stdint.h>

#include "weft.h"

uint64_t weft__host_memory_total_bytes(void);
/* An estimate: other processes take and give too. UINT64_MAX if the system does not say. */
uint64_t weft__host_memory_available_bytes(void);

/* OUT_OF_MEMORY, and what limits the addresses of this process, if anything does. */
weft_result weft__lacks_addresses(const char *why);

/* OUT_OF_MEMORY with the limit's name if a file of that many bytes, as memory that is shared is one, too, would be
 * longer than RLIMIT_FSIZE: whoever made it so long would be killed by SIGXFSZ. */
weft_result weft__check_file_size(const char *what, uint64_t bytes);
