/* SPDX-License-Identifier: MIT */
/* What ranks see of the test's memory. Their processes are kept between runs (harness/pool.h), so
 * they do not have what the test has written since they were forked, unless it lies here. */
#pragma once

#include <stddef.h>

/* Zeroed memory, never NULL: a test that cannot get a few megabytes has no result to give. What the
 * test gets, each rank has a copy of, as it is when the run begins; what a rank gets is its own. In
 * programs that run no ranks it is malloc's. */
void *tests_alloc(size_t bytes);
void tests_free(const void *memory); /* or NULL */

/* For the pool. Before the first tests_alloc, and in each worker: once, and before each run. */
void memory_open(void);
void memory_enter_worker(void);
void memory_take_copy(void);
/* Zeroed memory, which all processes that are forked have in common. One block at a time is freed:
 * the last. */
void *memory_alloc_common(size_t bytes);
void memory_free_common(void *memory);
