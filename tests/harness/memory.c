/* SPDX-License-Identifier: MIT */
#include "harness/memory.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ALIGNMENT = 64 };

/* So many addresses; pages that nobody has touched cost nothing. */
static const size_t copied_bytes = (size_t)8 << 30, common_bytes = (size_t)1 << 30;

/* Blocks lie one behind the other, each with its header before it. Room is given back from the end,
 * and altogether when no block is left. */
struct region {
    char *start;
    size_t bytes, used, touched; /* what has been touched is no longer zero */
    size_t num_blocks;
};

struct header {
    struct region *region;
    size_t bytes;
};

static struct region copied, common;
static int memory_fd = -1;
static int is_worker;

static void give_up(const char *what, size_t bytes)
{
    fprintf(stderr, "the test is out of memory (%s, %zu bytes)\n", what, bytes);
    abort();
}

void memory_open(void)
{
    const size_t bytes = copied_bytes + common_bytes;
    memory_fd = memfd_create("tests", MFD_CLOEXEC);
    if (memory_fd < 0 || ftruncate(memory_fd, (off_t)bytes) != 0)
        give_up("memfd_create", bytes);
    char *start =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memory_fd, 0);
    if (start == MAP_FAILED)
        give_up("mmap", bytes);
    copied = (struct region){.start = start, .bytes = copied_bytes};
    common = (struct region){.start = start + copied_bytes, .bytes = common_bytes};
}

void memory_enter_worker(void)
{
    is_worker = 1;
}

/* A private mapping of a file shows the file until it is written to. */
void memory_take_copy(void)
{
    if (mmap(copied.start, copied.bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, memory_fd, 0) == MAP_FAILED)
        give_up("mmap", copied.bytes);
}

static void *region_alloc(struct region *region, size_t bytes)
{
    const size_t whole = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT + ALIGNMENT;
    if (bytes > region->bytes || whole > region->bytes - region->used)
        give_up("memory for ranks", bytes);
    char *block = region->start + region->used + ALIGNMENT;
    region->used += whole;
    region->num_blocks++;
    const size_t touched = region->start + region->touched > block
                               ? (size_t)(region->start + region->touched - block)
                               : 0;
    memset(block, 0, touched < bytes ? touched : bytes);
    if (region->touched < region->used)
        region->touched = region->used;
    const struct header header = {region, whole};
    memcpy(block - sizeof header, &header, sizeof header);
    return block;
}

static void region_free(char *block)
{
    struct header header;
    memcpy(&header, block - sizeof header, sizeof header);
    struct region *region = header.region;
    if (block - ALIGNMENT + header.bytes == region->start + region->used)
        region->used -= header.bytes;
    if (--region->num_blocks == 0)
        region->used = 0;
}

static int is_copied(const void *memory)
{
    const uintptr_t start = (uintptr_t)copied.start;
    return copied.start != NULL && (uintptr_t)memory - start < copied.bytes;
}

void *tests_alloc(size_t bytes)
{
    if (copied.start != NULL && !is_worker)
        return region_alloc(&copied, bytes);
    void *memory = calloc(1, bytes == 0 ? 1 : bytes);
    if (memory == NULL)
        give_up("calloc", bytes);
    return memory;
}

void tests_free(const void *memory)
{
    if (is_copied(memory))
        region_free((char *)(uintptr_t)memory);
    else
        free((void *)(uintptr_t)memory);
}

void *memory_alloc_common(size_t bytes)
{
    return region_alloc(&common, bytes);
}

void memory_free_common(void *memory)
{
    region_free(memory);
}
