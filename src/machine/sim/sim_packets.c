/* SPDX-License-Identifier: MIT */
/*
 * Packets on the sim: a slot is a word, loaded and stored in one piece, in the store buffers as any
 * store. Nothing in one launch is ordered by them, so they have no ordering site; the launches'
 * fences are in fences.c. Escape words carry their meaning in their value and order nothing either.
 */
#include <string.h>

#include "machine/cpu/cpu_rows.h"
#include "machine/sim/sim_launch.h"

struct call {
    struct wp_warp *warp;
    const struct wp_packets *packets;
    const void *code;
};

static uint64_t *word_of(const struct call *call, int32_t rank, uint64_t array_offset, uint64_t i)
{
    return (uint64_t *)(void *)(call->packets->areas[rank] + array_offset) + i;
}

/* Slots are 8 bytes here, but their area must also do for GPUs. */
static uint64_t *slot_of(const struct call *call, int32_t rank, uint64_t slot)
{
    sim_check_packet_alignment(word_of(call, rank, call->packets->slots_offset, 0), call->code);
    return word_of(call, rank, call->packets->slots_offset, slot);
}

static uint64_t *escape_of(const struct call *call, int32_t rank, uint64_t slot)
{
    return word_of(call, rank, call->packets->escapes_offset, slot);
}

static void store_word(const struct call *call, uint64_t *word, uint64_t value)
{
    sim_check_access(word, sizeof *word, SIM_ATOMIC_WRITE, call->code);
    sim_store_begin(word, sizeof *word, SIM_PLAIN_STORE);
    *word = value;
}

static uint64_t load_word(const struct call *call, const uint64_t *word)
{
    sim_check_access(word, sizeof *word, SIM_ATOMIC_READ, call->code);
    return *word;
}

static struct sim_packet packet_from(const struct call *call, int32_t rank)
{
    const struct sim_fences *fences = call->warp->shared->launch->fences;
    return (struct sim_packet){rank, call->packets->sequence, call->packets->exchange,
                               &fences->released};
}

/* ---------------------------------------------------------------- rows in memory */

static uint64_t num_packets(uint64_t row_bytes)
{
    return (row_bytes + WP_PACKET_BYTES - 1) / WP_PACKET_BYTES;
}

static size_t part_bytes(uint64_t row_bytes, uint64_t i)
{
    const uint64_t num_left = row_bytes - i * WP_PACKET_BYTES;
    return num_left < WP_PACKET_BYTES ? num_left : WP_PACKET_BYTES;
}

static uint64_t load_part(const struct call *call, const void *row, uint64_t row_bytes, uint64_t i)
{
    const char *from = (const char *)row + i * WP_PACKET_BYTES;
    const size_t num_bytes = part_bytes(row_bytes, i);
    uint64_t part = 0;
    sim_check_access(from, num_bytes, SIM_READ, call->code);
    memcpy(&part, from, num_bytes);
    return part;
}

static void store_part(const struct call *call, void *row, uint64_t row_bytes, uint64_t i,
                       uint64_t part)
{
    char *to = (char *)row + i * WP_PACKET_BYTES;
    const size_t num_bytes = part_bytes(row_bytes, i);
    sim_check_access(to, num_bytes, SIM_WRITE, call->code);
    sim_store_begin(to, num_bytes, SIM_PLAIN_STORE);
    memcpy(to, &part, num_bytes);
}

/* ---------------------------------------------------------------- one packet */

static void send_one(const struct call *call, int32_t rank, uint64_t slot, uint64_t part)
{
    const struct sim_packet packet = packet_from(call, call->packets->rank);
    const struct sim_access_record access = {sim_current(), SIM_ATOMIC_WRITE, call->code};
    uint64_t stored = part ^ WP_PACKET_KEY(0);
    if (stored == 0 || stored == WP_PACKET_ESCAPE) {
        const uint64_t which = stored == 0 ? WP_ESCAPE_EMPTY : WP_ESCAPE_ESCAPE;
        store_word(call, escape_of(call, rank, slot), 2 * packet.sequence + which);
        stored = WP_PACKET_ESCAPE;
    }
    uint64_t *word = slot_of(call, rank, slot);
    sim_slot_send(word, &packet, &access);
    store_word(call, word, stored);
}

static struct wp_wait_site site_of(const struct call *call, int32_t from)
{
    const struct wp_packets *packets = call->packets;
    return (struct wp_wait_site){WP_PHASE_DATA, from, packets->sequence, packets->exchange,
                                 packets->absent_after_ms};
}

/* Whether packets may not come: then some are taken when all of them are there. */
static int may_be_missing(const struct call *call)
{
    return call->packets->absent_after_ms > 0;
}

/* Waits for the packet and what its escape word says, and takes nothing. */
static enum wp_status await_one(const struct call *call, int32_t from, uint64_t slot,
                                struct wp_packet_progress *progress)
{
    const struct wp_wait_site site = site_of(call, from);
    const int32_t rank = call->packets->rank;
    const uint64_t *word = slot_of(call, rank, slot);
    enum wp_status status = sim_await(call->warp, word, 1, &site);
    if (status == WP_STATUS_OK && load_word(call, word) == WP_PACKET_ESCAPE)
        status =
            sim_await(call->warp, escape_of(call, rank, slot), 2 * call->packets->sequence, &site);
    if (status == WP_STATUS_ABSENT)
        progress->missing |= 1u << from;
    return status;
}

/* What the packet in the slot would have been stored as, had it not been escaped. */
static enum wp_status load_stored(const struct call *call, const struct wp_wait_site *site,
                                  uint64_t slot, uint64_t *stored)
{
    const int32_t rank = call->packets->rank;
    *stored = load_word(call, slot_of(call, rank, slot));
    if (*stored != WP_PACKET_ESCAPE)
        return WP_STATUS_OK;
    const uint64_t *escape = escape_of(call, rank, slot);
    if (sim_await(call->warp, escape, 2 * call->packets->sequence, site) != WP_STATUS_OK)
        return WP_STATUS_FAILED;
    *stored = load_word(call, escape) % 2 == WP_ESCAPE_EMPTY ? 0 : WP_PACKET_ESCAPE;
    return WP_STATUS_OK;
}

/* Waits for the packet and empties the slot. */
static enum wp_status take_one(const struct call *call, int32_t from, uint64_t slot, uint64_t *part)
{
    const struct wp_packets *packets = call->packets;
    const struct wp_wait_site site = site_of(call, from);
    const struct sim_packet awaited = packet_from(call, from);
    const struct sim_access_record access = {sim_current(), SIM_ATOMIC_WRITE, call->code};
    uint64_t *word = slot_of(call, packets->rank, slot);
    uint64_t stored;
    if (sim_await(call->warp, word, 1, &site) != WP_STATUS_OK ||
        load_stored(call, &site, slot, &stored) != WP_STATUS_OK)
        return WP_STATUS_FAILED;
    const struct sim_clock *brought = sim_slot_take(word, &awaited, &access);
    if (brought != NULL) {
        sim_clock_join(&call->warp->shared->launch->fences->taken, brought);
        sim_clock_join(&sim_current()->taken, brought);
    }
    store_word(call, word, 0);
    *part = stored ^ WP_PACKET_KEY(0);
    return WP_STATUS_OK;
}

/* ---------------------------------------------------------------- the primitives */

static void send_part(const struct call *call, struct wp_packet_targets to, uint64_t i,
                      uint64_t part)
{
    for (int32_t rank = to.begin; rank < to.end; rank++) {
        if (wp_packets_go_to(call->packets, to, rank))
            send_one(call, rank, to.slot + i, part);
    }
    sim_yield();
}

void weft__sim_packets_send(struct wp_warp *warp, const struct wp_packets *packets,
                            struct wp_packet_targets to, const void *src, uint64_t bytes,
                            struct weft__sim_place place)
{
    const struct call call = {warp, packets, __builtin_return_address(0)};
    sim_trace("send", place, src, bytes);
    for (uint64_t i = (uint64_t)warp->lane_idx; i < num_packets(bytes); i += WP_WARP_SIZE) {
        send_part(&call, to, i, load_part(&call, src, bytes, i));
    }
}

/* A part of a row that a lane has made: all its packets, which are the row's from `first` on. */
static void send_made(const struct call *call, struct wp_packet_targets to, uint64_t first,
                      const char *made, uint64_t bytes)
{
    for (uint64_t i = 0; i < num_packets(bytes); i++) {
        uint64_t part = 0;
        memcpy(&part, made + i * WP_PACKET_BYTES, part_bytes(bytes, i));
        send_part(call, to, first + i, part);
    }
}

/* Some groups at a time, so many that their codes and their scales are whole packets. */
void weft__sim_packets_send_quantised(struct wp_warp *warp, const struct wp_packets *packets,
                                      struct wp_packet_targets to, uint64_t scales_slot,
                                      const void *src, struct wp_quantisation how,
                                      int64_t num_elements, struct weft__sim_place place)
{
    enum { GROUPS = 4, MOST_ELEMENTS = 128 };
    const struct call call = {warp, packets, __builtin_return_address(0)};
    const int64_t step = GROUPS * (int64_t)how.group_elements;
    struct wp_packet_targets scales_to = to;
    scales_to.slot = scales_slot;
    sim_trace("send", place, src, (uint64_t)num_elements);
    for (int64_t i = warp->lane_idx; i * step < num_elements; i += WP_WARP_SIZE) {
        const int64_t num_left = num_elements - i * step, num = num_left < step ? num_left : step;
        const uint64_t element_bytes = wp_dtype_bytes(how.src_dtype);
        const char *from = (const char *)src + (uint64_t)(i * step) * element_bytes;
        char codes[GROUPS * MOST_ELEMENTS];
        float scales[GROUPS] = {0};
        const void *const code_rows[] = {codes};
        const void *const scale_rows[] = {scales};
        sim_check_access(from, (uint64_t)num * element_bytes, SIM_READ, call.code);
        weft__cpu_rows_of(WEFT__ROWS_BASE)
            ->quantise((struct wp_quantised_rows){code_rows, scale_rows, 0, 1}, from, how, num);
        send_made(&call, to, (uint64_t)(i * step) / WP_PACKET_BYTES, codes, (uint64_t)num);
        send_made(&call, scales_to, (uint64_t)i * (sizeof scales / WP_PACKET_BYTES),
                  (const char *)scales, sizeof scales);
    }
}

/* A packet at a time. */
void weft__sim_packets_send_weighted_sum(struct wp_warp *warp, const struct wp_packets *packets,
                                         struct wp_packet_targets to, const void *const *srcs,
                                         const float *weights, int32_t num_srcs,
                                         struct wp_weighted_sum sum, int64_t num_elements,
                                         struct weft__sim_place place)
{
    const struct call call = {warp, packets, __builtin_return_address(0)};
    const int64_t step = WP_PACKET_BYTES / (int64_t)wp_dtype_bytes(sum.dst_dtype);
    const uint64_t element_bytes = wp_dtype_bytes(sum.src_dtype);
    sim_trace("send", place, srcs, (uint64_t)num_elements);
    sim_check_access(srcs, (size_t)num_srcs * sizeof *srcs, SIM_READ, call.code);
    sim_check_access(weights, (size_t)num_srcs * sizeof *weights, SIM_READ, call.code);
    for (int64_t i = warp->lane_idx; i * step < num_elements; i += WP_WARP_SIZE) {
        const int64_t num_left = num_elements - i * step, num = num_left < step ? num_left : step;
        const void *from[WP_WARP_POINTERS];
        char row[WP_PACKET_BYTES];
        for (int32_t s = 0; s < num_srcs; s++) {
            from[s] = (const char *)srcs[s] + (uint64_t)(i * step) * element_bytes;
            sim_check_access(from[s], (uint64_t)num * element_bytes, SIM_READ, call.code);
        }
        weft__cpu_rows_of(WEFT__ROWS_BASE)->weighted_sum(row, from, weights, num_srcs, sum, num);
        send_made(&call, to, (uint64_t)i, row, (uint64_t)num * wp_dtype_bytes(sum.dst_dtype));
    }
}

/* All lanes return the same. That they wait for each other here orders nothing. */
static enum wp_status agree(struct wp_warp *warp, enum wp_status status)
{
    return (enum wp_status)weft__sim_max_u32(warp, (uint32_t)status);
}

/* The lane's next packet of a row, or its first one. */
static uint64_t first_packet(const struct wp_warp *warp, const struct wp_packet_progress *progress)
{
    return (uint64_t)warp->lane_idx + (progress != NULL ? progress->num_taken : 0);
}

/* Of a lane that has got to packet i. */
static void note_taken(const struct wp_warp *warp, struct wp_packet_progress *progress, uint64_t i)
{
    if (progress != NULL)
        progress->num_taken = i - (uint64_t)warp->lane_idx;
}

enum wp_status weft__sim_packets_receive_each(struct wp_warp *warp,
                                              const struct wp_packets *packets,
                                              const struct wp_expected_row *row,
                                              const void *const *dsts, int32_t num_dsts,
                                              struct wp_packet_progress *progress,
                                              struct weft__sim_place place)
{
    const struct call call = {warp, packets, __builtin_return_address(0)};
    enum wp_status status = WP_STATUS_OK;
    uint64_t i = first_packet(warp, progress);
    sim_trace("receive", place, slot_of(&call, packets->rank, row->slot), row->bytes);
    for (; i < num_packets(row->bytes) && status == WP_STATUS_OK; i += WP_WARP_SIZE) {
        uint64_t part;
        note_taken(warp, progress, i);
        if (may_be_missing(&call))
            status = await_one(&call, row->from, row->slot + i, progress);
        if (status == WP_STATUS_OK)
            status = take_one(&call, row->from, row->slot + i, &part);
        for (int32_t d = 0; d < num_dsts && status == WP_STATUS_OK; d++) {
            sim_check_access(&dsts[d], sizeof dsts[d], SIM_READ, call.code);
            store_part(&call, (char *)(uintptr_t)dsts[d], row->bytes, i, part);
        }
    }
    if (status == WP_STATUS_OK)
        note_taken(warp, progress, i);
    return agree(warp, status);
}

/* That a packet is absent is told by the word's value alone, as what a packet brings is by the
 * packet's. */
enum wp_status weft__sim_packets_receive_told(struct wp_warp *warp,
                                              const struct wp_packets *packets, int32_t from,
                                              uint64_t slot, const struct wp_packet_told *told,
                                              void *dst, uint64_t bytes,
                                              struct wp_packet_progress *progress,
                                              struct weft__sim_place place)
{
    const struct call call = {warp, packets, __builtin_return_address(0)};
    const struct wp_wait_site site = site_of(&call, from);
    const enum wp_status found = sim_await(warp, told->word, told->told, &site);
    const enum wp_status status = agree(warp, found);
    if (found == WP_STATUS_ABSENT)
        progress->missing |= 1u << from;
    if (status != WP_STATUS_OK)
        return status;
    if (load_word(&call, told->word) >= told->absent)
        return WP_STATUS_ABSENT;
    const struct wp_expected_row row = {from, slot, bytes};
    const void *const dsts[] = {dst};
    return weft__sim_packets_receive_each(warp, packets, &row, dsts, 1, progress, place);
}

/* Rows of some ranks; that of this one is in memory, if there is one there. */
struct sources {
    struct wp_packet_rows rows;
    const void *own;
    struct wp_packet_progress *progress;
};

static uint64_t slot_of_rank(const struct sources *from, int32_t rank, uint64_t i)
{
    return from->rows.slot + (uint64_t)rank * from->rows.slots_per_rank + i;
}

/* Packet i of each. */
static enum wp_status await_parts(const struct call *call, const struct sources *from, uint64_t i)
{
    enum wp_status status = WP_STATUS_OK;
    for (int32_t rank = 0; rank < call->packets->num_ranks && status == WP_STATUS_OK; rank++)
        if (from->rows.ranks >> rank & 1)
            status = await_one(call, rank, slot_of_rank(from, rank, i), from->progress);
    return status;
}

/* A packet's part of each, in rank order. */
struct parts {
    uint64_t parts[SIM_MAX_RANKS];
    int32_t num;
};

static enum wp_status collect_parts(const struct call *call, const struct sources *from,
                                    uint64_t row_bytes, uint64_t i, struct parts *parts)
{
    enum wp_status status = may_be_missing(call) ? await_parts(call, from, i) : WP_STATUS_OK;
    parts->num = 0;
    for (int32_t rank = 0; rank < call->packets->num_ranks && status == WP_STATUS_OK; rank++) {
        if ((from->rows.ranks >> rank & 1) == 0)
            continue;
        if (rank == call->packets->rank && from->own != NULL)
            parts->parts[parts->num] = load_part(call, from->own, row_bytes, i);
        else
            status = take_one(call, rank, slot_of_rank(from, rank, i), &parts->parts[parts->num]);
        parts->num++;
    }
    return status;
}

/* Of none it is zero. */
static uint64_t reduce_parts(const struct parts *parts, size_t num_bytes, struct wp_reduction how)
{
    uint64_t reduced = 0;
    const void *srcs[SIM_MAX_RANKS], *dsts[] = {&reduced};
    if (parts->num == 0)
        return 0;
    for (int32_t i = 0; i < parts->num; i++)
        srcs[i] = &parts->parts[i];
    weft__cpu_rows_of(WEFT__ROWS_BASE)
        ->reduce(dsts, 1, srcs, parts->num, how, (int64_t)(num_bytes / wp_dtype_bytes(how.dtype)));
    return reduced;
}

static enum wp_status reduce(const struct call *call, const struct sources *from, void *dst,
                             struct wp_reduction how, uint64_t num_elements)
{
    const uint64_t row_bytes = num_elements * wp_dtype_bytes(how.dtype);
    enum wp_status status = WP_STATUS_OK;
    uint64_t i = first_packet(call->warp, from->progress);
    for (; i < num_packets(row_bytes) && status == WP_STATUS_OK; i += WP_WARP_SIZE) {
        struct parts parts;
        note_taken(call->warp, from->progress, i);
        status = collect_parts(call, from, row_bytes, i, &parts);
        if (status == WP_STATUS_OK)
            store_part(call, dst, row_bytes, i,
                       reduce_parts(&parts, part_bytes(row_bytes, i), how));
    }
    if (status == WP_STATUS_OK)
        note_taken(call->warp, from->progress, i);
    return agree(call->warp, status);
}

enum wp_status weft__sim_packets_reduce(struct wp_warp *warp, const struct wp_packets *packets,
                                        const struct wp_packet_sources *from, void *dst,
                                        struct wp_reduction how, uint64_t num_elements,
                                        struct weft__sim_place place)
{
    const struct call call = {warp, packets, __builtin_return_address(0)};
    const struct sources all = {{UINT32_MAX, from->slot, from->slots_per_rank}, from->own, NULL};
    sim_trace("reduce", place, slot_of(&call, packets->rank, from->slot), num_elements);
    return reduce(&call, &all, dst, how, num_elements);
}

enum wp_status weft__sim_packets_sum(struct wp_warp *warp, const struct wp_packets *packets,
                                     const struct wp_packet_rows *from, void *dst, weft_dtype dtype,
                                     uint64_t num_elements, struct wp_packet_progress *progress,
                                     struct weft__sim_place place)
{
    const struct call call = {warp, packets, __builtin_return_address(0)};
    const struct wp_reduction sum = {.dtype = dtype, .op = WP_REDUCTION_SUM};
    const struct sources some = {*from, NULL, progress};
    sim_trace("sum", place, slot_of(&call, packets->rank, from->slot), num_elements);
    return reduce(&call, &some, dst, sum, num_elements);
}

void weft__sim_packets_send_words(struct wp_warp *warp, const struct wp_packets *packets,
                                  struct wp_packet_targets to, const uint64_t words[2],
                                  struct weft__sim_place place)
{
    const struct call call = {warp, packets, __builtin_return_address(0)};
    sim_trace("send", place, words, 2 * sizeof *words);
    for (int32_t rank = to.begin; rank < to.end && warp->lane_idx == 0; rank++) {
        for (uint64_t i = 0; i < 2 && rank != packets->rank; i++)
            send_one(&call, rank, to.slot + i, words[i]);
    }
    sim_yield();
}

/* Lane 0 takes them, and the lanes meet to hear of it, and again before the next words. */
enum wp_status weft__sim_packets_take_words(struct wp_warp *warp, const struct wp_packets *packets,
                                            int32_t from, uint64_t slot, uint64_t words[2],
                                            struct weft__sim_place place)
{
    const struct call call = {warp, packets, __builtin_return_address(0)};
    uint64_t *told = warp->shared->words;
    enum wp_status status = WP_STATUS_OK;
    sim_trace("receive", place, slot_of(&call, packets->rank, slot), 2 * sizeof *words);
    for (uint64_t i = 0; i < 2 && warp->lane_idx == 0 && status == WP_STATUS_OK; i++)
        status = take_one(&call, from, slot + i, &told[i]);
    status = agree(warp, status);
    words[0] = told[0];
    words[1] = told[1];
    (void)weft__sim_ballot(warp, 0);
    return status;
}

static void clear_words(const struct call *call, uint64_t *words, uint64_t num_words)
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
    const struct call call = {warp, packets, __builtin_return_address(0)};
    uint64_t *words = slot_of(&call, packets->rank, slot);
    sim_trace("clear", place, words, num_slots);
    if (warp->lane_idx == 0) {
        sim_slots_forget(words, num_slots * sizeof *words);
        clear_words(&call, words, num_slots);
        clear_words(&call, escape_of(&call, packets->rank, slot), num_slots);
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
