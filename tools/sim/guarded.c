/* SPDX-License-Identifier: MIT */
#include "guarded.h"

#include <stdlib.h>
#include <string.h>

enum { GUARD_VALUE = 0xa5 };

struct guarded_block {
    struct guarded_block *next;
    size_t num_bytes;
    _Alignas(16) unsigned char outer[];
};

void *guarded_lay(void *outer, size_t num_bytes)
{
    unsigned char *inner = (unsigned char *)outer + GUARD_BYTES;
    memset(outer, GUARD_VALUE, GUARD_BYTES);
    memset(inner + num_bytes, GUARD_VALUE, GUARD_BYTES);
    return inner;
}

int guarded_is_intact(const void *inner, size_t num_bytes)
{
    const unsigned char *before = (const unsigned char *)inner - GUARD_BYTES;
    const unsigned char *after = (const unsigned char *)inner + num_bytes;
    for (size_t i = 0; i < GUARD_BYTES; i++) {
        if (before[i] != GUARD_VALUE || after[i] != GUARD_VALUE)
            return 0;
    }
    return 1;
}

void *guarded_alloc(struct guarded *memory, size_t num_bytes)
{
    struct guarded_block *block = calloc(1, sizeof *block + num_bytes + 2 * (size_t)GUARD_BYTES);
    if (block == NULL)
        return NULL;
    block->next = memory->blocks;
    block->num_bytes = num_bytes;
    memory->blocks = block;
    return guarded_lay(block->outer, num_bytes);
}

int guarded_free_all(struct guarded *memory)
{
    int is_intact = 1;
    while (memory->blocks != NULL) {
        struct guarded_block *block = memory->blocks;
        memory->blocks = block->next;
        is_intact &= guarded_is_intact(block->outer + GUARD_BYTES, block->num_bytes);
        free(block);
    }
    return is_intact;
}
