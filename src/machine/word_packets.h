/* SPDX-License-Identifier: MIT */
/*
 * Packets of one 64-bit word, as cpu and sim have them; part of their primitives.h. The machine
 * names the functions, WEFT__PACKETS(name), and may add a parameter, WEFT__PACKETS_PLACE, with its
 * argument WEFT__PACKETS_HERE. word_packets_body.h has the functions.
 */
#pragma once

#define WP_PACKET_BYTES 8

/* A row that is to be sent. */
struct wp_packet_row {
    const void *src;
    uint64_t bytes;
};

/* A row that a rank may send to this one. */
struct wp_expected_row {
    int32_t from;
    uint64_t slot, bytes;
};

void WEFT__PACKETS(send)(struct wp_warp *warp, const struct wp_packets *packets,
                         struct wp_packet_targets to,
                         const struct wp_packet_row *row WEFT__PACKETS_PLACE);
void WEFT__PACKETS(send_words)(struct wp_warp *warp, const struct wp_packets *packets,
                               struct wp_packet_targets to,
                               const uint64_t words[2] WEFT__PACKETS_PLACE);
void WEFT__PACKETS(send_quantised)(struct wp_warp *warp, const struct wp_packets *packets,
                                   struct wp_packet_targets to, uint64_t scales_slot,
                                   const struct wp_packet_row *row, struct wp_quantisation how,
                                   int64_t num_elements WEFT__PACKETS_PLACE);
void WEFT__PACKETS(send_weighted_sum)(struct wp_warp *warp, const struct wp_packets *packets,
                                      struct wp_packet_targets to, const void *const *srcs,
                                      const float *weights, int32_t num_srcs,
                                      struct wp_weighted_sum sum,
                                      int64_t num_elements WEFT__PACKETS_PLACE);
enum wp_status WEFT__PACKETS(receive_each)(struct wp_warp *warp, const struct wp_packets *packets,
                                           const struct wp_expected_row *row,
                                           const void *const *dsts, int32_t num_dsts,
                                           struct wp_packet_progress *progress WEFT__PACKETS_PLACE);
enum wp_status WEFT__PACKETS(receive_told)(struct wp_warp *warp, const struct wp_packets *packets,
                                           int32_t from, uint64_t slot,
                                           const struct wp_packet_told *told, void *dst,
                                           uint64_t bytes,
                                           struct wp_packet_progress *progress WEFT__PACKETS_PLACE);
enum wp_status WEFT__PACKETS(take_words)(struct wp_warp *warp, const struct wp_packets *packets,
                                         int32_t from, uint64_t slot,
                                         uint64_t words[2] WEFT__PACKETS_PLACE);
enum wp_status WEFT__PACKETS(reduce)(struct wp_warp *warp, const struct wp_packets *packets,
                                     const struct wp_packet_sources *from, void *dst,
                                     struct wp_reduction reduction,
                                     uint64_t num_elements WEFT__PACKETS_PLACE);
enum wp_status WEFT__PACKETS(sum)(struct wp_warp *warp, const struct wp_packets *packets,
                                  const struct wp_packet_rows *from, void *dst, weft_dtype dtype,
                                  uint64_t num_elements,
                                  struct wp_packet_progress *progress WEFT__PACKETS_PLACE);
void WEFT__PACKETS(clear)(struct wp_warp *warp, const struct wp_packets *packets, uint64_t slot,
                          uint64_t num_slots WEFT__PACKETS_PLACE);

#define wp_packets_load(warp, src, bytes) ((struct wp_packet_row){((void)(warp), (src)), (bytes)})
#define wp_packets_expect(warp, packets, from, slot, bytes)                                        \
    ((struct wp_expected_row){((void)(warp), (void)(packets), (from)), (slot), (bytes)})
#define wp_packets_send(...)           WEFT__PACKETS(send)(__VA_ARGS__ WEFT__PACKETS_HERE)
#define wp_packets_send_words(...)     WEFT__PACKETS(send_words)(__VA_ARGS__ WEFT__PACKETS_HERE)
#define wp_packets_send_quantised(...) WEFT__PACKETS(send_quantised)(__VA_ARGS__ WEFT__PACKETS_HERE)
#define wp_packets_send_weighted_sum(...)                                                          \
    WEFT__PACKETS(send_weighted_sum)(__VA_ARGS__ WEFT__PACKETS_HERE)
#define wp_packets_receive_each(...) WEFT__PACKETS(receive_each)(__VA_ARGS__ WEFT__PACKETS_HERE)
#define wp_packets_receive(warp, packets, from, slot, dst, bytes, progress)                        \
    wp_packets_receive_each(warp, packets, (&(const struct wp_expected_row){from, slot, bytes}),   \
                            (const void *const[]){dst}, 1, progress)
#define wp_packets_receive_told(...) WEFT__PACKETS(receive_told)(__VA_ARGS__ WEFT__PACKETS_HERE)
#define wp_packets_take_words(...)   WEFT__PACKETS(take_words)(__VA_ARGS__ WEFT__PACKETS_HERE)
#define wp_packets_reduce(...)       WEFT__PACKETS(reduce)(__VA_ARGS__ WEFT__PACKETS_HERE)
#define wp_packets_sum(...)          WEFT__PACKETS(sum)(__VA_ARGS__ WEFT__PACKETS_HERE)
#define wp_packets_clear(...)        WEFT__PACKETS(clear)(__VA_ARGS__ WEFT__PACKETS_HERE)
