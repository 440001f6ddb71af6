/* SPDX-License-Identifier: MIT */
/* The sim's own memory, and free, as the linker's --wrap has it called: memory that a rank has
 * freed may be given to another, and what happened there before is no conflict with what happens
 * then. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "machine/sim/world.h"

void __real_free(void *memory); /* NOLINT: the linker's names */
void __wrap_free(void *memory); /* NOLINT */

void __wrap_free(void *memory)
{
    if (memory != NULL && sim_world != NULL && sim_current() != NULL)
        sim_shadow_forget(memory, malloc_usable_size(memory));
    __real_free(memory);
}

void sim_free(void *memory)
{
    __real_free(memory);
}

/* ---------------------------------------------------------------- memory of the run */

enum { CHUNK_BYTES = 1 << 20, ALIGNMENT = 16 };

/* Kept from run to run. Pieces are given away from front to back. */
struct chunk {
    struct chunk *next;
    size_t used_bytes;
    _Alignas(ALIGNMENT) char memory[CHUNK_BYTES];
};

static struct chunk *chunks;  /* the first of them */
static struct chunk *current; /* NULL: nothing has been given away in this run */
static uint64_t run_number = 1;

void sim_end_without_memory(void)
{
    fputs("weft sim: out of memory for what the sim keeps of the past\n", stderr);
    abort(); /* a checker that forgets would miss races */
}

static struct chunk *next_chunk(void)
{
    struct chunk **place = current != NULL ? &current->next : &chunks;
    if (*place == NULL)
        *place = calloc(1, sizeof **place);
    if (*place == NULL)
        sim_end_without_memory();
    (*place)->used_bytes = 0;
    return *place;
}

void *sim_run_alloc(size_t num_bytes)
{
    const size_t padded = (num_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (padded > CHUNK_BYTES)
        sim_end_without_memory();
    if (current == NULL || current->used_bytes + padded > sizeof current->memory)
        current = next_chunk();
    void *piece = current->memory + current->used_bytes;
    current->used_bytes += padded;
    return memset(piece, 0, num_bytes);
}

uint64_t sim_run_number(void)
{
    return run_number;
}

void sim_run_memory_reset(void)
{
    current = NULL;
    run_number++;
}
