/* SPDX-License-Identifier: MIT */
/*
 * Slots of 16 bytes on the cuda machine, and packets of rows in memory. A packet is one scalar of
 * 128 bits, stored and loaded by relaxed accesses of system scope, which PTX says are in one piece;
 * docs/memory-model.md tells why that suffices. Part of primitives.h.
 */
#pragma once

#include "machine/packets.h"

#define WP_PACKET_BYTES 16

struct weft__cuda_packet {
    uint64_t words[2];
};

/* Leaves the packet as it is where `wanted` is 0, without a branch: several are loaded together. */
WP_FN void weft__cuda_load_packet(struct weft__cuda_packet *packet, const char *slot,
                                  uint32_t wanted)
{
    asm volatile("{\n .reg .pred wanted;\n .reg .b128 packet;\n"
                 " setp.ne.u32 wanted, %3, 0;\n"
                 " mov.b128 packet, {%0, %1};\n"
                 " @wanted ld.relaxed.sys.global.b128 packet, [%2];\n"
                 " mov.b128 {%0, %1}, packet;\n}"
                 : "+l"(packet->words[0]), "+l"(packet->words[1])
                 : "l"(slot), "r"(wanted)
                 : "memory");
}

/* In one piece, and its words when they are wanted. Where compilers have the words apart, they copy
 * them as soon as they are loaded, and so wait: by expert a dispatch of 16 tokens among 4 H200 took
 * 0.25 us longer (2026-11-27). */
WP_FN unsigned __int128 weft__cuda_load_whole(const char *slot)
{
    unsigned __int128 packet;
    asm volatile("ld.relaxed.sys.global.b128 %0, [%1];" : "=q"(packet) : "l"(slot) : "memory");
    return packet;
}

WP_FN struct weft__cuda_packet weft__cuda_words_of(unsigned __int128 whole)
{
    struct weft__cuda_packet packet;
    asm volatile("mov.b128 {%0, %1}, %2;"
                 : "=l"(packet.words[0]), "=l"(packet.words[1])
                 : "q"(whole));
    return packet;
}

WP_FN void weft__cuda_store_packet(char *slot, struct weft__cuda_packet packet)
{
    asm volatile("{\n .reg .b128 packet;\n"
                 " mov.b128 packet, {%1, %2};\n"
                 " st.relaxed.sys.global.b128 [%0], packet;\n}"
                 :
                 : "l"(slot), "l"(packet.words[0]), "l"(packet.words[1])
                 : "memory");
}

/* If it is wanted, without a branch. */
WP_FN void weft__cuda_empty_slot(char *slot, uint32_t wanted)
{
    asm volatile("{\n .reg .pred wanted;\n .reg .b128 packet;\n"
                 " setp.ne.u32 wanted, %1, 0;\n"
                 " mov.b128 packet, {%2, %2};\n"
                 " @wanted st.relaxed.sys.global.b128 [%0], packet;\n}"
                 :
                 : "l"(slot), "r"(wanted), "l"((uint64_t)0)
                 : "memory");
}

WP_FN int weft__cuda_is_empty(struct weft__cuda_packet packet)
{
    return (packet.words[0] | packet.words[1]) == 0;
}

WP_FN int weft__cuda_is_escape(struct weft__cuda_packet packet)
{
    return (packet.words[0] & packet.words[1]) == WP_PACKET_ESCAPE;
}

WP_FN struct weft__cuda_packet weft__cuda_packet_of(int4 chunk)
{
    return {{((uint64_t)(uint32_t)chunk.y << 32 | (uint32_t)chunk.x) ^ WP_PACKET_KEY(0),
             ((uint64_t)(uint32_t)chunk.w << 32 | (uint32_t)chunk.z) ^ WP_PACKET_KEY(1)}};
}

WP_FN int4 weft__cuda_chunk_of(struct weft__cuda_packet packet)
{
    const uint64_t low = packet.words[0] ^ WP_PACKET_KEY(0);
    const uint64_t high = packet.words[1] ^ WP_PACKET_KEY(1);
    return make_int4((int)low, (int)(low >> 32), (int)high, (int)(high >> 32));
}

WP_FN char *weft__cuda_slot(const struct wp_packets *packets, int32_t rank, uint64_t slot)
{
    return packets->areas[rank] + packets->slots_offset + slot * WP_PACKET_BYTES;
}

WP_FN uint64_t *weft__cuda_escape_word(const struct wp_packets *packets, int32_t rank,
                                       uint64_t slot)
{
    return (uint64_t *)(packets->areas[rank] + packets->escapes_offset) + slot;
}

/* ------------------------------------------------------------------ packets of rows in memory */

/* The row may be in shared memory, or among the arguments. */
WP_FN int4 weft__cuda_load_chunk(const void *from)
{
    int4 chunk;
    asm volatile("ld.v4.s32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(chunk.x), "=r"(chunk.y), "=r"(chunk.z), "=r"(chunk.w)
                 : "l"(from)
                 : "memory");
    return chunk;
}

WP_FN void weft__cuda_store_chunk(void *to, int4 chunk)
{
    asm volatile("st.v4.s32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(to), "r"(chunk.x), "r"(chunk.y), "r"(chunk.z), "r"(chunk.w)
                 : "memory");
}

WP_FN uint64_t weft__cuda_num_packets(uint64_t bytes)
{
    return (bytes + WP_PACKET_BYTES - 1) / WP_PACKET_BYTES;
}

/* The compiler must not move the lane's earlier stores to the row behind the loads here. */
WP_FN void weft__cuda_begin_row(void)
{
    asm volatile("" ::: "memory");
}

/* Whether the packet at an address, where so many bytes of the row are left, is a whole one that
 * can be accessed in one piece. Some programs know that all are. */
WP_FN int weft__cuda_is_whole(const char *at, uint64_t num_left)
{
#ifdef WP_ROWS_ARE_ALIGNED
    return 1;
#else
    return (uint64_t)at % WP_PACKET_BYTES == 0 && num_left >= WP_PACKET_BYTES;
#endif
}

/* Packet i of a row of `bytes`; beyond the row's end there are zeros. */
WP_FN int4 weft__cuda_read_packet(const void *row, uint64_t i, uint64_t bytes)
{
    const char *from = (const char *)row + i * WP_PACKET_BYTES;
    const uint64_t num_left = bytes - i * WP_PACKET_BYTES;
    if (weft__cuda_is_whole(from, num_left))
        return weft__cuda_load_chunk(from);
    uint32_t words[4] = {0, 0, 0, 0};
#pragma unroll
    for (uint32_t byte = 0; byte < WP_PACKET_BYTES; byte++) {
        if (byte < num_left)
            words[byte / 4] |= (uint32_t)(uint8_t)from[byte] << (8 * (byte % 4));
    }
    return make_int4((int)words[0], (int)words[1], (int)words[2], (int)words[3]);
}

WP_FN void weft__cuda_write_packet(void *row, uint64_t i, uint64_t bytes, int4 chunk)
{
    char *to = (char *)row + i * WP_PACKET_BYTES;
    const uint64_t num_left = bytes - i * WP_PACKET_BYTES;
    if (weft__cuda_is_whole(to, num_left)) {
        weft__cuda_store_chunk(to, chunk);
        return;
    }
    /* By way of memory: see weft__cuda_store_element. */
    volatile uint32_t words[4] = {(uint32_t)chunk.x, (uint32_t)chunk.y, (uint32_t)chunk.z,
                                  (uint32_t)chunk.w};
#pragma unroll 1
    for (uint32_t byte = 0; byte < WP_PACKET_BYTES && byte < num_left; byte++)
        to[byte] = (char)(words[byte / 4] >> (8 * (byte % 4)));
}
