/* SPDX-License-Identifier: MIT */
/* Memory that processes of a host share by file descriptor. It has no name, so that nothing is left
 * behind by a process that is killed. */
#ifndef WEFT_COMM_SHARED_MEMORY_H
#define WEFT_COMM_SHARED_MEMORY_H

#include <stdint.h>

#include "weft.h"

/* Of the pages that the mappings ask for: 2 MiB if the system gives huge pages to shared memory. */
uint64_t weft__shared_memory_page_bytes(void);

/* Halves max_bytes, down to least_bytes, until num_mappings mappings of it need no more than half of
 * the addresses that the process can have: limits and tools like valgrind leave few. */
uint64_t weft__shared_memory_fit(uint64_t max_bytes, uint64_t least_bytes, uint64_t num_mappings);

weft_result weft__shared_memory_create(int *fd);

/* Maps the file's first max_bytes (a multiple of the page size), of which only those committed may
 * be touched; what is committed later appears at its place without another mapping, so that no
 * address ever moves and the descriptor need not be kept. */
weft_result weft__shared_memory_map(int fd, uint64_t max_bytes, char **base);
void weft__shared_memory_unmap(char *base, uint64_t max_bytes);

/* Grows the file from old_bytes to new_bytes and backs that with memory, through the mapping at
 * `base`. The system promises memory that it does not have and ends whoever touches it, so ask
 * weft__host_memory_available_bytes first. */
weft_result weft__shared_memory_commit(int fd, char *base, uint64_t old_bytes, uint64_t new_bytes);
/* The reverse. */
void weft__shared_memory_release(int fd, uint64_t old_bytes);

#endif
