/* SPDX-License-Identifier: MIT */
/*
 * Memory of arenas for PyTorch's allocator: torch.cuda.memory.CUDAPluggableAllocator loads two
 * functions by their names and passes them nothing of its user's. So there is a fixed number of
 * pools, each with two functions of its own, numbered in octal: pool_alloc_00, pool_free_00, ...
 *
 * PyTorch calls them with a lock held, with Python's or without, from any thread, and as late as
 * when the process exits. So nothing here calls Python or waits for other ranks; and a pool may be
 * closed, so that its arenas can end, while PyTorch still has memory of it. Where arenas are full
 * there is NULL, for which PyTorch raises an error, or memory outside of them, which weft copies;
 * but PyTorch keeps that, and prefers it later.
 */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define EXPORTED __attribute__((visibility("default")))

enum { NUM_POOLS = 32, MAX_ARENAS = 16, OUTSIDE = -1 };

/* Of libweft, which this is not linked with: Python has chosen one. */
struct functions {
    int32_t (*arena_alloc)(void *arena, uint64_t bytes, void **ptr);
    int32_t (*arena_free)(void *arena, void *ptr);
    int32_t (*outside_alloc)(void **ptr, size_t bytes); /* cuMemAlloc; NULL: there is none */
    int32_t (*outside_free)(void *ptr);                 /* cuMemFree */
};

struct block {
    void *ptr;
    int32_t arena; /* its index, or OUTSIDE */
};

struct pool {
    pthread_mutex_t mutex;
    int32_t is_taken; /* by an allocator of PyTorch's */
    struct functions functions;
    void *arenas[MAX_ARENAS];
    int32_t num_arenas; /* 0 when it is closed */
    struct block *blocks;
    int64_t num_blocks, max_blocks;
};

#define POOL                                                                                       \
    {                                                                                              \
        .mutex = PTHREAD_MUTEX_INITIALIZER                                                         \
    }
#define POOLS_4  POOL, POOL, POOL, POOL
#define POOLS_16 POOLS_4, POOLS_4, POOLS_4, POOLS_4
static struct pool pools[NUM_POOLS] = {POOLS_16, POOLS_16};

/* ---------------------------------------------------------------- blocks */

static int has_room_for_block(struct pool *pool)
{
    if (pool->num_blocks < pool->max_blocks)
        return 1;
    const int64_t max = pool->max_blocks * 2 + 16;
    struct block *blocks = realloc(pool->blocks, (size_t)max * sizeof *blocks);
    if (blocks == NULL)
        return 0;
    pool->blocks = blocks;
    pool->max_blocks = max;
    return 1;
}

/* The index of the arena that had room. */
static int32_t alloc_block(const struct pool *pool, uint64_t bytes, void **ptr)
{
    for (int32_t i = 0; i < pool->num_arenas; i++)
        if (pool->functions.arena_alloc(pool->arenas[i], bytes, ptr) == 0)
            return i;
    *ptr = NULL;
    if (pool->functions.outside_alloc != NULL && pool->functions.outside_alloc(ptr, bytes) != 0)
        *ptr = NULL;
    return OUTSIDE;
}

__attribute__((noinline)) static void *alloc(struct pool *pool, ptrdiff_t bytes)
{
    void *ptr = NULL;
    pthread_mutex_lock(&pool->mutex);
    if (pool->is_taken && bytes > 0 && has_room_for_block(pool)) {
        const int32_t arena = alloc_block(pool, (uint64_t)bytes, &ptr);
        if (ptr != NULL)
            pool->blocks[pool->num_blocks++] = (struct block){ptr, arena};
    }
    pthread_mutex_unlock(&pool->mutex);
    return ptr;
}

/* Arenas of a closed pool may have ended, and what was in them with them. */
static void free_block(const struct pool *pool, struct block block)
{
    if (block.arena == OUTSIDE)
        (void)pool->functions.outside_free(block.ptr);
    else if (pool->num_arenas > 0)
        (void)pool->functions.arena_free(pool->arenas[block.arena], block.ptr);
}

__attribute__((noinline)) static void release(struct pool *pool, void *ptr)
{
    pthread_mutex_lock(&pool->mutex);
    for (int64_t i = 0; i < pool->num_blocks; i++)
        if (pool->blocks[i].ptr == ptr) {
            free_block(pool, pool->blocks[i]);
            pool->blocks[i] = pool->blocks[--pool->num_blocks];
            break;
        }
    pthread_mutex_unlock(&pool->mutex);
}

/* ---------------------------------------------------------------- for PyTorch */

/* Of pool 8 * EIGHT + ONE. */
#define FUNCTIONS(eight, one)                                                                      \
    EXPORTED void *pool_alloc_##eight##one(ptrdiff_t bytes, int device, void *stream);             \
    EXPORTED void pool_free_##eight##one(void *ptr, ptrdiff_t bytes, int device, void *stream);    \
    void *pool_alloc_##eight##one(ptrdiff_t bytes, int device, void *stream)                       \
    {                                                                                              \
        (void)device, (void)stream;                                                                \
        return alloc(&pools[8 * eight + one], bytes);                                              \
    }                                                                                              \
    void pool_free_##eight##one(void *ptr, ptrdiff_t bytes, int device, void *stream)              \
    {                                                                                              \
        (void)bytes, (void)device, (void)stream;                                                   \
        release(&pools[8 * eight + one], ptr);                                                     \
    }
#define FUNCTIONS_OF_4(eight, a, b, c, d)                                                          \
    FUNCTIONS(eight, a) FUNCTIONS(eight, b) FUNCTIONS(eight, c) FUNCTIONS(eight, d)
#define FUNCTIONS_OF_8(eight) FUNCTIONS_OF_4(eight, 0, 1, 2, 3) FUNCTIONS_OF_4(eight, 4, 5, 6, 7)

FUNCTIONS_OF_8(0)
FUNCTIONS_OF_8(1)
FUNCTIONS_OF_8(2)
FUNCTIONS_OF_8(3)

/* ---------------------------------------------------------------- for Python */

EXPORTED int32_t pool_open(const struct functions *functions);
EXPORTED int32_t pool_add(int32_t pool_idx, void *arena);
EXPORTED int64_t pool_num_blocks(int32_t pool_idx);
EXPORTED void pool_close(int32_t pool_idx);
EXPORTED void pool_give_back(int32_t pool_idx);

/* The number of a pool, which has no arenas yet; -1: all are taken. */
int32_t pool_open(const struct functions *functions)
{
    for (int32_t i = 0; i < NUM_POOLS; i++) {
        struct pool *pool = &pools[i];
        pthread_mutex_lock(&pool->mutex);
        const int is_free = !pool->is_taken && pool->num_blocks == 0;
        if (is_free) {
            pool->is_taken = 1;
            pool->functions = *functions;
        }
        pthread_mutex_unlock(&pool->mutex);
        if (is_free)
            return i;
    }
    return -1;
}

/* 0, or -1 if it has too many. The arena is the pool's alone, until it is closed. */
int32_t pool_add(int32_t pool_idx, void *arena)
{
    struct pool *pool = &pools[pool_idx];
    pthread_mutex_lock(&pool->mutex);
    const int has_room = pool->num_arenas < MAX_ARENAS;
    if (has_room)
        pool->arenas[pool->num_arenas++] = arena;
    pthread_mutex_unlock(&pool->mutex);
    return has_room ? 0 : -1;
}

/* Those of arenas that PyTorch has. */
int64_t pool_num_blocks(int32_t pool_idx)
{
    struct pool *pool = &pools[pool_idx];
    int64_t num = 0;
    pthread_mutex_lock(&pool->mutex);
    for (int64_t i = 0; i < pool->num_blocks; i++)
        num += pool->blocks[i].arena != OUTSIDE;
    pthread_mutex_unlock(&pool->mutex);
    return num;
}

/* Uses its arenas no more. */
void pool_close(int32_t pool_idx)
{
    struct pool *pool = &pools[pool_idx];
    pthread_mutex_lock(&pool->mutex);
    pool->num_arenas = 0;
    pthread_mutex_unlock(&pool->mutex);
}

/* PyTorch's allocator has ended: the pool may be opened again, once its last block is free. */
void pool_give_back(int32_t pool_idx)
{
    struct pool *pool = &pools[pool_idx];
    pthread_mutex_lock(&pool->mutex);
    pool->num_arenas = 0;
    pool->is_taken = 0;
    pthread_mutex_unlock(&pool->mutex);
}
