/* SPDX-License-Identifier: MIT */
/* Memory of this host and of this process's control groups, and limits on memory. */
#pragma once

#include <stdint.h>

#include "weft.h"

uint64_t weft__host_memory_total_bytes(void);
/* An estimate: other processes take and give too. UINT64_MAX if the system does not say. */
uint64_t weft__host_memory_available_bytes(void);

/* Returns OUT_OF_MEMORY. The message adds the process's limit on addresses, if there is one. */
weft_result weft__lacks_addresses(const char *why);

/* OUT_OF_MEMORY, naming the limit, if a file of that many bytes would be longer than RLIMIT_FSIZE.
 * Shared memory is such a file. SIGXFSZ would kill the process that makes it longer. */
weft_result weft__check_file_size(const char *what, uint64_t bytes);
