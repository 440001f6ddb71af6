/* SPDX-License-Identifier: MIT */
/*
 * The functions of word_packets.h, for one file of each machine that has them. A receiver that
 * finds a slot empty waits as for a signal of value 1, since no packet is stored as 0. Before it
 * the file defines
 *
 *   PART_BYTES         what a lane takes at a time, whole packets and at most a tile
 *   PACKET_CALL(what, address, size)  the call's struct packet_call
 *
 * and behind it the functions that are declared first here.
 */
#include <string.h>

#include "machine/cpu/tile.h"
#include "machine/machine.h"

_Static_assert(WP_PACKET_BYTES == sizeof(uint64_t), "a packet is one word");
enum { PART_PACKETS = PART_BYTES / WP_PACKET_BYTES };

struct packet_call {
    struct wp_warp *warp;
    const struct wp_packets *packets;
    const void *code; /* that made it, for reports; or NULL */
};

static const struct weft__row_functions *row_functions(void);
/* Before rows in memory are read or written. */
static void check_read(const struct packet_call *call, const void *from, uint64_t num_bytes);
static void check_write(const struct packet_call *call, void *to, uint64_t num_bytes);
static void store_packet(const struct packet_call *call, uint64_t *slot, uint64_t stored);
static void store_escape(const struct packet_call *call, int32_t rank, uint64_t *word,
                         uint64_t value);
/* Behind what a lane has stored of a row. */
static void part_sent(const struct packet_call *call, int32_t rank, uint64_t slot,
                      uint64_t num_packets);
static uint64_t load_word(const struct packet_call *call, const uint64_t *word);
static enum wp_status await_word(const struct packet_call *call, const uint64_t *word,
                                 uint64_t at_least, const struct wp_wait_site *site);
/* Waits until there is a packet in the slot. */
static enum wp_status await_packet(const struct packet_call *call, const uint64_t *slot,
                                   const struct wp_wait_site *site, uint64_t *stored);
/* When its packet has been taken. */
static void empty_slot(const struct packet_call *call, int32_t from, uint64_t *slot);
/* The worst status of the warp's lanes. */
static enum wp_status agree(struct wp_warp *warp, enum wp_status status);

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

static void send_word(const struct packet_call *call, int32_t rank, uint64_t slot, uint64_t word)
{
    const struct wp_packets *packets = call->packets;
    uint64_t stored = word ^ WP_PACKET_KEY(0);
    if (stored == 0 || stored == WP_PACKET_ESCAPE) {
        const enum wp_packet_escape escape = stored == 0 ? WP_ESCAPE_EMPTY : WP_ESCAPE_ESCAPE;
        store_escape(call, rank, escape_of(packets, rank, slot), 2 * packets->sequence + escape);
        stored = WP_PACKET_ESCAPE;
    }
    store_packet(call, slot_of(packets, rank, slot), stored);
}

/* Which packets of a row a lane sends: from the first one on, in steps. */
struct lane_packets {
    uint64_t first, step;
    enum { ROW_IN_MEMORY, ROW_MADE_HERE } row;
};
static const struct lane_packets every_packet = {0, 1, ROW_MADE_HERE};

static void send_row(const struct packet_call *call, struct wp_packet_targets to, const void *row,
                     uint64_t bytes, struct lane_packets mine)
{
    const uint64_t num_packets = num_packets_of(bytes), num_whole = bytes / WP_PACKET_BYTES;
    for (int32_t rank = to.begin; rank < to.end; rank++) {
        if (!wp_packets_go_to(call->packets, to, rank))
            continue;
        for (uint64_t i = mine.first; i < num_packets; i += mine.step) {
            const char *part = (const char *)row + i * WP_PACKET_BYTES;
            uint64_t word = 0;
            if (mine.row == ROW_IN_MEMORY)
                check_read(call, part, smaller(bytes - i * WP_PACKET_BYTES, WP_PACKET_BYTES));
            if (i < num_whole)
                memcpy(&word, part, WP_PACKET_BYTES);
            else
                memcpy(&word, part, bytes % WP_PACKET_BYTES);
            send_word(call, rank, to.slot + i, word);
        }
        part_sent(call, rank, to.slot, num_packets);
    }
}

void WEFT__PACKETS(send)(struct wp_warp *warp, const struct wp_packets *packets,
                         struct wp_packet_targets to,
                         const struct wp_packet_row *row WEFT__PACKETS_PLACE)
{
    const struct packet_call call = PACKET_CALL("send", row->src, row->bytes);
    const struct lane_packets mine = {(uint64_t)wp_lane_idx(warp), WP_WARP_SIZE, ROW_IN_MEMORY};
    send_row(&call, to, row->src, row->bytes, mine);
}

void WEFT__PACKETS(send_words)(struct wp_warp *warp, const struct wp_packets *packets,
                               struct wp_packet_targets to,
                               const uint64_t words[2] WEFT__PACKETS_PLACE)
{
    const struct packet_call call = PACKET_CALL("send", words, 2 * sizeof *words);
    if (wp_lane_idx(warp) == 0)
        send_row(&call, to, words, 2 * sizeof *words, every_packet);
}

/* Some groups at a time, so many that their codes and their scales are whole packets. */
void WEFT__PACKETS(send_quantised)(struct wp_warp *warp, const struct wp_packets *packets,
                                   struct wp_packet_targets to, uint64_t scales_slot,
                                   const struct wp_packet_row *row, struct wp_quantisation how,
                                   int64_t num_elements WEFT__PACKETS_PLACE)
{
    enum { GROUPS = 4, MOST_ELEMENTS = 128 };
    const struct packet_call call = PACKET_CALL("send", row->src, (uint64_t)num_elements);
    const int64_t step = GROUPS * (int64_t)how.group_elements;
    const uint64_t element_bytes = wp_dtype_bytes(how.src_dtype);
    for (int64_t i = wp_lane_idx(warp); i * step < num_elements; i += WP_WARP_SIZE) {
        const int64_t num_left = num_elements - i * step, num = num_left < step ? num_left : step;
        const char *from = (const char *)row->src + (uint64_t)(i * step) * element_bytes;
        _Alignas(16) char codes[GROUPS * MOST_ELEMENTS];
        float scales[GROUPS] = {0};
        const void *const code_rows[] = {codes};
        const void *const scale_rows[] = {scales};
        struct wp_packet_targets codes_to = to, scales_to = to;
        codes_to.slot += (uint64_t)(i * step) / WP_PACKET_BYTES;
        scales_to.slot = scales_slot + (uint64_t)i * (sizeof scales / WP_PACKET_BYTES);
        check_read(&call, from, (uint64_t)num * element_bytes);
        row_functions()->quantise((struct wp_quantised_rows){code_rows, scale_rows, 0, 1}, from,
                                  how, num);
        send_row(&call, codes_to, codes, (uint64_t)num, every_packet);
        send_row(&call, scales_to, scales, sizeof scales, every_packet);
    }
}

void WEFT__PACKETS(send_weighted_sum)(struct wp_warp *warp, const struct wp_packets *packets,
                                      struct wp_packet_targets to, const void *const *srcs,
                                      const float *weights, int32_t num_srcs,
                                      struct wp_weighted_sum sum,
                                      int64_t num_elements WEFT__PACKETS_PLACE)
{
    const struct packet_call call = PACKET_CALL("send", srcs, (uint64_t)num_elements);
    const uint64_t src_bytes = wp_dtype_bytes(sum.src_dtype);
    const uint64_t dst_bytes = wp_dtype_bytes(sum.dst_dtype);
    const int64_t step = PART_BYTES / (int64_t)dst_bytes;
    check_read(&call, srcs, (uint64_t)num_srcs * sizeof *srcs);
    check_read(&call, weights, (uint64_t)num_srcs * sizeof *weights);
    for (int64_t i = wp_lane_idx(warp); i * step < num_elements; i += WP_WARP_SIZE) {
        const int64_t num_left = num_elements - i * step, num = num_left < step ? num_left : step;
        const void *from[WP_WARP_POINTERS];
        _Alignas(16) char row[PART_BYTES];
        struct wp_packet_targets row_to = to;
        row_to.slot += (uint64_t)i * PART_PACKETS;
        for (int32_t s = 0; s < num_srcs; s++) {
            from[s] = (const char *)srcs[s] + (uint64_t)(i * step) * src_bytes;
            check_read(&call, from[s], (uint64_t)num * src_bytes);
        }
        row_functions()->weighted_sum(row, from, weights, num_srcs, sum, num);
        send_row(&call, row_to, row, (uint64_t)num * dst_bytes, every_packet);
    }
}

/* ------------------------------------------------------------------ receiving */

static struct wp_wait_site site_of(const struct packet_call *call, int32_t from)
{
    const struct wp_packets *packets = call->packets;
    return (struct wp_wait_site){WP_PHASE_DATA, from, packets->sequence, packets->exchange,
                                 packets->absent_after_ms};
}

/* 1: some packets may never come. Then they are taken once all of them are there. */
static int may_be_missing(const struct packet_call *call, const struct wp_packet_progress *progress)
{
    return progress != NULL && call->packets->absent_after_ms > 0;
}

static uint64_t num_taken(const struct wp_packet_progress *progress)
{
    return progress != NULL ? progress->num_taken : 0;
}

static void note_taken(struct wp_packet_progress *progress, uint64_t num_taken)
{
    if (progress != NULL)
        progress->num_taken = num_taken;
}

/* A part of the row from a rank. */
struct row_part {
    int32_t from;
    uint64_t slot, num_packets;
};

/* Waits for what the slots and their escape words have, and takes nothing. */
static enum wp_status await_part(const struct packet_call *call, struct row_part part,
                                 struct wp_packet_progress *progress)
{
    const struct wp_packets *packets = call->packets;
    const struct wp_wait_site site = site_of(call, part.from);
    enum wp_status status = WP_STATUS_OK;
    for (uint64_t i = 0; i < part.num_packets && status == WP_STATUS_OK; i++) {
        uint64_t stored;
        status = await_packet(call, slot_of(packets, packets->rank, part.slot + i), &site, &stored);
        if (status == WP_STATUS_OK && stored == WP_PACKET_ESCAPE)
            status = await_word(call, escape_of(packets, packets->rank, part.slot + i),
                                2 * packets->sequence, &site);
    }
    if (status == WP_STATUS_ABSENT)
        progress->missing |= 1u << part.from;
    return status;
}

static enum wp_status take_word(const struct packet_call *call, const struct wp_wait_site *site,
                                uint64_t slot, uint64_t *word)
{
    const struct wp_packets *packets = call->packets;
    uint64_t *place = slot_of(packets, packets->rank, slot), stored;
    enum wp_status status = await_packet(call, place, site, &stored);
    if (status == WP_STATUS_OK && stored == WP_PACKET_ESCAPE) {
        const uint64_t *escape = escape_of(packets, packets->rank, slot);
        status = await_word(call, escape, 2 * packets->sequence, site);
        if (status == WP_STATUS_OK && load_word(call, escape) % 2 == WP_ESCAPE_EMPTY)
            stored = 0;
    }
    if (status != WP_STATUS_OK)
        return status;
    empty_slot(call, site->rank, place);
    *word = stored ^ WP_PACKET_KEY(0);
    return WP_STATUS_OK;
}

static enum wp_status take_part(const struct packet_call *call, struct row_part part,
                                uint64_t *words)
{
    const struct wp_wait_site site = site_of(call, part.from);
    enum wp_status status = WP_STATUS_OK;
    for (uint64_t i = 0; i < part.num_packets && status == WP_STATUS_OK; i++)
        status = take_word(call, &site, part.slot + i, &words[i]);
    return status;
}

static enum wp_status receive_row(const struct packet_call *call, const struct wp_expected_row *row,
                                  const void *const *dsts, int32_t num_dsts,
                                  struct wp_packet_progress *progress)
{
    const uint64_t first = (uint64_t)wp_lane_idx(call->warp) * PART_PACKETS;
    const uint64_t step = (uint64_t)PART_PACKETS * WP_WARP_SIZE;
    const uint64_t num_packets = num_packets_of(row->bytes);
    uint64_t begin = num_taken(progress) + first;
    enum wp_status status = WP_STATUS_OK;
    for (; begin < num_packets && status == WP_STATUS_OK; begin += step) {
        const struct row_part part = {row->from, row->slot + begin,
                                      smaller(num_packets - begin, PART_PACKETS)};
        const uint64_t offset_bytes = begin * WP_PACKET_BYTES;
        const uint64_t num_bytes = smaller(row->bytes - offset_bytes, PART_BYTES);
        uint64_t words[PART_PACKETS];
        note_taken(progress, begin - first);
        if (may_be_missing(call, progress))
            status = await_part(call, part, progress);
        if (status == WP_STATUS_OK)
            status = take_part(call, part, words);
        for (int32_t d = 0; d < num_dsts && status == WP_STATUS_OK; d++) {
            check_read(call, &dsts[d], sizeof dsts[d]);
            char *to = (char *)(uintptr_t)dsts[d] + offset_bytes;
            check_write(call, to, num_bytes);
            memcpy(to, words, num_bytes);
        }
    }
    if (status == WP_STATUS_OK)
        note_taken(progress, begin - first);
    return agree(call->warp, status);
}

enum wp_status WEFT__PACKETS(receive_each)(struct wp_warp *warp, const struct wp_packets *packets,
                                           const struct wp_expected_row *row,
                                           const void *const *dsts, int32_t num_dsts,
                                           struct wp_packet_progress *progress WEFT__PACKETS_PLACE)
{
    const struct packet_call call =
        PACKET_CALL("receive", slot_of(packets, packets->rank, row->slot), row->bytes);
    return receive_row(&call, row, dsts, num_dsts, progress);
}

/* The word's value alone says that a packet is absent, as a packet's value alone brings its
 * data. */
enum wp_status WEFT__PACKETS(receive_told)(struct wp_warp *warp, const struct wp_packets *packets,
                                           int32_t from, uint64_t slot,
                                           const struct wp_packet_told *told, void *dst,
                                           uint64_t bytes,
                                           struct wp_packet_progress *progress WEFT__PACKETS_PLACE)
{
    const struct packet_call call =
        PACKET_CALL("receive", slot_of(packets, packets->rank, slot), bytes);
    const struct wp_wait_site site = site_of(&call, from);
    const enum wp_status found = await_word(&call, told->word, told->told, &site);
    const enum wp_status status = agree(warp, found);
    if (found == WP_STATUS_ABSENT)
        progress->missing |= 1u << from;
    if (status != WP_STATUS_OK)
        return status;
    if (load_word(&call, told->word) >= told->absent)
        return WP_STATUS_ABSENT;
    const struct wp_expected_row row = {from, slot, bytes};
    const void *const dsts[] = {dst};
    return receive_row(&call, &row, dsts, 1, progress);
}

/* ------------------------------------------------------------------ reductions */

/* Rows of some ranks; that of this one is in memory, if there is one there. */
struct sources {
    struct wp_packet_rows rows;
    const void *own;
    struct wp_packet_progress *progress; /* NULL: what does not come fails the launch */
};

static struct row_part part_of(const struct sources *from, int32_t rank, uint64_t offset_bytes,
                               uint64_t num_bytes)
{
    return (struct row_part){rank,
                             from->rows.slot + (uint64_t)rank * from->rows.slots_per_rank +
                                 offset_bytes / WP_PACKET_BYTES,
                             num_packets_of(num_bytes)};
}

static enum wp_status await_rows(const struct packet_call *call, const struct sources *from,
                                 uint64_t offset_bytes, uint64_t num_bytes)
{
    enum wp_status status = WP_STATUS_OK;
    for (int32_t rank = 0; rank < call->packets->num_ranks && status == WP_STATUS_OK; rank++)
        if (from->rows.ranks >> rank & 1)
            status = await_part(call, part_of(from, rank, offset_bytes, num_bytes), from->progress);
    return status;
}

static enum wp_status add_rows(const struct packet_call *call, const struct sources *from,
                               struct weft__tile *tile, uint64_t offset_bytes)
{
    const struct wp_packets *packets = call->packets;
    const uint64_t num_bytes = (uint64_t)tile->num_elements * wp_dtype_bytes(tile->reduction.dtype);
    enum wp_status status = WP_STATUS_OK;
    if (may_be_missing(call, from->progress))
        status = await_rows(call, from, offset_bytes, num_bytes);
    for (int32_t rank = 0; rank < packets->num_ranks && status == WP_STATUS_OK; rank++) {
        uint64_t words[PART_PACKETS];
        const void *row = words;
        if ((from->rows.ranks >> rank & 1) == 0)
            continue;
        if (rank == packets->rank && from->own != NULL) {
            row = (const char *)from->own + offset_bytes;
            check_read(call, row, num_bytes);
        } else {
            status = take_part(call, part_of(from, rank, offset_bytes, num_bytes), words);
        }
        if (status == WP_STATUS_OK)
            row_functions()->tile->add(tile, row);
    }
    return status;
}

/* Without any row the sum is zero. */
static enum wp_status reduce(const struct packet_call *call, const struct sources *from, void *dst,
                             struct wp_reduction reduction, uint64_t num_elements)
{
    const struct weft__tile_functions *functions = row_functions()->tile;
    const uint64_t element_bytes = wp_dtype_bytes(reduction.dtype);
    const uint64_t step = smaller(PART_BYTES / element_bytes, WEFT__TILE_ELEMENTS);
    const uint64_t first = (uint64_t)wp_lane_idx(call->warp) * step;
    uint64_t begin = num_taken(from->progress) * WP_PACKET_BYTES / element_bytes + first;
    enum wp_status status = WP_STATUS_OK;
    for (; begin < num_elements && status == WP_STATUS_OK; begin += step * WP_WARP_SIZE) {
        const uint64_t num = smaller(num_elements - begin, step);
        char *to = (char *)dst + begin * element_bytes;
        struct weft__tile tile;
        note_taken(from->progress, (begin - first) * element_bytes / WP_PACKET_BYTES);
        functions->begin(&tile, reduction, (int64_t)num);
        status = add_rows(call, from, &tile, begin * element_bytes);
        if (status != WP_STATUS_OK)
            continue;
        check_write(call, to, num * element_bytes);
        if (from->rows.ranks == 0)
            memset(to, 0, num * element_bytes);
        else
            functions->store(&tile, to);
    }
    if (status == WP_STATUS_OK)
        note_taken(from->progress, (begin - first) * element_bytes / WP_PACKET_BYTES);
    return agree(call->warp, status);
}

enum wp_status WEFT__PACKETS(reduce)(struct wp_warp *warp, const struct wp_packets *packets,
                                     const struct wp_packet_sources *from, void *dst,
                                     struct wp_reduction reduction,
                                     uint64_t num_elements WEFT__PACKETS_PLACE)
{
    const struct packet_call call =
        PACKET_CALL("reduce", slot_of(packets, packets->rank, from->slot), num_elements);
    const struct sources all = {{UINT32_MAX, from->slot, from->slots_per_rank}, from->own, NULL};
    return reduce(&call, &all, dst, reduction, num_elements);
}

enum wp_status WEFT__PACKETS(sum)(struct wp_warp *warp, const struct wp_packets *packets,
                                  const struct wp_packet_rows *from, void *dst, weft_dtype dtype,
                                  uint64_t num_elements,
                                  struct wp_packet_progress *progress WEFT__PACKETS_PLACE)
{
    const struct packet_call call =
        PACKET_CALL("sum", slot_of(packets, packets->rank, from->slot), num_elements);
    const struct wp_reduction sum = {.dtype = dtype, .op = WP_REDUCTION_SUM};
    const struct sources some = {*from, NULL, progress};
    return reduce(&call, &some, dst, sum, num_elements);
}
