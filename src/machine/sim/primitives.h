/* SPDX-License-Identifier: MIT */
/* The primitives on the sim machine. Each lane of a warp is a fiber, so that missing warp syncs
 * show too. Primitives that order remember where they are called, for reports and for weakening. */
#pragma once

#include <string.h>

#define WP_WARP_SIZE    2
#define WP_PACKET_BYTES 8
#define WP_FN           static inline
#define WP_CALLED_FN    static inline

struct weft__sim_warp;

struct wp_warp {
    int32_t block_idx;
    int32_t num_blocks;
    int32_t warp_idx;
    int32_t num_warps;
    int32_t lane_idx;
    struct weft__sim_warp *shared; /* what its lanes have in common */
};

struct weft__sim_place {
    const char *file;
    int line;
};
#define WEFT__SIM_HERE ((struct weft__sim_place){__FILE__, __LINE__})

void weft__sim_warp_sync(struct wp_warp *warp, struct weft__sim_place place);
void weft__sim_block_sync(struct wp_warp *warp, struct weft__sim_place place);
void weft__sim_row_sync(struct wp_warp *warp, struct weft__sim_place place);
uint64_t weft__sim_remote_post(struct wp_warp *warp, const struct wp_access *access,
                               struct weft__sim_place place);
enum wp_status weft__sim_remote_await(struct wp_warp *warp, uint64_t number,
                                      const struct wp_wait_site *site,
                                      struct weft__sim_place place);
uint64_t weft__sim_fetch_add(struct wp_warp *warp, uint64_t *word, uint64_t add,
                             struct weft__sim_place place);
uint32_t weft__sim_ballot(struct wp_warp *warp, int predicate);
uint32_t weft__sim_max_u32(struct wp_warp *warp, uint32_t value);
uint32_t weft__sim_sum_u32(struct wp_warp *warp, uint32_t value);
uint32_t weft__sim_or_u32(struct wp_warp *warp, uint32_t value);
int32_t weft__sim_same_below(struct wp_warp *warp, uint32_t value);
int32_t weft__sim_prefix_sum(struct wp_warp *warp, int32_t value, int32_t *total);
uint32_t weft__sim_block_turn(const struct wp_warp *warp);
void *weft__sim_block_shared(struct wp_warp *warp);
void *weft__sim_warp_shared(struct wp_warp *warp);
const void **weft__sim_warp_pointers(struct wp_warp *warp);
uint32_t weft__sim_add_acq_rel(uint32_t *word, uint32_t value, struct weft__sim_place place);
int32_t weft__sim_add_relaxed(int32_t *word, int32_t value);
int32_t weft__sim_or_relaxed(int32_t *word, int32_t bits);
int32_t weft__sim_load_relaxed(const int32_t *word);
void weft__sim_store_relaxed(int32_t *word, int32_t value);
int32_t weft__sim_compare_swap_relaxed(int32_t *word, int32_t expected, int32_t desired);
void weft__sim_signal(struct wp_warp *warp, int32_t rank, uint64_t *word, uint64_t value,
                      struct weft__sim_place place);
void weft__sim_credit(struct wp_warp *warp, int32_t rank, uint64_t *word, uint64_t value,
                      struct weft__sim_place place);
void weft__sim_tell(struct wp_warp *warp, int32_t rank, uint64_t *word, uint64_t value,
                    struct weft__sim_place place);
void weft__sim_fence(struct wp_warp *warp);
void weft__sim_clear(uint64_t *word, struct weft__sim_place place);
enum wp_status weft__sim_wait(struct wp_warp *warp, const uint64_t *word, uint64_t at_least,
                              const struct wp_wait_site *site, struct weft__sim_place place);
enum wp_status weft__sim_wait_value(struct wp_warp *warp, const uint64_t *word, uint64_t at_least,
                                    const struct wp_wait_site *site, uint64_t *seen,
                                    struct weft__sim_place place);
enum wp_status weft__sim_wait_u32(struct wp_warp *warp, const uint32_t *word, uint32_t at_least,
                                  const struct wp_wait_site *site, struct weft__sim_place place);
uint64_t weft__sim_now_ns(const struct wp_warp *warp);
enum wp_status weft__sim_fail(struct wp_warp *warp, const struct wp_failure *failure);
void weft__sim_row_prefetch(struct wp_warp *warp, const void *src, uint64_t row_bytes);
void weft__sim_row_copy(struct wp_warp *warp, const void *const *dsts, int32_t num_dsts,
                        const void *src, uint64_t row_bytes, struct weft__sim_place place);
void weft__sim_row_copy_each(struct wp_warp *warp, const void *const *dsts, const void *const *srcs,
                             int32_t num_rows, uint64_t row_bytes, struct weft__sim_place place);
void weft__sim_row_reduce(struct wp_warp *warp, const void *const *dsts, int32_t num_dsts,
                          const void *const *srcs, int32_t num_srcs, struct wp_reduction how,
                          int64_t num_elements, struct weft__sim_place place);
void weft__sim_row_sum_mixed(struct wp_warp *warp, void *dst, const void *const *srcs,
                             int32_t num_srcs, struct wp_mixed_sum sum, int64_t num_elements,
                             struct weft__sim_place place);
void weft__sim_row_weighted_sum(struct wp_warp *warp, void *dst, const void *const *srcs,
                                const float *weights, int32_t num_srcs, struct wp_weighted_sum sum,
                                int64_t num_elements, struct weft__sim_place place);
void weft__sim_row_quantise(struct wp_warp *warp, struct wp_quantised_rows to, const void *src,
                            struct wp_quantisation how, int64_t num_elements,
                            struct weft__sim_place place);
void weft__sim_row_dequantise(struct wp_warp *warp, void *dst, const void *src, const void *scales,
                              struct wp_quantisation how, int64_t num_elements,
                              struct weft__sim_place place);
void weft__sim_row_log_encode(struct wp_warp *warp, void *dst, const void *const *srcs,
                              const float *weights, int32_t num_srcs, weft_dtype src_dtype,
                              int64_t num_elements, struct weft__sim_place place);
void weft__sim_row_log_sum(struct wp_warp *warp, void *dst, const void *const *srcs,
                           const float *weights, int32_t num_srcs, weft_dtype dst_dtype,
                           int64_t num_elements, struct weft__sim_place place);
void weft__sim_row_log_sum_mixed(struct wp_warp *warp, void *dst, const void *const *srcs,
                                 int32_t num_srcs, struct wp_mixed_sum sum, int64_t num_elements,
                                 struct weft__sim_place place);
/* A row that is to be sent. */
struct wp_packet_row {
    const void *src;
    uint64_t bytes;
};
void weft__sim_packets_send(struct wp_warp *warp, const struct wp_packets *packets,
                            struct wp_packet_targets to, const void *src, uint64_t bytes,
                            struct weft__sim_place place);
void weft__sim_packets_send_quantised(struct wp_warp *warp, const struct wp_packets *packets,
                                      struct wp_packet_targets to, uint64_t scales_slot,
                                      const void *src, struct wp_quantisation how,
                                      int64_t num_elements, struct weft__sim_place place);
void weft__sim_packets_send_weighted_sum(struct wp_warp *warp, const struct wp_packets *packets,
                                         struct wp_packet_targets to, const void *const *srcs,
                                         const float *weights, int32_t num_srcs,
                                         struct wp_weighted_sum sum, int64_t num_elements,
                                         struct weft__sim_place place);
/* A row that a rank may send to this one. */
struct wp_expected_row {
    int32_t from;
    uint64_t slot, bytes;
};
enum wp_status weft__sim_packets_receive_each(struct wp_warp *warp,
                                              const struct wp_packets *packets,
                                              const struct wp_expected_row *row,
                                              const void *const *dsts, int32_t num_dsts,
                                              struct wp_packet_progress *progress,
                                              struct weft__sim_place place);
enum wp_status weft__sim_packets_reduce(struct wp_warp *warp, const struct wp_packets *packets,
                                        const struct wp_packet_sources *from, void *dst,
                                        struct wp_reduction how, uint64_t num_elements,
                                        struct weft__sim_place place);

enum wp_status weft__sim_packets_receive_told(struct wp_warp *warp,
                                              const struct wp_packets *packets, int32_t from,
                                              uint64_t slot, const struct wp_packet_told *told,
                                              void *dst, uint64_t bytes,
                                              struct wp_packet_progress *progress,
                                              struct weft__sim_place place);
enum wp_status weft__sim_packets_sum(struct wp_warp *warp, const struct wp_packets *packets,
                                     const struct wp_packet_rows *from, void *dst, weft_dtype dtype,
                                     uint64_t num_elements, struct wp_packet_progress *progress,
                                     struct weft__sim_place place);
void weft__sim_packets_clear(struct wp_warp *warp, const struct wp_packets *packets, uint64_t slot,
                             uint64_t num_slots, struct weft__sim_place place);
void weft__sim_packets_send_words(struct wp_warp *warp, const struct wp_packets *packets,
                                  struct wp_packet_targets to, const uint64_t words[2],
                                  struct weft__sim_place place);
enum wp_status weft__sim_packets_take_words(struct wp_warp *warp, const struct wp_packets *packets,
                                            int32_t from, uint64_t slot, uint64_t words[2],
                                            struct weft__sim_place place);
void weft__sim_acquire_packets(struct weft__sim_place place);
void weft__sim_tagged_send(struct wp_warp *warp, int32_t rank, void *row, const void *words,
                           int32_t num_words, uint64_t sequence, struct weft__sim_place place);
enum wp_status weft__sim_tagged_take(struct wp_warp *warp, const void *row, void *words,
                                     int32_t num_words, const struct wp_wait_site *site,
                                     struct weft__sim_place place);
enum wp_status weft__sim_tagged_take_relaxed(struct wp_warp *warp, const void *row, void *words,
                                             int32_t num_words, const struct wp_wait_site *site,
                                             struct weft__sim_place place);
uint32_t weft__sim_tagged_word(const void *row, int32_t word);

enum { WEFT__SIM_TAGGED_WORDS = 3 /* of a packet, beside its tag */ };
#define WP_TAGGED_BYTES(num_words)                                                                 \
    (((num_words) + WEFT__SIM_TAGGED_WORDS - 1) / WEFT__SIM_TAGGED_WORDS * (4 * sizeof(uint32_t)))

/* Seen as the program's own loads are. */
WP_FN uint64_t wp_load_now(const uint64_t *word)
{
    uint64_t value;
    memcpy(&value, word, sizeof value);
    return value;
}

WP_FN uint32_t wp_load_now_u32(const uint32_t *word)
{
    uint32_t value;
    memcpy(&value, word, sizeof value);
    return value;
}

#define WP_PROGRAM_SYMBOL(name) weft__sim_##name

#define WP_PROGRAM(name, warp, args)                                                               \
    static enum wp_status name##_body(struct wp_warp *warp, const struct wp_##name##_args *args);  \
    enum wp_status weft__sim_##name(struct wp_warp *warp, const void *args);                       \
    enum wp_status weft__sim_##name(struct wp_warp *warp, const void *args)                        \
    {                                                                                              \
        return name##_body(warp, (const struct wp_##name##_args *)args);                           \
    }                                                                                              \
    static enum wp_status name##_body(struct wp_warp *warp, const struct wp_##name##_args *args)

#define wp_block_idx(warp)           ((warp)->block_idx)
#define wp_num_blocks(warp)          ((warp)->num_blocks)
#define wp_warp_idx(warp)            ((warp)->warp_idx)
#define wp_num_warps(warp)           ((warp)->num_warps)
#define wp_lane_idx(warp)            ((warp)->lane_idx)
#define wp_warp_sync(warp)           weft__sim_warp_sync(warp, WEFT__SIM_HERE)
#define wp_warp_join(warp)           ((void)(warp))
#define wp_block_sync(warp)          weft__sim_block_sync(warp, WEFT__SIM_HERE)
#define wp_row_sync(warp)            weft__sim_row_sync(warp, WEFT__SIM_HERE)
#define wp_remote_post(warp, access) weft__sim_remote_post(warp, access, WEFT__SIM_HERE)
#define wp_remote_await(warp, number, site)                                                        \
    weft__sim_remote_await(warp, number, site, WEFT__SIM_HERE)
#define wp_fetch_add(warp, rank, word, add)                                                        \
    ((void)(rank), weft__sim_fetch_add(warp, word, add, WEFT__SIM_HERE))
#define wp_ballot(warp, predicate)        weft__sim_ballot(warp, predicate)
#define wp_lanes_below(warp, ballot)      __builtin_popcount((ballot) & ((1u << (warp)->lane_idx) - 1u))
#define wp_popcount(ballot)               __builtin_popcount(ballot)
#define wp_same_below(warp, value)        weft__sim_same_below(warp, value)
#define wp_max_u32(warp, value)           weft__sim_max_u32(warp, value)
#define wp_sum_u32(warp, value)           weft__sim_sum_u32(warp, value)
#define wp_or_u32(warp, value)            weft__sim_or_u32(warp, value)
#define wp_prefix_sum(warp, value, total) weft__sim_prefix_sum(warp, value, total)
#define wp_block_turn(warp)               weft__sim_block_turn(warp)
#define wp_block_shared(warp)             weft__sim_block_shared(warp)
#define wp_warp_shared(warp)              weft__sim_warp_shared(warp)
#define wp_warp_pointers(warp)            weft__sim_warp_pointers(warp)
#define wp_add_acq_rel(word, value)       weft__sim_add_acq_rel(word, value, WEFT__SIM_HERE)
#define wp_admit_next(warp)               ((void)(warp))
#define wp_fence_launches(warp)           weft__sim_fence(warp)
#define wp_add_relaxed(word, value)       weft__sim_add_relaxed(word, value)
#define wp_or_relaxed(word, bits)         weft__sim_or_relaxed(word, bits)
#define wp_load_relaxed(word)             weft__sim_load_relaxed(word)
#define wp_store_relaxed(word, value)     weft__sim_store_relaxed(word, value)
#define wp_compare_swap_relaxed(word, expected, desired)                                           \
    weft__sim_compare_swap_relaxed(word, expected, desired)
#define wp_signal(warp, rank, word, value) weft__sim_signal(warp, rank, word, value, WEFT__SIM_HERE)
#define wp_credit(warp, rank, word, value) weft__sim_credit(warp, rank, word, value, WEFT__SIM_HERE)
#define wp_tell(warp, rank, word, value)   weft__sim_tell(warp, rank, word, value, WEFT__SIM_HERE)
#define wp_clear(word)                     weft__sim_clear(word, WEFT__SIM_HERE)
#define wp_wait(warp, word, at_least, site)                                                        \
    weft__sim_wait(warp, word, at_least, site, WEFT__SIM_HERE)
#define wp_wait_value(warp, word, at_least, site, seen)                                            \
    weft__sim_wait_value(warp, word, at_least, site, seen, WEFT__SIM_HERE)
#define wp_wait_u32(warp, word, at_least, site)                                                    \
    weft__sim_wait_u32(warp, word, at_least, site, WEFT__SIM_HERE)
#define wp_now_ns(warp)                       weft__sim_now_ns(warp)
#define wp_fail(warp, failure)                weft__sim_fail(warp, failure)
#define wp_row_prefetch(warp, src, row_bytes) weft__sim_row_prefetch(warp, src, row_bytes)
#define wp_row_copy(warp, dsts, num_dsts, src, row_bytes)                                          \
    weft__sim_row_copy(warp, dsts, num_dsts, src, row_bytes, WEFT__SIM_HERE)
#define wp_row_copy_for(warp, reuse, dsts, num_dsts, src, row_bytes)                               \
    ((void)(reuse), weft__sim_row_copy(warp, dsts, num_dsts, src, row_bytes, WEFT__SIM_HERE))
#define wp_row_copy_each(warp, reuse, dsts, srcs, num_rows, row_bytes)                             \
    ((void)(reuse), weft__sim_row_copy_each(warp, dsts, srcs, num_rows, row_bytes, WEFT__SIM_HERE))
#define wp_row_reduce(warp, dsts, num_dsts, srcs, num_srcs, reduction, num_elements)               \
    weft__sim_row_reduce(warp, dsts, num_dsts, srcs, num_srcs, reduction, num_elements,            \
                         WEFT__SIM_HERE)
#define wp_row_reduce_compact wp_row_reduce
#define wp_row_sum_mixed(warp, dst, srcs, num_srcs, sum, num_elements)                             \
    weft__sim_row_sum_mixed(warp, dst, srcs, num_srcs, sum, num_elements, WEFT__SIM_HERE)
#define wp_row_weighted_sum(warp, dst, srcs, weights, num_srcs, sum, num_elements)                 \
    weft__sim_row_weighted_sum(warp, dst, srcs, weights, num_srcs, sum, num_elements,              \
                               WEFT__SIM_HERE)
#define wp_row_quantise(warp, to, src, how, num_elements)                                          \
    weft__sim_row_quantise(warp, to, src, how, num_elements, WEFT__SIM_HERE)
#define wp_row_dequantise(warp, dst, src, scales, how, num_elements)                               \
    weft__sim_row_dequantise(warp, dst, src, scales, how, num_elements, WEFT__SIM_HERE)
#define wp_row_log_encode(warp, dst, srcs, weights, num_srcs, src_dtype, num_elements)             \
    weft__sim_row_log_encode(warp, dst, srcs, weights, num_srcs, src_dtype, num_elements,          \
                             WEFT__SIM_HERE)
#define wp_row_log_sum(warp, dst, srcs, weights, num_srcs, dst_dtype, num_elements)                \
    weft__sim_row_log_sum(warp, dst, srcs, weights, num_srcs, dst_dtype, num_elements,             \
                          WEFT__SIM_HERE)
#define wp_row_log_sum_mixed(warp, dst, srcs, num_srcs, sum, num_elements)                         \
    weft__sim_row_log_sum_mixed(warp, dst, srcs, num_srcs, sum, num_elements, WEFT__SIM_HERE)
#define wp_packets_load(warp, src, bytes) ((struct wp_packet_row){(((void)(warp)), (src)), (bytes)})
#define wp_packets_send(warp, packets, to, row)                                                    \
    weft__sim_packets_send(warp, packets, to, (row)->src, (row)->bytes, WEFT__SIM_HERE)
#define wp_packets_send_quantised(warp, packets, to, scales_slot, row, how, num_elements)          \
    weft__sim_packets_send_quantised(warp, packets, to, scales_slot, (row)->src, how,              \
                                     num_elements, WEFT__SIM_HERE)
#define wp_packets_send_weighted_sum(warp, packets, to, srcs, weights, num_srcs, sum,              \
                                     num_elements)                                                 \
    weft__sim_packets_send_weighted_sum(warp, packets, to, srcs, weights, num_srcs, sum,           \
                                        num_elements, WEFT__SIM_HERE)
#define wp_packets_expect(warp, packets, from, slot, bytes)                                        \
    ((struct wp_expected_row){((void)(warp), (void)(packets), (from)), (slot), (bytes)})
#define wp_packets_receive_each(warp, packets, row, dsts, num_dsts, progress)                      \
    weft__sim_packets_receive_each(warp, packets, row, dsts, num_dsts, progress, WEFT__SIM_HERE)
#define wp_packets_receive(warp, packets, from, slot, dst, bytes, progress)                        \
    wp_packets_receive_each(warp, packets, (&(const struct wp_expected_row){from, slot, bytes}),   \
                            (const void *const[]){dst}, 1, progress)
#define wp_packets_reduce(warp, packets, from, dst, reduction, num_elements)                       \
    weft__sim_packets_reduce(warp, packets, from, dst, reduction, num_elements, WEFT__SIM_HERE)
#define wp_packets_receive_told(warp, packets, from, slot, told, dst, bytes, progress)             \
    weft__sim_packets_receive_told(warp, packets, from, slot, told, dst, bytes, progress,          \
                                   WEFT__SIM_HERE)
#define wp_packets_sum(warp, packets, from, dst, dtype, num_elements, progress)                    \
    weft__sim_packets_sum(warp, packets, from, dst, dtype, num_elements, progress, WEFT__SIM_HERE)
#define wp_packets_clear(warp, packets, slot, num_slots)                                           \
    weft__sim_packets_clear(warp, packets, slot, num_slots, WEFT__SIM_HERE)
#define wp_packets_send_words(warp, packets, to, words)                                            \
    weft__sim_packets_send_words(warp, packets, to, words, WEFT__SIM_HERE)
#define wp_packets_take_words(warp, packets, from, slot, words)                                    \
    weft__sim_packets_take_words(warp, packets, from, slot, words, WEFT__SIM_HERE)
#define wp_acquire_packets(warp) weft__sim_acquire_packets(WEFT__SIM_HERE)
#define wp_tagged_send(warp, rank, row, words, num_words, sequence)                                \
    weft__sim_tagged_send(warp, rank, row, words, num_words, sequence, WEFT__SIM_HERE)
#define wp_tagged_take(warp, row, words, num_words, site)                                          \
    weft__sim_tagged_take(warp, row, words, num_words, site, WEFT__SIM_HERE)
#define wp_tagged_take_relaxed(warp, row, words, num_words, site)                                  \
    weft__sim_tagged_take_relaxed(warp, row, words, num_words, site, WEFT__SIM_HERE)
#define wp_tagged_word(row, word) weft__sim_tagged_word(row, word)
