/* SPDX-License-Identifier: MIT */
/*
 * Packets on the sim: a slot is a word, loaded and stored in one piece, in the store buffers as any
 * store. Nothing in one launch is ordered by them, so they have no ordering site; the launches'
 * fences are in fences.c. Escape words carry their meaning in their value and order nothing either.
 */
#include "machine/cpu/cpu_rows.h"
#include "machine/sim/sim_launch.h"

enum { PART_BYTES = WP_PACKET_BYTES };
#define PACKET_CALL(what, address, size)                                                           \
    (sim_trace(what, place, address, size),                                                        \
     (struct packet_call){warp, packets, __builtin_return_address(0)})

#include "machine/word_packets_body.h"

static const struct weft__row_functions *row_functions(void)
{
    return weft__cpu_rows_of(WEFT__ROWS_BASE);
}

static void check_read(const struct packet_call *call, const void *from, uint64_t num_bytes)
{
    sim_check_access(from, num_bytes, SIM_READ, call->code);
}

static void check_write(const struct packet_call *call, void *to, uint64_t num_bytes)
{
    sim_check_access(to, num_bytes, SIM_WRITE, call->code);
    sim_store_begin(to, num_bytes, SIM_PLAIN_STORE);
}

static void store_word(const struct packet_call *call, uint64_t *word, uint64_t value)
{
    sim_check_access(word, sizeof *word, SIM_ATOMIC_WRITE, call->code);
    sim_store_begin(word, sizeof *word, SIM_PLAIN_STORE);
    *word = value;
}

static struct sim_packet packet_from(const struct packet_call *call, int32_t rank)
{
    const struct sim_fences *fences = call->warp->shared->launch->fences;
    return (struct sim_packet){rank, call->packets->sequence, call->packets->exchange,
                               &fences->released};
}

static void store_packet(const struct packet_call *call, uint64_t *slot, uint64_t stored)
{
    const struct sim_packet packet = packet_from(call, call->packets->rank);
    const struct sim_access_record access = {sim_current(), SIM_ATOMIC_WRITE, call->code};
    sim_slot_send(slot, &packet, &access);
    store_word(call, slot, stored);
    sim_yield();
}

static void store_escape(const struct packet_call *call, int32_t rank, uint64_t *word,
                         uint64_t value)
{
    (void)rank;
    store_word(call, word, value);
}

/* Slots are 8 bytes here, but their area must also do for GPUs. */
static void part_sent(const struct packet_call *call, int32_t rank, uint64_t slot,
                      uint64_t num_packets)
{
    (void)slot, (void)num_packets;
    sim_check_packet_alignment(slot_of(call->packets, rank, 0), call->code);
}

static uint64_t load_word(const struct packet_call *call, const uint64_t *word)
{
    sim_check_access(word, sizeof *word, SIM_ATOMIC_READ, call->code);
    return *word;
}

static enum wp_status await_word(const struct packet_call *call, const uint64_t *word,
                                 uint64_t at_least, const struct wp_wait_site *site)
{
    return sim_await(call->warp, word, at_least, site);
}

static enum wp_status await_packet(const struct packet_call *call, const uint64_t *slot,
                                   const struct wp_wait_site *site, uint64_t *stored)
{
    const enum wp_status status = sim_await(call->warp, slot, 1, site);
    *stored = status == WP_STATUS_OK ? load_word(call, slot) : 0;
    return status;
}

static void empty_slot(const struct packet_call *call, int32_t from, uint64_t *slot)
{
    const struct sim_packet awaited = packet_from(call, from);
    const struct sim_access_record access = {sim_current(), SIM_ATOMIC_WRITE, call->code};
    const struct sim_clock *brought = sim_slot_take(slot, &awaited, &access);
    if (brought != NULL) {
        sim_clock_join(&call->warp->shared->launch->fences->taken, brought);
        sim_clock_join(&sim_current()->taken, brought);
    }
    store_word(call, slot, 0);
}

/* That lanes wait for each other here orders nothing. */
static enum wp_status agree(struct wp_warp *warp, enum wp_status status)
{
    return (enum wp_status)weft__sim_max_u32(warp, (uint32_t)status);
}

/* Lane 0 takes them, and the lanes meet to hear of it, and again before the next words. */
enum wp_status weft__sim_packets_take_words(struct wp_warp *warp, const struct wp_packets *packets,
                                            int32_t from, uint64_t slot, uint64_t words[2],
                                            struct weft__sim_place place)
{
    const struct packet_call call =
        PACKET_CALL("receive", slot_of(packets, packets->rank, slot), 2 * sizeof *words);
    uint64_t *told = warp->shared->words;
    enum wp_status status = WP_STATUS_OK;
    if (warp->lane_idx == 0)
        status = take_part(&call, (struct row_part){from, slot, 2}, told);
    status = agree(warp, status);
    words[0] = told[0];
    words[1] = told[1];
    (void)weft__sim_ballot(warp, 0);
    return status;
}

static void clear_words(const struct packet_call *call, uint64_t *words, uint64_t num_words)
{
    const size_t num_bytes = num_words * sizeof *words;
    if (num_words == 0)
        return;
    sim_check_access(words, num_bytes, SIM_ATOMIC_WRITE, call->code);
    sim_store_begin(words, num_bytes, SIM_PLAIN_STORE);
    memset(words, 0, num_bytes);
}

/* Lane 0 does it for all. */
void weft__sim_packets_clear(struct wp_warp *warp, const struct wp_packets *packets, uint64_t slot,
                             uint64_t num_slots, struct weft__sim_place place)
{
    uint64_t *words = slot_of(packets, packets->rank, slot);
    const struct packet_call call = PACKET_CALL("clear", words, num_slots);
    if (warp->lane_idx == 0) {
        sim_slots_forget(words, num_slots * sizeof *words);
        clear_words(&call, words, num_slots);
        clear_words(&call, escape_of(packets, packets->rank, slot), num_slots);
    }
    sim_yield();
}

void weft__sim_acquire_packets(struct weft__sim_place place)
{
    const int is_weakened = sim_site_pass(place, SIM_SITE_ACQUIRE);
    sim_yield(); /* as at every site; what is acquired was taken before */
    if (!is_weakened)
        sim_acquire(&sim_current()->taken);
}
