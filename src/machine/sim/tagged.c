/* SPDX-License-Identifier: MIT */
/*
 * Tagged rows on the sim: a packet is three words of the row and the operation's number, one store
 * in the store buffers. Like other packets they order nothing that the launch did which sends them;
 * who takes them acquires what was done before it. Beside what memory shows, the sim keeps who has
 * read a row: one may be sent over it only after all of these.
 */
#include <string.h>

#include "machine/sim/sim_launch.h"
#include "machine/sim/table.h"

struct packet {
    uint32_t words[WEFT__SIM_TAGGED_WORDS];
    uint32_t tag; /* in the upper half of the second 64 bits */
};
enum { TAG_SHIFT = 32 };

struct row {
    const void *address;
    const struct sim_clock *released; /* what it brings */
    struct sim_clock readers;         /* of any of them: when they read last */
};

static struct sim_table rows = {.value_bytes = sizeof(struct row)};

static struct row *row_of(const void *address)
{
    struct row *row = sim_table_at(&rows, (uintptr_t)address);
    row->address = address;
    return row;
}

void sim_tagged_forget(const void *address, size_t num_bytes)
{
    for (size_t i = 0; i < sim_table_num_values(&rows); i++) {
        struct row *row = rows.values[i];
        if ((uintptr_t)row->address - (uintptr_t)address < num_bytes)
            *row = (struct row){.address = row->address};
    }
}

static void note_reader(struct row *row)
{
    const struct sim_fiber *fiber = sim_current();
    sim_clock_set(&row->readers, fiber->id, sim_now(fiber));
}

static void check_readers(const struct row *row, const struct sim_access_record *access)
{
    const struct sim_clock *past = &access->fiber->clock;
    for (int32_t i = 0; i < sim_times_size(&row->readers.all); i++) {
        if (sim_clock_of(&row->readers, i) > sim_clock_of_loads(past, i)) {
            sim_report_bad_access(row->address, access, NULL,
                                  "row sent over one that may still be read: the sender did not "
                                  "learn that its readers have ended");
            return;
        }
    }
}

static size_t words_bytes(int32_t num_words, int32_t first)
{
    const int32_t num_left = num_words - first;
    return (size_t)(num_left < WEFT__SIM_TAGGED_WORDS ? num_left : WEFT__SIM_TAGGED_WORDS) *
           sizeof(uint32_t);
}

static void send_packets(struct packet *packets, const uint32_t *words, int32_t num_words,
                         uint64_t sequence, const void *code)
{
    for (int32_t first = 0; first < num_words; first += WEFT__SIM_TAGGED_WORDS) {
        struct packet *packet = &packets[first / WEFT__SIM_TAGGED_WORDS];
        struct packet sent = {.tag = (uint32_t)sequence};
        sim_check_access(words + first, words_bytes(num_words, first), SIM_READ, code);
        memcpy(sent.words, words + first, words_bytes(num_words, first));
        sim_check_access(packet, sizeof *packet, SIM_ATOMIC_WRITE, code);
        sim_store_begin(packet, sizeof *packet, SIM_PLAIN_STORE);
        *packet = sent;
    }
}

/* Lane 0 does it for all. */
void weft__sim_tagged_send(struct wp_warp *warp, int32_t rank, void *row, const void *words,
                           int32_t num_words, uint64_t sequence, struct weft__sim_place place)
{
    const void *code = __builtin_return_address(0);
    const struct sim_access_record access = {sim_current(), SIM_ATOMIC_WRITE, code};
    (void)rank;
    sim_trace("send", place, row, sequence);
    if (warp->lane_idx == 0) {
        struct row *sent = row_of(row);
        check_readers(sent, &access);
        sim_check_packet_alignment(row, code);
        sent->released = &warp->shared->launch->fences->released;
        send_packets(row, words, num_words, sequence, code);
    }
    sim_yield();
}

static enum wp_status take_packets(struct wp_warp *warp, const struct packet *packets,
                                   uint32_t *words, int32_t num_words,
                                   const struct wp_wait_site *site, const void *code)
{
    const size_t num_bytes = (size_t)num_words * sizeof *words;
    sim_check_access(words, num_bytes, SIM_WRITE, code);
    for (int32_t first = 0; first < num_words; first += WEFT__SIM_TAGGED_WORDS) {
        const struct packet *packet = &packets[first / WEFT__SIM_TAGGED_WORDS];
        const uint64_t *tagged = (const uint64_t *)(const void *)packet + 1;
        const enum wp_status status =
            packet->tag == (uint32_t)site->sequence
                ? WP_STATUS_OK
                : sim_await(warp, tagged, site->sequence << TAG_SHIFT, site);
        if (status != WP_STATUS_OK)
            return status;
        sim_check_access(packet, sizeof *packet, SIM_ATOMIC_READ, code);
        sim_store_begin(words + first, words_bytes(num_words, first), SIM_PLAIN_STORE);
        memcpy(words + first, packet->words, words_bytes(num_words, first));
    }
    return WP_STATUS_OK;
}

enum order { ORDER_NONE, ORDER_ACQUIRE };

/* Lane 0, which alone acquires, and the lanes meet to hear of it; that orders nothing. */
static enum wp_status take(struct wp_warp *warp, const void *row, void *words, int32_t num_words,
                           const struct wp_wait_site *site, enum order order, const void *code)
{
    enum wp_status status = WP_STATUS_OK;
    if (warp->lane_idx == 0) {
        status = take_packets(warp, row, words, num_words, site, code);
        struct row *taken = row_of(row);
        if (status == WP_STATUS_OK)
            note_reader(taken);
        if (status == WP_STATUS_OK && taken->released != NULL) {
            sim_clock_join(&warp->shared->launch->fences->taken, taken->released);
            if (order == ORDER_ACQUIRE)
                sim_acquire(taken->released);
        }
    }
    return (enum wp_status)weft__sim_max_u32(warp, (uint32_t)status);
}

enum wp_status weft__sim_tagged_take(struct wp_warp *warp, const void *row, void *words,
                                     int32_t num_words, const struct wp_wait_site *site,
                                     struct weft__sim_place place)
{
    const int is_weakened = sim_site_pass(place, SIM_SITE_ACQUIRE);
    sim_trace("take", place, row, site->sequence);
    return take(warp, row, words, num_words, site, is_weakened ? ORDER_NONE : ORDER_ACQUIRE,
                __builtin_return_address(0));
}

enum wp_status weft__sim_tagged_take_relaxed(struct wp_warp *warp, const void *row, void *words,
                                             int32_t num_words, const struct wp_wait_site *site,
                                             struct weft__sim_place place)
{
    sim_trace("take", place, row, site->sequence);
    return take(warp, row, words, num_words, site, ORDER_NONE, __builtin_return_address(0));
}

uint32_t weft__sim_tagged_word(const void *row, int32_t word)
{
    const struct packet *packet = (const struct packet *)row + word / WEFT__SIM_TAGGED_WORDS;
    const uint32_t *place = &packet->words[word % WEFT__SIM_TAGGED_WORDS];
    note_reader(row_of(row));
    sim_check_access(place, sizeof *place, SIM_ATOMIC_READ, __builtin_return_address(0));
    return *place;
}
