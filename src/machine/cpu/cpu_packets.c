/* SPDX-License-Identifier: MIT */
/*
 * Packets of 8 bytes: a slot is one 64-bit word, stored and loaded by relaxed atomics. A receiver
 * that finds a slot empty waits as for a signal of value 1, since no packet is stored as 0.
 */
#include <string.h>

#include "machine/cpu/tile.h"
#include "machine/machine.h"

enum { TILE_PACKETS = WEFT__TILE_BYTES / WP_PACKET_BYTES };

_Static_assert(WP_PACKET_BYTES == sizeof(uint64_t), "a packet is one word");

/* The thread sanitizer does not know fences: for its sake the packets order what the launches'
 * fences do. */
#ifdef __SANITIZE_THREAD__
enum { STORE_ORDER = __ATOMIC_RELEASE, LOAD_ORDER = __ATOMIC_ACQUIRE };
#else
enum { STORE_ORDER = __ATOMIC_RELAXED, LOAD_ORDER = __ATOMIC_RELAXED };
#endif

static uint64_t *slot_of(const struct wp_packets *packets, int32_t rank, uint64_t slot)
{
    return (uint64_t *)(void *)(packets->areas[rank] + packets->slots_offset) + slot;
}

static uint64_t *escape_of(const struct wp_packets *packets, int32_t rank, uint64_t slot)
{
    return (uint64_t *)(void *)(packets->areas[rank] + packets->escapes_offset) + slot;
}

static uint64_t num_packets_of(uint64_t bytes)
{
    return (bytes + WP_PACKET_BYTES - 1) / WP_PACKET_BYTES;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ------------------------------------------------------------------ sending */

static void send_word(struct wp_warp *warp, const struct wp_packets *packets, int32_t rank,
                      uint64_t slot, uint64_t word)
{
    uint64_t stored = word ^ WP_PACKET_KEY(0);
    if (stored == 0 || stored == WP_PACKET_ESCAPE) {
        const enum wp_packet_escape escape = stored == 0 ? WP_ESCAPE_EMPTY : WP_ESCAPE_ESCAPE;
        wp_signal(warp, rank, escape_of(packets, rank, slot), 2 * packets->sequence + escape);
        stored = WP_PACKET_ESCAPE;
    }
    __atomic_store_n(slot_of(packets, rank, slot), stored, STORE_ORDER);
}

static void send_row(struct wp_warp *warp, const struct wp_packets *packets, int32_t rank,
                     uint64_t slot, const char *src, uint64_t bytes)
{
    const uint64_t num_whole = bytes / WP_PACKET_BYTES;
    for (uint64_t i = 0; i < num_whole; i++) {
        uint64_t word;
        memcpy(&word, src + i * WP_PACKET_BYTES, WP_PACKET_BYTES);
        send_word(warp, packets, rank, slot + i, word);
    }
    const uint64_t rest = bytes % WP_PACKET_BYTES;
    if (rest > 0) {
        uint64_t word = 0;
        memcpy(&word, src + num_whole * WP_PACKET_BYTES, rest);
        send_word(warp, packets, rank, slot + num_whole, word);
    }
    weft__cpu_ring(warp, rank, slot_of(packets, rank, slot), num_packets_of(bytes));
}

void weft__cpu_packets_send(struct wp_warp *warp, const struct wp_packets *packets,
                            struct wp_packet_targets to, const void *src, uint64_t bytes)
{
    for (int32_t rank = to.begin; rank < to.end; rank++) {
        if (wp_packets_go_to(packets, to, rank))
            send_row(warp, packets, rank, to.slot, src, bytes);
    }
}

void weft__cpu_packets_send_words(struct wp_warp *warp, const struct wp_packets *packets,
                                  struct wp_packet_targets to, const uint64_t words[2])
{
    weft__cpu_packets_send(warp, packets, to, words, 2 * sizeof *words);
}

/* Some groups at a time, so many that their codes and their scales are whole packets. */
void weft__cpu_packets_send_quantised(struct wp_warp *warp, const struct wp_packets *packets,
                                      struct wp_packet_targets to, uint64_t scales_slot,
                                      const void *src, const struct wp_quantisation *how,
                                      int64_t num_elements)
{
    enum { GROUPS = 4, MOST_ELEMENTS = 128 };
    const int64_t step = GROUPS * (int64_t)how->group_elements;
    const uint64_t step_bytes = (uint64_t)step * wp_dtype_bytes(how->src_dtype);
    struct wp_packet_targets scales_to = to;
    scales_to.slot = scales_slot;
    for (int64_t first = 0; first < num_elements; first += step) {
        _Alignas(16) char codes[GROUPS * MOST_ELEMENTS];
        float scales[GROUPS] = {0};
        const void *const code_rows[] = {codes};
        const void *const scale_rows[] = {scales};
        const int64_t num = num_elements - first < step ? num_elements - first : step;
        const struct wp_quantised_rows made = {code_rows, scale_rows, 0, 1};
        weft__cpu_rows()->quantise(made, src, *how, num);
        weft__cpu_packets_send(warp, packets, to, codes, (uint64_t)num);
        weft__cpu_packets_send(warp, packets, scales_to, scales, sizeof scales);
        to.slot += (uint64_t)step / WP_PACKET_BYTES;
        scales_to.slot += sizeof scales / WP_PACKET_BYTES;
        src = (const char *)src + step_bytes;
    }
}

void weft__cpu_packets_send_weighted_sum(struct wp_warp *warp, const struct wp_packets *packets,
                                         struct wp_packet_targets to,
                                         const struct weft__cpu_weighted_rows *rows,
                                         const struct wp_weighted_sum *sum, int64_t num_elements)
{
    const int64_t step = WEFT__TILE_BYTES / (int64_t)wp_dtype_bytes(WEFT_FP32);
    const void *srcs[WP_WARP_POINTERS];
    for (int64_t first = 0; first < num_elements; first += step) {
        _Alignas(16) char row[WEFT__TILE_BYTES];
        const int64_t num = num_elements - first < step ? num_elements - first : step;
        for (int32_t s = 0; s < rows->num_srcs; s++)
            srcs[s] =
                (const char *)rows->srcs[s] + (uint64_t)first * wp_dtype_bytes(sum->src_dtype);
        weft__cpu_rows()->weighted_sum(row, srcs, rows->weights, rows->num_srcs, *sum, num);
        weft__cpu_packets_send(warp, packets, to, row,
                               (uint64_t)num * wp_dtype_bytes(sum->dst_dtype));
        to.slot += (uint64_t)step * wp_dtype_bytes(sum->dst_dtype) / WP_PACKET_BYTES;
    }
}

/* ------------------------------------------------------------------ receiving */

struct arrival {
    struct wp_warp *warp;
    const struct wp_packets *packets;
    struct wp_wait_site site;
};

static struct arrival arrival_from(struct wp_warp *warp, const struct wp_packets *packets,
                                   int32_t rank)
{
    return (struct arrival){
        warp,
        packets,
        {WP_PHASE_DATA, rank, packets->sequence, packets->exchange, packets->absent_after_ms}};
}

/* Whether packets may not come: then some are taken when all of them are there. */
static int may_be_missing(const struct wp_packets *packets)
{
    return packets->absent_after_ms > 0;
}

/* Waits for what the slots and their escape words have, and takes nothing. */
static enum wp_status await_words(const struct arrival *arrival, uint64_t slot, uint64_t num_words,
                                  struct wp_packet_progress *progress)
{
    const struct wp_packets *packets = arrival->packets;
    enum wp_status status = WP_STATUS_OK;
    for (uint64_t i = slot; i < slot + num_words && status == WP_STATUS_OK; i++) {
        const uint64_t *place = slot_of(packets, packets->rank, i);
        status = wp_wait(arrival->warp, place, 1, &arrival->site);
        if (status == WP_STATUS_OK && __atomic_load_n(place, LOAD_ORDER) == WP_PACKET_ESCAPE)
            status = wp_wait(arrival->warp, escape_of(packets, packets->rank, i),
                             2 * packets->sequence, &arrival->site);
    }
    if (status == WP_STATUS_ABSENT)
        progress->missing |= 1u << arrival->site.rank;
    return status;
}

/* What is in the slot when a packet has come. The slot is empty afterwards. */
static enum wp_status take_stored(const struct arrival *arrival, uint64_t slot, uint64_t *stored)
{
    uint64_t *place = slot_of(arrival->packets, arrival->packets->rank, slot);
    *stored = __atomic_load_n(place, LOAD_ORDER);
    if (*stored == 0) {
        const enum wp_status status = wp_wait(arrival->warp, place, 1, &arrival->site);
        if (status != WP_STATUS_OK)
            return status;
        *stored = __atomic_load_n(place, LOAD_ORDER);
    }
    __atomic_store_n(place, 0, __ATOMIC_RELAXED);
    return WP_STATUS_OK;
}

static enum wp_status take_escape(const struct arrival *arrival, uint64_t slot, uint64_t *stored)
{
    const uint64_t *word = escape_of(arrival->packets, arrival->packets->rank, slot);
    const uint64_t least = 2 * arrival->packets->sequence;
    const enum wp_status status = wp_wait(arrival->warp, word, least, &arrival->site);
    if (status != WP_STATUS_OK)
        return status;
    const uint64_t escape = __atomic_load_n(word, __ATOMIC_RELAXED) - least;
    *stored = escape == WP_ESCAPE_EMPTY ? 0 : WP_PACKET_ESCAPE;
    return WP_STATUS_OK;
}

static enum wp_status take_words(const struct arrival *arrival, uint64_t slot, uint64_t num_words,
                                 uint64_t *words)
{
    for (uint64_t i = 0; i < num_words; i++) {
        uint64_t stored;
        enum wp_status status = take_stored(arrival, slot + i, &stored);
        if (status == WP_STATUS_OK && stored == WP_PACKET_ESCAPE)
            status = take_escape(arrival, slot + i, &stored);
        if (status != WP_STATUS_OK)
            return status;
        words[i] = stored ^ WP_PACKET_KEY(0);
    }
    return WP_STATUS_OK;
}

enum wp_status weft__cpu_packets_receive_each(struct wp_warp *warp,
                                              const struct wp_packets *packets,
                                              const struct wp_expected_row *row,
                                              const void *const *dsts, int32_t num_dsts,
                                              struct wp_packet_progress *progress)
{
    const struct arrival arrival = arrival_from(warp, packets, row->from);
    const uint64_t num_packets = num_packets_of(row->bytes);
    uint64_t begin = progress != NULL ? progress->num_taken : 0;
    for (; begin < num_packets; begin += TILE_PACKETS) {
        const uint64_t num_words = smaller(num_packets - begin, TILE_PACKETS);
        const uint64_t offset_bytes = begin * WP_PACKET_BYTES;
        uint64_t words[TILE_PACKETS];
        enum wp_status status = WP_STATUS_OK;
        if (progress != NULL && may_be_missing(packets)) {
            progress->num_taken = begin;
            status = await_words(&arrival, row->slot + begin, num_words, progress);
        }
        if (status == WP_STATUS_OK)
            status = take_words(&arrival, row->slot + begin, num_words, words);
        if (status != WP_STATUS_OK)
            return status;
        for (int32_t i = 0; i < num_dsts; i++)
            memcpy((char *)(uintptr_t)dsts[i] + offset_bytes, words,
                   smaller(row->bytes - offset_bytes, sizeof words));
    }
    return WP_STATUS_OK;
}

enum wp_status weft__cpu_packets_receive_told(struct wp_warp *warp,
                                              const struct wp_packets *packets, int32_t from,
                                              uint64_t slot, const struct wp_packet_told *told,
                                              void *dst, uint64_t bytes,
                                              struct wp_packet_progress *progress)
{
    const struct arrival arrival = arrival_from(warp, packets, from);
    uint64_t seen;
    const enum wp_status status = wp_wait_value(warp, told->word, told->told, &arrival.site, &seen);
    if (status == WP_STATUS_ABSENT)
        progress->missing |= 1u << from;
    if (status != WP_STATUS_OK)
        return status;
    const struct wp_expected_row row = {from, slot, bytes};
    const void *const dsts[] = {dst};
    return seen >= told->absent
               ? WP_STATUS_ABSENT
               : weft__cpu_packets_receive_each(warp, packets, &row, dsts, 1, progress);
}

enum wp_status weft__cpu_packets_take_words(struct wp_warp *warp, const struct wp_packets *packets,
                                            int32_t from, uint64_t slot, uint64_t words[2])
{
    const struct arrival arrival = arrival_from(warp, packets, from);
    return take_words(&arrival, slot, 2, words);
}

/* Rows of some ranks; that of this one is in memory, if there is one there. */
struct sources {
    struct wp_packet_rows rows;
    const void *own;
    struct wp_packet_progress *progress; /* NULL: what does not come fails the launch */
};

/* Of all rows, packets from one on: waits for them. */
static enum wp_status await_rows(struct wp_warp *warp, const struct wp_packets *packets,
                                 const struct sources *from, uint64_t begin, uint64_t num_words)
{
    enum wp_status status = WP_STATUS_OK;
    from->progress->num_taken = begin;
    for (int32_t rank = 0; rank < packets->num_ranks && status == WP_STATUS_OK; rank++) {
        const struct arrival arrival = arrival_from(warp, packets, rank);
        if (from->rows.ranks >> rank & 1)
            status = await_words(
                &arrival, from->rows.slot + begin + (uint64_t)rank * from->rows.slots_per_rank,
                num_words, from->progress);
    }
    return status;
}

/* From `offset_bytes` on. */
static enum wp_status add_rows(struct wp_warp *warp, const struct wp_packets *packets,
                               const struct sources *from, struct weft__tile *tile,
                               uint64_t offset_bytes)
{
    const struct weft__tile_functions *functions = weft__cpu_rows()->tile;
    const uint64_t num_words =
        num_packets_of((uint64_t)tile->num_elements * wp_dtype_bytes(tile->reduction.dtype));
    const uint64_t first_slot = from->rows.slot + offset_bytes / WP_PACKET_BYTES;
    if (from->progress != NULL && may_be_missing(packets)) {
        const enum wp_status status =
            await_rows(warp, packets, from, offset_bytes / WP_PACKET_BYTES, num_words);
        if (status != WP_STATUS_OK)
            return status;
    }
    for (int32_t rank = 0; rank < packets->num_ranks; rank++) {
        if ((from->rows.ranks >> rank & 1) == 0)
            continue;
        if (rank == packets->rank && from->own != NULL) {
            functions->add(tile, (const char *)from->own + offset_bytes);
            continue;
        }
        const struct arrival arrival = arrival_from(warp, packets, rank);
        uint64_t words[TILE_PACKETS];
        const enum wp_status status = take_words(
            &arrival, first_slot + (uint64_t)rank * from->rows.slots_per_rank, num_words, words);
        if (status != WP_STATUS_OK)
            return status;
        functions->add(tile, words);
    }
    return WP_STATUS_OK;
}

static enum wp_status reduce(struct wp_warp *warp, const struct wp_packets *packets,
                             const struct sources *from, void *dst, struct wp_reduction reduction,
                             uint64_t num_elements)
{
    const struct weft__tile_functions *functions = weft__cpu_rows()->tile;
    const uint64_t element_bytes = wp_dtype_bytes(reduction.dtype);
    const uint64_t num_taken = from->progress != NULL ? from->progress->num_taken : 0;
    for (uint64_t begin = num_taken * WP_PACKET_BYTES / element_bytes; begin < num_elements;
         begin += WEFT__TILE_ELEMENTS) {
        struct weft__tile tile;
        functions->begin(&tile, reduction,
                         (int64_t)smaller(num_elements - begin, WEFT__TILE_ELEMENTS));
        const enum wp_status status = add_rows(warp, packets, from, &tile, begin * element_bytes);
        if (status != WP_STATUS_OK)
            return status;
        functions->store(&tile, (char *)dst + begin * element_bytes);
    }
    return WP_STATUS_OK;
}

enum wp_status weft__cpu_packets_reduce(struct wp_warp *warp, const struct wp_packets *packets,
                                        const struct wp_packet_sources *from, void *dst,
                                        struct wp_reduction reduction, uint64_t num_elements)
{
    const struct sources all = {{UINT32_MAX, from->slot, from->slots_per_rank}, from->own, NULL};
    return reduce(warp, packets, &all, dst, reduction, num_elements);
}

enum wp_status weft__cpu_packets_sum(struct wp_warp *warp, const struct wp_packets *packets,
                                     const struct wp_packet_rows *from, void *dst, weft_dtype dtype,
                                     uint64_t num_elements, struct wp_packet_progress *progress)
{
    const struct wp_reduction sum = {.dtype = dtype, .op = WP_REDUCTION_SUM};
    const struct sources some = {*from, NULL, progress};
    const uint64_t done = progress != NULL ? progress->num_taken * WP_PACKET_BYTES : 0;
    if (from->ranks != 0)
        return reduce(warp, packets, &some, dst, sum, num_elements);
    memset((char *)dst + done, 0, num_elements * wp_dtype_bytes(dtype) - done);
    return WP_STATUS_OK;
}

void weft__cpu_packets_clear(const struct wp_packets *packets, uint64_t slot, uint64_t num_slots)
{
    for (uint64_t i = slot; i < slot + num_slots; i++) {
        __atomic_store_n(slot_of(packets, packets->rank, i), 0, __ATOMIC_RELAXED);
        __atomic_store_n(escape_of(packets, packets->rank, i), 0, __ATOMIC_RELAXED);
    }
}
