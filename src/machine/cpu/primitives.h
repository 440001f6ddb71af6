/* SPDX-License-Identifier: MIT */
/* The primitives on the cpu machine. A warp is a fiber with one lane; all fibers of a launch share
 * one thread, so only what other ranks or streams touch needs atomic operations. */
#ifndef WEFT_MACHINE_CPU_PRIMITIVES_H
#define WEFT_MACHINE_CPU_PRIMITIVES_H

#include <string.h>

#include "machine/cpu/rows.h"

#define WEFT_WARP_SIZE 1
#define WEFT_FN        static inline

struct weft__cpu_launch;
struct weft__cpu_block;

struct weft_warp {
    int32_t block_idx;
    int32_t num_blocks;
    int32_t warp_idx;
    int32_t num_warps;
    struct weft__cpu_block *block;
    struct weft__cpu_launch *launch;
    const void *pointers[WEFT_WARP_POINTERS];
    uint64_t shared[WEFT_WARP_SHARED_BYTES / sizeof(uint64_t)];
};

/* launch.c */
void weft__cpu_block_sync(struct weft_warp *warp);
void *weft__cpu_block_shared(struct weft_warp *warp);
/* Wakes the rank if it waits for one of these words, which have been stored to. */
void weft__cpu_ring(struct weft_warp *warp, int32_t rank, const uint64_t *words,
                    uint64_t num_words);
/* The same, also of this rank: another stream of it may wait. */
void weft__cpu_ring_any(struct weft_warp *warp, int32_t rank, const uint64_t *word);
enum weft_status weft__cpu_wait(struct weft_warp *warp, const uint64_t *word, uint64_t at_least,
                                const struct weft_wait_site *site);
enum weft_status weft__cpu_fail(struct weft_warp *warp, const struct weft_failure *failure);

/* remote.c */
/* Gives it to the rank's progress thread, as a release. */

/* The same of accesses. */
uint64_t weft__cpu_remote_post(struct weft_warp *warp, const struct weft_access *access);
enum weft_status weft__cpu_remote_await(struct weft_warp *warp, uint64_t number,
                                        const struct weft_wait_site *site);

/* packets.c */
void weft__cpu_packets_send(struct weft_warp *warp, const struct weft_packets *packets,
                            struct weft_packet_targets to, const void *src, uint64_t bytes);
enum weft_status weft__cpu_packets_receive(struct weft_warp *warp,
                                           const struct weft_packets *packets, int32_t from,
                                           uint64_t slot, void *dst, uint64_t bytes);
enum weft_status weft__cpu_packets_reduce(struct weft_warp *warp,
                                          const struct weft_packets *packets,
                                          const struct weft_packet_sources *from, void *dst,
                                          struct weft_reduction reduction, uint64_t num_elements);

#define WEFT_PACKET_BYTES 8

void weft__cpu_packets_send_words(struct weft_warp *warp, const struct weft_packets *packets,
                                  struct weft_packet_targets to, const uint64_t words[2]);
enum weft_status weft__cpu_packets_take_words(struct weft_warp *warp,
                                              const struct weft_packets *packets, int32_t from,
                                              uint64_t slot, uint64_t words[2]);

#define WEFT_PROGRAM_SYMBOL(name) weft__cpu_##name

/* Defines program `name` over `struct weft_<name>_args`. */
#define WEFT_PROGRAM(name, warp, args)                                                             \
    static enum weft_status name##_body(struct weft_warp *warp,                                    \
                                        const struct weft_##name##_args *args);                    \
    enum weft_status weft__cpu_##name(struct weft_warp *warp, const void *args);                   \
    enum weft_status weft__cpu_##name(struct weft_warp *warp, const void *args)                    \
    {                                                                                              \
        return name##_body(warp, (const struct weft_##name##_args *)args);                         \
    }                                                                                              \
    static enum weft_status name##_body(struct weft_warp *warp,                                    \
                                        const struct weft_##name##_args *args)

WEFT_FN int32_t weft_block_idx(const struct weft_warp *warp)
{
    return warp->block_idx;
}

WEFT_FN int32_t weft_num_blocks(const struct weft_warp *warp)
{
    return warp->num_blocks;
}

WEFT_FN int32_t weft_warp_idx(const struct weft_warp *warp)
{
    return warp->warp_idx;
}

WEFT_FN int32_t weft_num_warps(const struct weft_warp *warp)
{
    return warp->num_warps;
}

WEFT_FN int32_t weft_lane_idx(const struct weft_warp *warp)
{
    (void)warp;
    return 0;
}

WEFT_FN void weft_warp_sync(struct weft_warp *warp)
{
    (void)warp;
}

WEFT_FN void weft_block_sync(struct weft_warp *warp)
{
    if (warp->num_warps > 1)
        weft__cpu_block_sync(warp);
}

WEFT_FN uint32_t weft_ballot(struct weft_warp *warp, int predicate)
{
    (void)warp;
    return predicate ? 1u : 0u;
}

WEFT_FN int32_t weft_lanes_below(struct weft_warp *warp, uint32_t ballot)
{
    (void)warp;
    (void)ballot;
    return 0;
}

WEFT_FN int32_t weft_popcount(uint32_t ballot)
{
    return __builtin_popcount(ballot);
}

WEFT_FN uint32_t weft_max_u32(struct weft_warp *warp, uint32_t value)
{
    (void)warp;
    return value;
}

WEFT_FN int32_t weft_prefix_sum(struct weft_warp *warp, int32_t value, int32_t *total)
{
    (void)warp;
    *total = value;
    return 0;
}

WEFT_FN void *weft_block_shared(struct weft_warp *warp)
{
    return weft__cpu_block_shared(warp);
}

WEFT_FN void *weft_warp_shared(struct weft_warp *warp)
{
    return warp->shared;
}

WEFT_FN const void **weft_warp_pointers(struct weft_warp *warp)
{
    return warp->pointers;
}

/* Launches of a stream run one after the other, and what they do is visible to all who learn of it. */
WEFT_FN void weft_admit_next(struct weft_warp *warp)
{
    (void)warp;
}
WEFT_FN void weft_fence_launches(struct weft_warp *warp)
{
    (void)warp;
}

WEFT_FN uint32_t weft_add_acq_rel(uint32_t *word, uint32_t value)
{
    return __atomic_fetch_add(word, value, __ATOMIC_ACQ_REL);
}

WEFT_FN int32_t weft_add_relaxed(int32_t *word, int32_t value)
{
    return __atomic_fetch_add(word, value, __ATOMIC_RELAXED);
}

WEFT_FN int32_t weft_load_relaxed(const int32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}

/* Before a release, which does not order the streaming stores of row copies. */
WEFT_FN void weft__cpu_order_row_stores(void)
{
#ifdef __x86_64__
    __builtin_ia32_sfence();
#endif
}

WEFT_FN void weft_row_sync(struct weft_warp *warp)
{
    (void)warp;
    weft__cpu_order_row_stores();
}

WEFT_FN void weft_signal(struct weft_warp *warp, int32_t rank, uint64_t *word, uint64_t value)
{
    weft__cpu_order_row_stores();
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
    weft__cpu_ring(warp, rank, word, 1);
}

WEFT_FN uint64_t weft_remote_post(struct weft_warp *warp, const struct weft_access *access)
{
    weft__cpu_order_row_stores();
    return weft__cpu_remote_post(warp, access);
}

WEFT_FN enum weft_status weft_remote_await(struct weft_warp *warp, uint64_t number,
                                           const struct weft_wait_site *site)
{
    return weft__cpu_remote_await(warp, number, site);
}

WEFT_FN uint64_t weft_fetch_add(struct weft_warp *warp, int32_t rank, uint64_t *word, uint64_t add)
{
    weft__cpu_order_row_stores();
    const uint64_t before = __atomic_fetch_add(word, add, __ATOMIC_ACQ_REL);
    weft__cpu_ring_any(warp, rank, word);
    return before;
}

WEFT_FN enum weft_status weft_wait(struct weft_warp *warp, const uint64_t *word, uint64_t at_least,
                                   const struct weft_wait_site *site)
{
    if (__atomic_load_n(word, __ATOMIC_ACQUIRE) >= at_least)
        return WEFT_STATUS_OK;
    return weft__cpu_wait(warp, word, at_least, site);
}

WEFT_FN enum weft_status weft_fail(struct weft_warp *warp, const struct weft_failure *failure)
{
    return weft__cpu_fail(warp, failure);
}

WEFT_FN void weft_row_prefetch(struct weft_warp *warp, const void *src, uint64_t row_bytes)
{
    (void)warp;
    (void)src;
    (void)row_bytes;
}

WEFT_FN void weft_row_copy(struct weft_warp *warp, const void *const *dsts, int32_t num_dsts,
                           const void *src, uint64_t row_bytes)
{
    (void)warp;
    for (int32_t i = 0; i < num_dsts; i++) {
        if (dsts[i] != NULL)
            weft__cpu_row_copy((void *)(uintptr_t)dsts[i], src, row_bytes);
    }
}

/* By ordinary stores: streaming ones would put the row out of the cache. */
WEFT_FN void weft_row_stage(struct weft_warp *warp, const void *const *dsts, int32_t num_dsts,
                            const void *src, uint64_t row_bytes)
{
    (void)warp;
    for (int32_t i = 0; i < num_dsts; i++) {
        if (dsts[i] != NULL)
            memcpy((void *)(uintptr_t)dsts[i], src, row_bytes);
    }
}

WEFT_FN void weft_row_reduce(struct weft_warp *warp, const void *const *dsts, int32_t num_dsts,
                             const void *const *srcs, int32_t num_srcs,
                             struct weft_reduction reduction, int64_t num_elements)
{
    (void)warp;
    weft__cpu_row_reduce(dsts, num_dsts, srcs, num_srcs, reduction, num_elements);
}

WEFT_FN void weft_row_sum_mixed(struct weft_warp *warp, void *dst, const void *const *srcs,
                                int32_t num_srcs, struct weft_mixed_sum sum, int64_t num_elements)
{
    (void)warp;
    weft__cpu_row_sum_mixed(dst, srcs, num_srcs, sum, num_elements);
}

/* A row that is to be sent. */
struct weft_packet_row {
    const void *src;
    uint64_t bytes;
};

WEFT_FN struct weft_packet_row weft_packets_load(struct weft_warp *warp, const void *src,
                                                 uint64_t bytes)
{
    (void)warp;
    const struct weft_packet_row row = {src, bytes};
    return row;
}

WEFT_FN void weft_packets_send(struct weft_warp *warp, const struct weft_packets *packets,
                               struct weft_packet_targets to, const struct weft_packet_row *row)
{
    weft__cpu_packets_send(warp, packets, to, row->src, row->bytes);
}

WEFT_FN enum weft_status weft_packets_receive(struct weft_warp *warp,
                                              const struct weft_packets *packets, int32_t from,
                                              uint64_t slot, void *dst, uint64_t bytes)
{
    return weft__cpu_packets_receive(warp, packets, from, slot, dst, bytes);
}

WEFT_FN enum weft_status weft_packets_reduce(struct weft_warp *warp,
                                             const struct weft_packets *packets,
                                             const struct weft_packet_sources *from, void *dst,
                                             struct weft_reduction reduction, uint64_t num_elements)
{
    return weft__cpu_packets_reduce(warp, packets, from, dst, reduction, num_elements);
}

WEFT_FN void weft_packets_send_words(struct weft_warp *warp, const struct weft_packets *packets,
                                     struct weft_packet_targets to, const uint64_t words[2])
{
    weft__cpu_packets_send_words(warp, packets, to, words);
}

WEFT_FN enum weft_status weft_packets_take_words(struct weft_warp *warp,
                                                 const struct weft_packets *packets, int32_t from,
                                                 uint64_t slot, uint64_t words[2])
{
    return weft__cpu_packets_take_words(warp, packets, from, slot, words);
}

WEFT_FN void weft_acquire_packets(struct weft_warp *warp)
{
    (void)warp;
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
}

/* A tagged row: its words behind the number of the operation, which is signalled. */
#define WEFT_TAGGED_BYTES(num_words) (sizeof(uint64_t) + (num_words) * sizeof(uint32_t))

WEFT_FN void weft_tagged_send(struct weft_warp *warp, int32_t rank, void *row, const void *words,
                              int32_t num_words, uint64_t sequence)
{
    memcpy((uint64_t *)row + 1, words, (size_t)num_words * sizeof(uint32_t));
    weft_signal(warp, rank, (uint64_t *)row, sequence);
}

WEFT_FN enum weft_status weft_tagged_take(struct weft_warp *warp, const void *row, void *words,
                                          int32_t num_words, const struct weft_wait_site *site)
{
    const enum weft_status status = weft_wait(warp, (const uint64_t *)row, site->sequence, site);
    if (status == WEFT_STATUS_OK)
        memcpy(words, (const uint64_t *)row + 1, (size_t)num_words * sizeof(uint32_t));
    return status;
}

WEFT_FN uint32_t weft_tagged_word(const void *row, int32_t word)
{
    return ((const uint32_t *)((const uint64_t *)row + 1))[word];
}

#endif
