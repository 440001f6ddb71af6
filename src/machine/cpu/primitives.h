/* SPDX-License-Identifier: MIT */
/* The primitives on the cpu machine. A warp is a fiber with one lane; all fibers of a launch share
 * one thread, so only what other ranks or streams touch needs atomic operations. */
#pragma once

#include "machine/c_primitives.h"
#include "machine/cpu/cpu_rows.h"

#define WP_WARP_SIZE            1
#define WP_PROGRAM_SYMBOL(name) weft__cpu_##name

struct weft__cpu_launch;
struct weft__cpu_block;

struct wp_warp {
    int32_t block_idx;
    int32_t num_blocks;
    int32_t warp_idx;
    int32_t num_warps;
    struct weft__cpu_block *block;
    struct weft__cpu_launch *launch;
    const void *pointers[WP_WARP_POINTERS];
    uint64_t shared[WP_WARP_SHARED_BYTES / sizeof(uint64_t)];
};

uint64_t weft__cpu_now_ns(void); /* launch.c, as what follows */
void weft__cpu_block_sync(struct wp_warp *warp);
uint32_t weft__cpu_block_turn(const struct wp_warp *warp);
void *weft__cpu_block_shared(struct wp_warp *warp);
/* Wakes the rank if it waits for one of these words, which have been stored to. */
void weft__cpu_ring(struct wp_warp *warp, int32_t rank, const uint64_t *words, uint64_t num_words);
/* The same, also of this rank: another stream of it may wait. */
void weft__cpu_ring_any(struct wp_warp *warp, int32_t rank, const uint64_t *word);
enum wp_status weft__cpu_wait(struct wp_warp *warp, const uint64_t *word, uint64_t at_least,
                              const struct wp_wait_site *site);
enum wp_status weft__cpu_wait_u32(struct wp_warp *warp, const uint32_t *word, uint32_t at_least,
                                  const struct wp_wait_site *site);
enum wp_status weft__cpu_fail(struct wp_warp *warp, const struct wp_failure *failure);

/* remote.c. */
/* Gives it to the rank's progress thread, as a release. */
uint64_t weft__cpu_remote_post(struct wp_warp *warp, const struct wp_access *access);
enum wp_status weft__cpu_remote_await(struct wp_warp *warp, uint64_t number,
                                      const struct wp_wait_site *site);

#define wp_lane_idx(warp)                 ((void)(warp), 0)
#define wp_warp_sync(warp)                ((void)(warp))
#define wp_block_turn                     weft__cpu_block_turn
#define wp_block_shared                   weft__cpu_block_shared
#define wp_warp_pointers(warp)            ((warp)->pointers)
#define wp_ballot(warp, predicate)        ((void)(warp), (predicate) ? 1u : 0u)
#define wp_lanes_below(warp, ballot)      ((void)(warp), (void)(ballot), 0)
#define wp_same_below(warp, value)        ((void)(warp), (void)(value), 0)
#define wp_max_u32(warp, value)           ((void)(warp), (uint32_t)(value))
#define wp_sum_u32                        wp_max_u32
#define wp_or_u32                         wp_max_u32
#define wp_prefix_sum(warp, value, total) ((void)(warp), *(total) = (value), 0)

WP_FN void *wp_warp_shared(struct wp_warp *warp)
{
    return warp->shared;
}

WP_FN void wp_block_sync(struct wp_warp *warp)
{
    if (warp->num_warps > 1)
        weft__cpu_block_sync(warp);
}

/* Whoever learns of a launch sees what it did. */
#define wp_fence_launches(warp) ((void)(warp))

#define wp_add_acq_rel(word, value)   __atomic_fetch_add(word, value, __ATOMIC_ACQ_REL)
#define wp_add_relaxed(word, value)   __atomic_fetch_add(word, value, __ATOMIC_RELAXED)
#define wp_or_relaxed(word, bits)     __atomic_fetch_or(word, bits, __ATOMIC_RELAXED)
#define wp_load_relaxed(word)         __atomic_load_n(word, __ATOMIC_RELAXED)
#define wp_store_relaxed(word, value) __atomic_store_n(word, value, __ATOMIC_RELAXED)

WP_FN int32_t wp_compare_swap_relaxed(int32_t *word, int32_t expected, int32_t desired)
{
    __atomic_compare_exchange_n(word, &expected, desired, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}

/* Before a release, which does not order the streaming stores of row copies. */
WP_FN void weft__cpu_order_row_stores(void)
{
#ifdef __x86_64__
    __builtin_ia32_sfence();
#endif
}

#define wp_row_sync(warp) ((void)(warp), weft__cpu_order_row_stores())

WP_FN void wp_signal(struct wp_warp *warp, int32_t rank, uint64_t *word, uint64_t value)
{
    weft__cpu_order_row_stores();
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
    weft__cpu_ring(warp, rank, word, 1);
}

/* Only the sim has to tell them apart. */
#define wp_credit wp_signal
#define wp_tell   wp_signal

#define wp_clear(word) __atomic_store_n(word, 0, __ATOMIC_RELAXED)
WP_FN uint64_t wp_remote_post(struct wp_warp *warp, const struct wp_access *access)
{
    weft__cpu_order_row_stores();
    return weft__cpu_remote_post(warp, access);
}

#define wp_remote_await weft__cpu_remote_await

WP_FN uint64_t wp_fetch_add(struct wp_warp *warp, int32_t rank, uint64_t *word, uint64_t add)
{
    weft__cpu_order_row_stores();
    const uint64_t before = __atomic_fetch_add(word, add, __ATOMIC_ACQ_REL);
    weft__cpu_ring_any(warp, rank, word);
    return before;
}

#define wp_now_ns(warp) ((void)(warp), weft__cpu_now_ns())

WP_FN enum wp_status wp_wait(struct wp_warp *warp, const uint64_t *word, uint64_t at_least,
                             const struct wp_wait_site *site)
{
    if (__atomic_load_n(word, __ATOMIC_ACQUIRE) >= at_least)
        return WP_STATUS_OK;
    return weft__cpu_wait(warp, word, at_least, site);
}

WP_FN enum wp_status wp_wait_value(struct wp_warp *warp, const uint64_t *word, uint64_t at_least,
                                   const struct wp_wait_site *site, uint64_t *seen)
{
    const enum wp_status status = wp_wait(warp, word, at_least, site);
    *seen = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    return status;
}

WP_FN enum wp_status wp_wait_u32(struct wp_warp *warp, const uint32_t *word, uint32_t at_least,
                                 const struct wp_wait_site *site)
{
    if (__atomic_load_n(word, __ATOMIC_ACQUIRE) >= at_least)
        return WP_STATUS_OK;
    return weft__cpu_wait_u32(warp, word, at_least, site);
}

#define wp_fail                               weft__cpu_fail
#define wp_row_prefetch(warp, src, row_bytes) ((void)(warp), (void)(src), (void)(row_bytes))

WP_FN void wp_row_copy(struct wp_warp *warp, const void *const *dsts, int32_t num_dsts,
                       const void *src, uint64_t row_bytes)
{
    (void)warp;
    for (int32_t i = 0; i < num_dsts; i++) {
        if (dsts[i] != NULL)
            weft__cpu_row_copy((void *)(uintptr_t)dsts[i], src, row_bytes);
    }
}

/* Streaming stores would put the row out of the cache. */
WP_FN void wp_row_copy_for(struct wp_warp *warp, enum wp_reuse reuse, const void *const *dsts,
                           int32_t num_dsts, const void *src, uint64_t row_bytes)
{
    if (reuse == WP_READ_LATER) {
        wp_row_copy(warp, dsts, num_dsts, src, row_bytes);
        return;
    }
    for (int32_t i = 0; i < num_dsts; i++) {
        if (dsts[i] != NULL)
            memcpy((void *)(uintptr_t)dsts[i], src, row_bytes);
    }
}

WP_FN void wp_row_copy_each(struct wp_warp *warp, enum wp_reuse reuse, const void *const *dsts,
                            const void *const *srcs, int32_t num_rows, uint64_t row_bytes)
{
    for (int32_t i = 0; i < num_rows; i++) {
        if (srcs[i] == NULL)
            memset((void *)(uintptr_t)dsts[i], 0, row_bytes);
        else
            wp_row_copy_for(warp, reuse, &dsts[i], 1, srcs[i], row_bytes);
    }
}

#define wp_row_reduce(warp, ...)       ((void)(warp), weft__cpu_rows()->reduce(__VA_ARGS__))
#define wp_row_reduce_compact          wp_row_reduce
#define wp_row_sum_mixed(warp, ...)    ((void)(warp), weft__cpu_rows()->sum_mixed(__VA_ARGS__))
#define wp_row_weighted_sum(warp, ...) ((void)(warp), weft__cpu_rows()->weighted_sum(__VA_ARGS__))
#define wp_row_quantise(warp, ...)     ((void)(warp), weft__cpu_rows()->quantise(__VA_ARGS__))
#define wp_row_dequantise(warp, ...)   ((void)(warp), weft__cpu_rows()->dequantise(__VA_ARGS__))

/* A tagged row: its words behind the number of the operation, which is signalled. */
#define WP_TAGGED_BYTES(num_words) (sizeof(uint64_t) + (num_words) * sizeof(uint32_t))

WP_FN void wp_tagged_send(struct wp_warp *warp, int32_t rank, void *row, const void *words,
                          int32_t num_words, uint64_t sequence)
{
    memcpy((uint64_t *)row + 1, words, (size_t)num_words * sizeof(uint32_t));
    wp_signal(warp, rank, (uint64_t *)row, sequence);
}

WP_FN enum wp_status wp_tagged_take(struct wp_warp *warp, const void *row, void *words,
                                    int32_t num_words, const struct wp_wait_site *site)
{
    const enum wp_status status = wp_wait(warp, (const uint64_t *)row, site->sequence, site);
    if (status == WP_STATUS_OK)
        memcpy(words, (const uint64_t *)row + 1, (size_t)num_words * sizeof(uint32_t));
    return status;
}

#define wp_tagged_take_relaxed wp_tagged_take

WP_FN uint32_t wp_tagged_word(const void *row, int32_t word)
{
    return ((const uint32_t *)((const uint64_t *)row + 1))[word];
}

#define WEFT__PACKETS(name) weft__cpu_packets_##name
#define WEFT__PACKETS_PLACE
#define WEFT__PACKETS_HERE
#include "machine/word_packets.h"

WP_FN void wp_acquire_packets(struct wp_warp *warp)
{
    (void)warp;
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
}
