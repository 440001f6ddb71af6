/* SPDX-License-Identifier: MIT */
/* Packets on the cpu machine: slots are stored and loaded by relaxed atomics. */
#include "machine/cpu/tile.h"

enum { PART_BYTES = WEFT__TILE_BYTES };
#define PACKET_CALL(what, address, size) ((struct packet_call){.warp = warp, .packets = packets})

#include "machine/word_packets_body.h"

/* The thread sanitizer does not know fences: for its sake the packets order what the launches'
 * fences do. */
#ifdef __SANITIZE_THREAD__
enum { STORE_ORDER = __ATOMIC_RELEASE, LOAD_ORDER = __ATOMIC_ACQUIRE };
#else
enum { STORE_ORDER = __ATOMIC_RELAXED, LOAD_ORDER = __ATOMIC_RELAXED };
#endif

static const struct weft__row_functions *row_functions(void)
{
    return weft__cpu_rows();
}

static void check_read(const struct packet_call *call, const void *from, uint64_t num_bytes)
{
    (void)call, (void)from, (void)num_bytes;
}

static void check_write(const struct packet_call *call, void *to, uint64_t num_bytes)
{
    (void)call, (void)to, (void)num_bytes;
}

static void store_packet(const struct packet_call *call, uint64_t *slot, uint64_t stored)
{
    (void)call;
    __atomic_store_n(slot, stored, STORE_ORDER);
}

static void store_escape(const struct packet_call *call, int32_t rank, uint64_t *word,
                         uint64_t value)
{
    wp_signal(call->warp, rank, word, value);
}

static void part_sent(const struct packet_call *call, int32_t rank, uint64_t slot,
                      uint64_t num_packets)
{
    weft__cpu_ring(call->warp, rank, slot_of(call->packets, rank, slot), num_packets);
}

static uint64_t load_word(const struct packet_call *call, const uint64_t *word)
{
    (void)call;
    return __atomic_load_n(word, LOAD_ORDER);
}

static enum wp_status await_word(const struct packet_call *call, const uint64_t *word,
                                 uint64_t at_least, const struct wp_wait_site *site)
{
    return wp_wait(call->warp, word, at_least, site);
}

static enum wp_status await_packet(const struct packet_call *call, const uint64_t *slot,
                                   const struct wp_wait_site *site, uint64_t *stored)
{
    enum wp_status status = WP_STATUS_OK;
    *stored = load_word(call, slot);
    if (*stored == 0) {
        status = wp_wait(call->warp, slot, 1, site);
        *stored = load_word(call, slot);
    }
    return status;
}

static void empty_slot(const struct packet_call *call, int32_t from, uint64_t *slot)
{
    (void)call, (void)from;
    __atomic_store_n(slot, 0, __ATOMIC_RELAXED);
}

static enum wp_status agree(struct wp_warp *warp, enum wp_status status)
{
    (void)warp;
    return status;
}

enum wp_status weft__cpu_packets_take_words(struct wp_warp *warp, const struct wp_packets *packets,
                                            int32_t from, uint64_t slot, uint64_t words[2])
{
    const struct packet_call call = {.warp = warp, .packets = packets};
    return take_part(&call, (struct row_part){from, slot, 2}, words);
}

void weft__cpu_packets_clear(struct wp_warp *warp, const struct wp_packets *packets, uint64_t slot,
                             uint64_t num_slots)
{
    (void)warp;
    for (uint64_t i = slot; i < slot + num_slots; i++) {
        __atomic_store_n(slot_of(packets, packets->rank, i), 0, __ATOMIC_RELAXED);
        __atomic_store_n(escape_of(packets, packets->rank, i), 0, __ATOMIC_RELAXED);
    }
}
