/* SPDX-License-Identifier: MIT */
#ifndef TESTS_ORACLE_ALLOC_H
#define TESTS_ORACLE_ALLOC_H

#include <stdio.h>
#include <stdlib.h>

/* Zeroed memory, never NULL: a test that cannot get a few megabytes has no result to give. */
static inline void *oracle_alloc(size_t bytes)
{
    void *memory = calloc(1, bytes == 0 ? 1 : bytes);
    if (memory == NULL) {
        fprintf(stderr, "the test is out of memory (%zu bytes)\n", bytes);
        abort();
    }
    return memory;
}

#endif
