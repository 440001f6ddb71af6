/* SPDX-License-Identifier: MIT */
/* Packets on the cpu machine; part of primitives.h. */
#pragma once

#define WP_PACKET_BYTES 8

/* packets.c */
void weft__cpu_packets_send(struct wp_warp *warp, const struct wp_packets *packets,
                            struct wp_packet_targets to, const void *src, uint64_t bytes);
void weft__cpu_packets_send_quantised(struct wp_warp *warp, const struct wp_packets *packets,
                                      struct wp_packet_targets to, uint64_t scales_slot,
                                      const void *src, const struct wp_quantisation *how,
                                      int64_t num_elements);
struct weft__cpu_weighted_rows {
    const void *const *srcs;
    const float *weights;
    int32_t num_srcs;
};
void weft__cpu_packets_send_weighted_sum(struct wp_warp *warp, const struct wp_packets *packets,
                                         struct wp_packet_targets to,
                                         const struct weft__cpu_weighted_rows *rows,
                                         const struct wp_weighted_sum *sum, int64_t num_elements);
/* A row that a rank may send to this one. */
struct wp_expected_row {
    int32_t from;
    uint64_t slot, bytes;
};
enum wp_status weft__cpu_packets_receive_each(struct wp_warp *warp,
                                              const struct wp_packets *packets,
                                              const struct wp_expected_row *row,
                                              const void *const *dsts, int32_t num_dsts,
                                              struct wp_packet_progress *progress);
enum wp_status weft__cpu_packets_reduce(struct wp_warp *warp, const struct wp_packets *packets,
                                        const struct wp_packet_sources *from, void *dst,
                                        struct wp_reduction reduction, uint64_t num_elements);

enum wp_status weft__cpu_packets_receive_told(struct wp_warp *warp,
                                              const struct wp_packets *packets, int32_t from,
                                              uint64_t slot, const struct wp_packet_told *told,
                                              void *dst, uint64_t bytes,
                                              struct wp_packet_progress *progress);
enum wp_status weft__cpu_packets_sum(struct wp_warp *warp, const struct wp_packets *packets,
                                     const struct wp_packet_rows *from, void *dst, weft_dtype dtype,
                                     uint64_t num_elements, struct wp_packet_progress *progress);
void weft__cpu_packets_clear(const struct wp_packets *packets, uint64_t slot, uint64_t num_slots);
void weft__cpu_packets_send_words(struct wp_warp *warp, const struct wp_packets *packets,
                                  struct wp_packet_targets to, const uint64_t words[2]);
enum wp_status weft__cpu_packets_take_words(struct wp_warp *warp, const struct wp_packets *packets,
                                            int32_t from, uint64_t slot, uint64_t words[2]);

/* A row that is to be sent. */
struct wp_packet_row {
    const void *src;
    uint64_t bytes;
};

WP_FN struct wp_packet_row wp_packets_load(struct wp_warp *warp, const void *src, uint64_t bytes)
{
    (void)warp;
    const struct wp_packet_row row = {src, bytes};
    return row;
}

WP_FN void wp_packets_send(struct wp_warp *warp, const struct wp_packets *packets,
                           struct wp_packet_targets to, const struct wp_packet_row *row)
{
    weft__cpu_packets_send(warp, packets, to, row->src, row->bytes);
}

WP_FN void wp_packets_send_quantised(struct wp_warp *warp, const struct wp_packets *packets,
                                     struct wp_packet_targets to, uint64_t scales_slot,
                                     const struct wp_packet_row *row, struct wp_quantisation how,
                                     int64_t num_elements)
{
    weft__cpu_packets_send_quantised(warp, packets, to, scales_slot, row->src, &how, num_elements);
}

WP_FN void wp_packets_send_weighted_sum(struct wp_warp *warp, const struct wp_packets *packets,
                                        struct wp_packet_targets to, const void *const *srcs,
                                        const float *weights, int32_t num_srcs,
                                        struct wp_weighted_sum sum, int64_t num_elements)
{
    const struct weft__cpu_weighted_rows rows = {srcs, weights, num_srcs};
    weft__cpu_packets_send_weighted_sum(warp, packets, to, &rows, &sum, num_elements);
}

WP_FN struct wp_expected_row wp_packets_expect(struct wp_warp *warp,
                                               const struct wp_packets *packets, int32_t from,
                                               uint64_t slot, uint64_t bytes)
{
    (void)warp;
    (void)packets;
    const struct wp_expected_row row = {from, slot, bytes};
    return row;
}

WP_FN enum wp_status wp_packets_receive_each(struct wp_warp *warp, const struct wp_packets *packets,
                                             const struct wp_expected_row *row,
                                             const void *const *dsts, int32_t num_dsts,
                                             struct wp_packet_progress *progress)
{
    return weft__cpu_packets_receive_each(warp, packets, row, dsts, num_dsts, progress);
}

WP_FN enum wp_status wp_packets_receive(struct wp_warp *warp, const struct wp_packets *packets,
                                        int32_t from, uint64_t slot, void *dst, uint64_t bytes,
                                        struct wp_packet_progress *progress)
{
    const struct wp_expected_row row = {from, slot, bytes};
    const void *const dsts[] = {dst};
    return weft__cpu_packets_receive_each(warp, packets, &row, dsts, 1, progress);
}

WP_FN enum wp_status wp_packets_reduce(struct wp_warp *warp, const struct wp_packets *packets,
                                       const struct wp_packet_sources *from, void *dst,
                                       struct wp_reduction reduction, uint64_t num_elements)
{
    return weft__cpu_packets_reduce(warp, packets, from, dst, reduction, num_elements);
}

WP_FN enum wp_status wp_packets_receive_told(struct wp_warp *warp, const struct wp_packets *packets,
                                             int32_t from, uint64_t slot,
                                             const struct wp_packet_told *told, void *dst,
                                             uint64_t bytes, struct wp_packet_progress *progress)
{
    return weft__cpu_packets_receive_told(warp, packets, from, slot, told, dst, bytes, progress);
}

WP_FN enum wp_status wp_packets_sum(struct wp_warp *warp, const struct wp_packets *packets,
                                    const struct wp_packet_rows *from, void *dst, weft_dtype dtype,
                                    uint64_t num_elements, struct wp_packet_progress *progress)
{
    return weft__cpu_packets_sum(warp, packets, from, dst, dtype, num_elements, progress);
}

WP_FN void wp_packets_clear(struct wp_warp *warp, const struct wp_packets *packets, uint64_t slot,
                            uint64_t num_slots)
{
    (void)warp;
    weft__cpu_packets_clear(packets, slot, num_slots);
}

WP_FN void wp_packets_send_words(struct wp_warp *warp, const struct wp_packets *packets,
                                 struct wp_packet_targets to, const uint64_t words[2])
{
    weft__cpu_packets_send_words(warp, packets, to, words);
}

WP_FN enum wp_status wp_packets_take_words(struct wp_warp *warp, const struct wp_packets *packets,
                                           int32_t from, uint64_t slot, uint64_t words[2])
{
    return weft__cpu_packets_take_words(warp, packets, from, slot, words);
}

WP_FN void wp_acquire_packets(struct wp_warp *warp)
{
    (void)warp;
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
}
