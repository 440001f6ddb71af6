/* SPDX-License-Identifier: MIT */
/* The primitives on the sim machine. Each lane of a warp is a fiber, so that missing warp syncs
 * show too. Primitives that order remember where they are called, for reports and for weakening. */
#pragma once

#include "machine/c_primitives.h"

#define WP_WARP_SIZE            2
#define WP_PROGRAM_SYMBOL(name) weft__sim_##name

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
#define WEFT__PACKETS(name) weft__sim_packets_##name
#define WEFT__PACKETS_PLACE , struct weft__sim_place place
#define WEFT__PACKETS_HERE  , WEFT__SIM_HERE
#include "machine/word_packets.h"

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

/* wp_load_now is seen as the program's own loads are. */
#define wp_lane_idx(warp)    ((warp)->lane_idx)
#define wp_warp_sync(...)    weft__sim_warp_sync(__VA_ARGS__, WEFT__SIM_HERE)
#define wp_block_sync(...)   weft__sim_block_sync(__VA_ARGS__, WEFT__SIM_HERE)
#define wp_row_sync(...)     weft__sim_row_sync(__VA_ARGS__, WEFT__SIM_HERE)
#define wp_remote_post(...)  weft__sim_remote_post(__VA_ARGS__, WEFT__SIM_HERE)
#define wp_remote_await(...) weft__sim_remote_await(__VA_ARGS__, WEFT__SIM_HERE)
#define wp_fetch_add(warp, rank, word, add)                                                        \
    ((void)(rank), weft__sim_fetch_add(warp, word, add, WEFT__SIM_HERE))
#define wp_ballot                    weft__sim_ballot
#define wp_lanes_below(warp, ballot) __builtin_popcount((ballot) & ((1u << (warp)->lane_idx) - 1u))
#define wp_same_below                weft__sim_same_below
#define wp_max_u32                   weft__sim_max_u32
#define wp_sum_u32                   weft__sim_sum_u32
#define wp_or_u32                    weft__sim_or_u32
#define wp_prefix_sum                weft__sim_prefix_sum
#define wp_block_turn                weft__sim_block_turn
#define wp_block_shared              weft__sim_block_shared
#define wp_warp_shared               weft__sim_warp_shared
#define wp_warp_pointers             weft__sim_warp_pointers
#define wp_add_acq_rel(...)          weft__sim_add_acq_rel(__VA_ARGS__, WEFT__SIM_HERE)
#define wp_fence_launches            weft__sim_fence
#define wp_add_relaxed               weft__sim_add_relaxed
#define wp_or_relaxed                weft__sim_or_relaxed
#define wp_load_relaxed              weft__sim_load_relaxed
#define wp_store_relaxed             weft__sim_store_relaxed
#define wp_compare_swap_relaxed      weft__sim_compare_swap_relaxed
#define wp_signal(...)               weft__sim_signal(__VA_ARGS__, WEFT__SIM_HERE)
#define wp_credit(...)               weft__sim_credit(__VA_ARGS__, WEFT__SIM_HERE)
#define wp_tell(...)                 weft__sim_tell(__VA_ARGS__, WEFT__SIM_HERE)
#define wp_clear(...)                weft__sim_clear(__VA_ARGS__, WEFT__SIM_HERE)
#define wp_wait(...)                 weft__sim_wait(__VA_ARGS__, WEFT__SIM_HERE)
#define wp_wait_value(...)           weft__sim_wait_value(__VA_ARGS__, WEFT__SIM_HERE)
#define wp_wait_u32(...)             weft__sim_wait_u32(__VA_ARGS__, WEFT__SIM_HERE)
#define wp_now_ns                    weft__sim_now_ns
#define wp_fail                      weft__sim_fail
#define wp_row_prefetch              weft__sim_row_prefetch
#define wp_row_copy(...)             weft__sim_row_copy(__VA_ARGS__, WEFT__SIM_HERE)
#define wp_row_copy_for(warp, reuse, dsts, num_dsts, src, row_bytes)                               \
    ((void)(reuse), weft__sim_row_copy(warp, dsts, num_dsts, src, row_bytes, WEFT__SIM_HERE))
#define wp_row_copy_each(warp, reuse, dsts, srcs, num_rows, row_bytes)                             \
    ((void)(reuse), weft__sim_row_copy_each(warp, dsts, srcs, num_rows, row_bytes, WEFT__SIM_HERE))
#define wp_row_reduce(...)          weft__sim_row_reduce(__VA_ARGS__, WEFT__SIM_HERE)
#define wp_row_reduce_compact       wp_row_reduce
#define wp_row_sum_mixed(...)       weft__sim_row_sum_mixed(__VA_ARGS__, WEFT__SIM_HERE)
#define wp_row_weighted_sum(...)    weft__sim_row_weighted_sum(__VA_ARGS__, WEFT__SIM_HERE)
#define wp_row_quantise(...)        weft__sim_row_quantise(__VA_ARGS__, WEFT__SIM_HERE)
#define wp_row_dequantise(...)      weft__sim_row_dequantise(__VA_ARGS__, WEFT__SIM_HERE)
#define wp_acquire_packets(warp)    weft__sim_acquire_packets(WEFT__SIM_HERE)
#define wp_tagged_send(...)         weft__sim_tagged_send(__VA_ARGS__, WEFT__SIM_HERE)
#define wp_tagged_take(...)         weft__sim_tagged_take(__VA_ARGS__, WEFT__SIM_HERE)
#define wp_tagged_take_relaxed(...) weft__sim_tagged_take_relaxed(__VA_ARGS__, WEFT__SIM_HERE)
#define wp_tagged_word              weft__sim_tagged_word
