/* SPDX-License-Identifier: MIT */
/*
 * Tagged rows on the cuda machine; part of primitives.h. A packet is three words of the row and, as
 * its tag, the low 32 bits of the operation's number, stored and loaded in one piece (packets.h).
 * They are loaded with acquire: a fence after relaxed loads takes 0.8 us more (on H200, by the
 * clock of an SM).
 */
#pragma once

#include "machine/cuda/cuda_packets.h"

enum { WEFT__CUDA_TAGGED_WORDS = 3 /* of a packet */ };

#define WP_TAGGED_BYTES(num_words)                                                                 \
    (((num_words) + WEFT__CUDA_TAGGED_WORDS - 1) / WEFT__CUDA_TAGGED_WORDS * WP_PACKET_BYTES)

WP_FN void wp_tagged_send(struct wp_warp *warp, int32_t rank, void *row, const void *words,
                          int32_t num_words, uint64_t sequence)
{
    (void)rank; /* spins, needs no waking */
#pragma unroll 1
    for (int32_t i = wp_lane_idx(warp); i * WEFT__CUDA_TAGGED_WORDS < num_words;
         i += WP_WARP_SIZE) {
        uint32_t sent[WEFT__CUDA_TAGGED_WORDS];
#pragma unroll
        for (int32_t w = 0; w < WEFT__CUDA_TAGGED_WORDS; w++) {
            const int32_t word = i * WEFT__CUDA_TAGGED_WORDS + w;
            sent[w] = word < num_words ? ((const uint32_t *)words)[word] : 0;
        }
        weft__cuda_store_packet((char *)row + i * WP_PACKET_BYTES,
                                {{(uint64_t)sent[1] << 32 | sent[0], sequence << 32 | sent[2]}});
    }
}

WP_FN struct weft__cuda_packet weft__cuda_acquire_packet(const char *slot)
{
    struct weft__cuda_packet packet;
    asm volatile("{\n .reg .b128 packet;\n"
                 " ld.acquire.sys.global.b128 packet, [%2];\n"
                 " mov.b128 {%0, %1}, packet;\n}"
                 : "=l"(packet.words[0]), "=l"(packet.words[1])
                 : "l"(slot)
                 : "memory");
    return packet;
}

enum weft__cuda_order { WEFT__CUDA_RELAXED, WEFT__CUDA_ACQUIRE };

WP_FN struct weft__cuda_packet weft__cuda_tagged_packet(const char *slot,
                                                        enum weft__cuda_order order)
{
    struct weft__cuda_packet packet = {{0, 0}};
    if (order == WEFT__CUDA_ACQUIRE)
        return weft__cuda_acquire_packet(slot);
    weft__cuda_load_packet(&packet, slot, 1);
    return packet;
}

/* Waits for packet i. */
WP_FN enum wp_status weft__cuda_await_tagged(struct wp_warp *warp, const void *row, int32_t i,
                                             const struct wp_wait_site *site,
                                             enum weft__cuda_order order,
                                             struct weft__cuda_packet *packet)
{
    struct weft__cuda_patience patience = {0, 0, WP_FAILURE_NONE};
    for (;;) {
        *packet = weft__cuda_tagged_packet((const char *)row + i * WP_PACKET_BYTES, order);
        if ((uint32_t)(packet->words[1] >> 32) == (uint32_t)site->sequence)
            return WP_STATUS_OK;
        if (patience.why != WP_FAILURE_NONE)
            return weft__cuda_give_up(warp, site, patience.why, site->sequence,
                                      packet->words[1] >> 32);
        weft__cuda_be_patient(warp, site, &patience);
    }
}

WP_FN enum wp_status weft__cuda_tagged_take(struct wp_warp *warp, const void *row, void *words,
                                            int32_t num_words, const struct wp_wait_site *site,
                                            enum weft__cuda_order order)
{
    enum wp_status status = WP_STATUS_OK;
#pragma unroll 1
    for (int32_t i = wp_lane_idx(warp);
         i * WEFT__CUDA_TAGGED_WORDS < num_words && status == WP_STATUS_OK; i += WP_WARP_SIZE) {
        struct weft__cuda_packet packet = {{0, 0}};
        status = weft__cuda_await_tagged(warp, row, i, site, order, &packet);
        const uint32_t taken[] = {(uint32_t)packet.words[0], (uint32_t)(packet.words[0] >> 32),
                                  (uint32_t)packet.words[1]};
#pragma unroll
        for (int32_t w = 0; w < WEFT__CUDA_TAGGED_WORDS; w++) {
            const int32_t word = i * WEFT__CUDA_TAGGED_WORDS + w;
            if (word < num_words)
                ((uint32_t *)words)[word] = taken[w];
        }
    }
    return weft__cuda_same_status(status);
}

WP_FN enum wp_status wp_tagged_take(struct wp_warp *warp, const void *row, void *words,
                                    int32_t num_words, const struct wp_wait_site *site)
{
    return weft__cuda_tagged_take(warp, row, words, num_words, site, WEFT__CUDA_ACQUIRE);
}

WP_FN enum wp_status wp_tagged_take_relaxed(struct wp_warp *warp, const void *row, void *words,
                                            int32_t num_words, const struct wp_wait_site *site)
{
    return weft__cuda_tagged_take(warp, row, words, num_words, site, WEFT__CUDA_RELAXED);
}

WP_FN uint32_t wp_tagged_word(const void *row, int32_t word)
{
    uint32_t value;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];"
                 : "=r"(value)
                 : "l"((const char *)row + word / WEFT__CUDA_TAGGED_WORDS * WP_PACKET_BYTES +
                       word % WEFT__CUDA_TAGGED_WORDS * (int32_t)sizeof(uint32_t)));
    return value;
}
