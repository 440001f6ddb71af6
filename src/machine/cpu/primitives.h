/* SPDX-License-Identifier: MIT */
/* The primitives on the cpu machine. A warp is a fiber with one lane; all fibers of a launch share
 * one thread, so only what other ranks or streams touch needs atomic operations. */
#pragma once

#include <string.h>

#include "machine/cpu/cpu_rows.h"

#define WP_WARP_SIZE 1
#define WP_FN        static inline
#define WP_CALLED_FN static inline

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

/* remote.c */
/* Gives it to the rank's progress thread, as a release. */
uint64_t weft__cpu_remote_post(struct wp_warp *warp, const struct wp_access *access);
enum wp_status weft__cpu_remote_await(struct wp_warp *warp, uint64_t number,
                                      const struct wp_wait_site *site);

#define WP_PROGRAM_SYMBOL(name) weft__cpu_##name

/* Defines program `name` over `struct weft_<name>_args`. */
#define WP_PROGRAM(name, warp, args)                                                               \
    static enum wp_status name##_body(struct wp_warp *warp, const struct wp_##name##_args *args);  \
    enum wp_status weft__cpu_##name(struct wp_warp *warp, const void *args);                       \
    enum wp_status weft__cpu_##name(struct wp_warp *warp, const void *args)                        \
    {                                                                                              \
        return name##_body(warp, (const struct wp_##name##_args *)args);                           \
    }                                                                                              \
    static enum wp_status name##_body(struct wp_warp *warp, const struct wp_##name##_args *args)

WP_FN int32_t wp_block_idx(const struct wp_warp *warp)
{
    return warp->block_idx;
}

WP_FN int32_t wp_num_blocks(const struct wp_warp *warp)
{
    return warp->num_blocks;
}

WP_FN int32_t wp_warp_idx(const struct wp_warp *warp)
{
    return warp->warp_idx;
}

WP_FN int32_t wp_num_warps(const struct wp_warp *warp)
{
    return warp->num_warps;
}

WP_FN int32_t wp_lane_idx(const struct wp_warp *warp)
{
    (void)warp;
    return 0;
}

WP_FN void wp_warp_join(struct wp_warp *warp)
{
    (void)warp;
}

WP_FN void wp_warp_sync(struct wp_warp *warp)
{
    (void)warp;
}

WP_FN void wp_block_sync(struct wp_warp *warp)
{
    if (warp->num_warps > 1)
        weft__cpu_block_sync(warp);
}

WP_FN uint32_t wp_block_turn(const struct wp_warp *warp)
{
    return weft__cpu_block_turn(warp);
}

WP_FN uint32_t wp_ballot(struct wp_warp *warp, int predicate)
{
    (void)warp;
    return predicate ? 1u : 0u;
}

WP_FN int32_t wp_lanes_below(struct wp_warp *warp, uint32_t ballot)
{
    (void)warp;
    (void)ballot;
    return 0;
}

WP_FN int32_t wp_popcount(uint32_t ballot)
{
    return __builtin_popcount(ballot);
}

WP_FN int32_t wp_same_below(struct wp_warp *warp, uint32_t value)
{
    (void)warp;
    (void)value;
    return 0;
}

WP_FN uint32_t wp_max_u32(struct wp_warp *warp, uint32_t value)
{
    (void)warp;
    return value;
}

WP_FN uint32_t wp_sum_u32(struct wp_warp *warp, uint32_t value)
{
    (void)warp;
    return value;
}

WP_FN uint32_t wp_or_u32(struct wp_warp *warp, uint32_t value)
{
    (void)warp;
    return value;
}

WP_FN int32_t wp_prefix_sum(struct wp_warp *warp, int32_t value, int32_t *total)
{
    (void)warp;
    *total = value;
    return 0;
}

WP_FN void *wp_block_shared(struct wp_warp *warp)
{
    return weft__cpu_block_shared(warp);
}

WP_FN void *wp_warp_shared(struct wp_warp *warp)
{
    return warp->shared;
}

WP_FN const void **wp_warp_pointers(struct wp_warp *warp)
{
    return warp->pointers;
}

/* Launches of a stream run one after the other, and what they do is visible to all who learn of
 * it. */
WP_FN void wp_admit_next(struct wp_warp *warp)
{
    (void)warp;
}
WP_FN void wp_fence_launches(struct wp_warp *warp)
{
    (void)warp;
}

WP_FN uint32_t wp_add_acq_rel(uint32_t *word, uint32_t value)
{
    return __atomic_fetch_add(word, value, __ATOMIC_ACQ_REL);
}

WP_FN int32_t wp_add_relaxed(int32_t *word, int32_t value)
{
    return __atomic_fetch_add(word, value, __ATOMIC_RELAXED);
}

WP_FN int32_t wp_or_relaxed(int32_t *word, int32_t bits)
{
    return __atomic_fetch_or(word, bits, __ATOMIC_RELAXED);
}

WP_FN int32_t wp_load_relaxed(const int32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}

WP_FN void wp_store_relaxed(int32_t *word, int32_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELAXED);
}

WP_FN uint64_t wp_load_now(const uint64_t *word)
{
    uint64_t value;
    memcpy(&value, word, sizeof value); /* of whatever type */
    return value;
}

WP_FN uint32_t wp_load_now_u32(const uint32_t *word)
{
    uint32_t value;
    memcpy(&value, word, sizeof value);
    return value;
}

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

WP_FN void wp_row_sync(struct wp_warp *warp)
{
    (void)warp;
    weft__cpu_order_row_stores();
}

WP_FN void wp_signal(struct wp_warp *warp, int32_t rank, uint64_t *word, uint64_t value)
{
    weft__cpu_order_row_stores();
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
    weft__cpu_ring(warp, rank, word, 1);
}

/* As a signal: only the sim has to tell them apart. */
WP_FN void wp_credit(struct wp_warp *warp, int32_t rank, uint64_t *word, uint64_t value)
{
    wp_signal(warp, rank, word, value);
}

#define wp_tell wp_credit

WP_FN void wp_clear(uint64_t *word)
{
    __atomic_store_n(word, 0, __ATOMIC_RELAXED);
}

WP_FN uint64_t wp_remote_post(struct wp_warp *warp, const struct wp_access *access)
{
    weft__cpu_order_row_stores();
    return weft__cpu_remote_post(warp, access);
}

WP_FN enum wp_status wp_remote_await(struct wp_warp *warp, uint64_t number,
                                     const struct wp_wait_site *site)
{
    return weft__cpu_remote_await(warp, number, site);
}

WP_FN uint64_t wp_fetch_add(struct wp_warp *warp, int32_t rank, uint64_t *word, uint64_t add)
{
    weft__cpu_order_row_stores();
    const uint64_t before = __atomic_fetch_add(word, add, __ATOMIC_ACQ_REL);
    weft__cpu_ring_any(warp, rank, word);
    return before;
}

WP_FN uint64_t wp_now_ns(const struct wp_warp *warp)
{
    (void)warp;
    return weft__cpu_now_ns();
}

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

WP_FN enum wp_status wp_fail(struct wp_warp *warp, const struct wp_failure *failure)
{
    return weft__cpu_fail(warp, failure);
}

WP_FN void wp_row_prefetch(struct wp_warp *warp, const void *src, uint64_t row_bytes)
{
    (void)warp;
    (void)src;
    (void)row_bytes;
}

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

WP_FN void wp_row_reduce(struct wp_warp *warp, const void *const *dsts, int32_t num_dsts,
                         const void *const *srcs, int32_t num_srcs, struct wp_reduction reduction,
                         int64_t num_elements)
{
    (void)warp;
    weft__cpu_rows()->reduce(dsts, num_dsts, srcs, num_srcs, reduction, num_elements);
}

#define wp_row_reduce_compact wp_row_reduce

WP_FN void wp_row_sum_mixed(struct wp_warp *warp, void *dst, const void *const *srcs,
                            int32_t num_srcs, struct wp_mixed_sum sum, int64_t num_elements)
{
    (void)warp;
    weft__cpu_rows()->sum_mixed(dst, srcs, num_srcs, sum, num_elements);
}

WP_FN void wp_row_weighted_sum(struct wp_warp *warp, void *dst, const void *const *srcs,
                               const float *weights, int32_t num_srcs, struct wp_weighted_sum sum,
                               int64_t num_elements)
{
    (void)warp;
    weft__cpu_rows()->weighted_sum(dst, srcs, weights, num_srcs, sum, num_elements);
}

WP_FN void wp_row_quantise(struct wp_warp *warp, struct wp_quantised_rows to, const void *src,
                           struct wp_quantisation how, int64_t num_elements)
{
    (void)warp;
    weft__cpu_rows()->quantise(to, src, how, num_elements);
}

WP_FN void wp_row_dequantise(struct wp_warp *warp, void *dst, const void *src, const void *scales,
                             struct wp_quantisation how, int64_t num_elements)
{
    (void)warp;
    weft__cpu_rows()->dequantise(dst, src, scales, how, num_elements);
}

WP_FN void wp_row_log_encode(struct wp_warp *warp, void *dst, const void *const *srcs,
                             const float *weights, int32_t num_srcs, weft_dtype src_dtype,
                             int64_t num_elements)
{
    (void)warp;
    weft__cpu_rows()->log_encode(dst, srcs, weights, num_srcs, src_dtype, num_elements);
}

WP_FN void wp_row_log_sum(struct wp_warp *warp, void *dst, const void *const *srcs,
                          const float *weights, int32_t num_srcs, weft_dtype dst_dtype,
                          int64_t num_elements)
{
    const struct wp_mixed_sum sum = {0, dst_dtype, WEFT_LOG_10BIT, dst_dtype, WP_READ_LATER};
    (void)warp;
    weft__cpu_rows()->log_sum(dst, srcs, weights, num_srcs, sum, num_elements);
}

WP_FN void wp_row_log_sum_mixed(struct wp_warp *warp, void *dst, const void *const *srcs,
                                int32_t num_srcs, struct wp_mixed_sum sum, int64_t num_elements)
{
    (void)warp;
    weft__cpu_rows()->log_sum(dst, srcs, NULL, num_srcs, sum, num_elements);
}

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

#include "machine/cpu/cpu_packets.h"
