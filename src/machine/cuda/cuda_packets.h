/* SPDX-License-Identifier: MIT */
/* Packets on the cuda machine, taken; part of primitives.h. */
#pragma once

#include "machine/cuda/packet_sends.h"

/* Slots that a lane takes together, PARTS for each of some ranks: slot + i * slots_apart + part *
 * parts_apart, which rank + i * ranks_apart fills, is slot i * PARTS + part, of which `wanted` has
 * a bit each. */
template <int PARTS> struct weft__cuda_slots_of {
    uint64_t slot;
    uint64_t slots_apart;
    int32_t rank;
    int32_t ranks_apart;
    uint32_t wanted;
    uint64_t parts_apart;
};
typedef weft__cuda_slots_of<1> weft__cuda_slots;

template <int PARTS>
WP_FN uint64_t weft__cuda_slot_at(const weft__cuda_slots_of<PARTS> *slots, int s)
{
    return s / PARTS * slots->slots_apart + s % PARTS * slots->parts_apart;
}

template <int PARTS>
WP_FN struct wp_wait_site weft__cuda_site_of(const struct wp_packets *packets,
                                             const weft__cuda_slots_of<PARTS> *slots, int s)
{
    return {WP_PHASE_DATA, slots->rank + s / PARTS * slots->ranks_apart, packets->sequence,
            packets->exchange, packets->absent_after_ms};
}

/* Notes whose packets have not come, of a bit for each slot, if the status says so. */
template <int PARTS>
WP_FN enum wp_status weft__cuda_note_missing(const weft__cuda_slots_of<PARTS> *slots,
                                             uint32_t missing, struct wp_packet_progress *progress,
                                             enum wp_status status)
{
    if (status != WP_STATUS_ABSENT || progress == NULL)
        return status;
#pragma unroll 1
    for (; missing != 0; missing &= missing - 1)
        progress->missing |=
            1u << (slots->rank + (__ffs(missing) - 1) / PARTS * slots->ranks_apart);
    return status;
}

/* By a word, where there is one: whether what is awaited does not come. */
WP_FN int weft__cuda_is_absent(const struct wp_packet_told *told)
{
    uint64_t seen;
    if (told == NULL)
        return 0;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(seen) : "l"(told->word) : "memory");
    return seen >= told->absent;
}

/* Loads all slots that are wanted, again and again those that were empty. Both loads, that of a
 * slot and that of the word that tells of it, are under way together. */
template <int PARTS, int NUM>
WP_FN enum wp_status
weft__cuda_await_packets(struct wp_warp *warp, const struct wp_packets *packets,
                         const weft__cuda_slots_of<PARTS> *slots, const struct wp_packet_told *told,
                         struct wp_packet_progress *progress,
                         struct weft__cuda_packet (&taken)[NUM])
{
    const char *first = weft__cuda_slot(packets, packets->rank, slots->slot);
    struct weft__cuda_patience patience = {0, 0, WP_FAILURE_NONE};
    uint32_t missing = slots->wanted;
    for (;;) {
#pragma unroll
        for (int s = 0; s < NUM; s++)
            weft__cuda_load_packet(&taken[s],
                                   first + weft__cuda_slot_at(slots, s) * WP_PACKET_BYTES,
                                   missing >> s & 1u);
        const int is_absent = weft__cuda_is_absent(told);
#pragma unroll
        for (int s = 0; s < NUM; s++) {
            if (!weft__cuda_is_empty(taken[s]))
                missing &= ~(1u << s);
        }
        if (missing == 0)
            return WP_STATUS_OK;
        if (is_absent)
            return WP_STATUS_ABSENT;
        const struct wp_wait_site site = weft__cuda_site_of(packets, slots, __ffs(missing) - 1);
        if (patience.why != WP_FAILURE_NONE) /* that a rank is gone says nothing of the others */
            return weft__cuda_note_missing(
                slots, patience.why == WP_FAILURE_RANK_GONE ? missing & (0 - missing) : missing,
                progress, weft__cuda_give_up(warp, &site, patience.why, packets->sequence, 0));
        weft__cuda_be_patient(warp, &site, &patience);
    }
}

/* Those of `escaped` whose stored words would be zero get them back; the others are what they
 * say. */
template <int PARTS, int NUM>
WP_FN enum wp_status weft__cuda_resolve_escapes(
    struct wp_warp *warp, const struct wp_packets *packets, const weft__cuda_slots_of<PARTS> *slots,
    uint32_t escaped, struct wp_packet_progress *progress, struct weft__cuda_packet (&taken)[NUM])
{
    uint32_t zero = 0;
#pragma unroll 1
    for (; escaped != 0; escaped &= escaped - 1) {
        const int s = __ffs(escaped) - 1;
        const struct wp_wait_site site = weft__cuda_site_of(packets, slots, s);
        const uint64_t *word = weft__cuda_escape_word(packets, packets->rank,
                                                      slots->slot + weft__cuda_slot_at(slots, s));
        const enum wp_status status = wp_wait(warp, word, 2 * packets->sequence, &site);
        if (status != WP_STATUS_OK)
            return weft__cuda_note_missing(slots, 1u << s, progress, status);
        if (weft__cuda_load_acquire(word) % 2 == WP_ESCAPE_EMPTY)
            zero |= 1u << s;
    }
#pragma unroll
    for (int s = 0; s < NUM; s++) {
        if (zero >> s & 1u)
            taken[s] = {{0, 0}};
    }
    return WP_STATUS_OK;
}

/* Waits for the packets that are wanted, unless the lane has seen them all: then `taken` has them.
 * Empties their slots, and gives the data. */
template <int PARTS, int NUM>
WP_FN enum wp_status
weft__cuda_take_unseen(struct wp_warp *warp, const struct wp_packets *packets,
                       const weft__cuda_slots_of<PARTS> *slots, const struct wp_packet_told *told,
                       struct wp_packet_progress *progress, int are_seen,
                       struct weft__cuda_packet (&taken)[NUM], int4 (&chunks)[NUM])
{
    enum wp_status status =
        are_seen ? WP_STATUS_OK
                 : weft__cuda_await_packets(warp, packets, slots, told, progress, taken);
    uint32_t escaped = 0;
#pragma unroll
    for (int s = 0; s < NUM; s++)
        escaped |= (uint32_t)weft__cuda_is_escape(taken[s]) << s;
    if (status == WP_STATUS_OK && escaped != 0)
        status = weft__cuda_resolve_escapes(warp, packets, slots, escaped, progress, taken);
    if (status != WP_STATUS_OK)
        return status;
    char *first = weft__cuda_slot(packets, packets->rank, slots->slot);
#pragma unroll
    for (int s = 0; s < NUM; s++) {
        weft__cuda_empty_slot(first + weft__cuda_slot_at(slots, s) * WP_PACKET_BYTES,
                              slots->wanted >> s & 1u);
        chunks[s] = weft__cuda_chunk_of(taken[s]);
    }
    return WP_STATUS_OK;
}

/* The same of packets that the lane has not seen. */
template <int PARTS, int NUM>
WP_FN enum wp_status weft__cuda_take_packets(struct wp_warp *warp, const struct wp_packets *packets,
                                             const weft__cuda_slots_of<PARTS> *slots,
                                             struct wp_packet_progress *progress,
                                             int4 (&chunks)[NUM])
{
    struct weft__cuda_packet taken[NUM] = {};
    return weft__cuda_take_unseen(warp, packets, slots, NULL, progress, 0, taken, chunks);
}

WP_FN enum wp_status weft__cuda_same_status(enum wp_status status)
{
    return (enum wp_status)__reduce_max_sync(0xffffffffu, (uint32_t)status);
}

/* A row that a rank has sent, and where it goes. */
struct weft__cuda_received {
    int32_t from;
    uint64_t slot;
    const struct wp_packet_told *told; /* NULL: it comes */
    const void *const *dsts;
    int32_t num_dsts;
    uint64_t bytes;
    struct weft__cuda_packet seen;       /* of the lane, if rows are short: it may be empty */
    struct wp_packet_progress *progress; /* NULL: what does not come fails the launch */
};

WP_FN uint64_t weft__cuda_num_taken(const struct wp_packet_progress *progress)
{
    return progress != NULL ? progress->num_taken : 0;
}

/* Called by a lane that has got to packet i of a row. */
WP_FN void weft__cuda_note_taken(struct wp_warp *warp, struct wp_packet_progress *progress,
                                 uint64_t i)
{
    if (progress != NULL)
        progress->num_taken = i - (uint64_t)wp_lane_idx(warp);
}

/* Packets first, first + WP_WARP_SIZE, ... of it, those that are wanted: a bit for each. */
template <int NUM>
WP_FN enum wp_status weft__cuda_receive_some(struct wp_warp *warp, const struct wp_packets *packets,
                                             const struct weft__cuda_received &row, uint64_t first,
                                             uint32_t wanted)
{
    const weft__cuda_slots slots = {row.slot + first, WP_WARP_SIZE, row.from, 0, wanted};
    struct weft__cuda_packet taken[NUM] = {};
    int4 chunks[NUM];
    if (WEFT__CUDA_PACKETS_ARE_SHORT)
        taken[0] = row.seen;
    const int are_seen = WEFT__CUDA_PACKETS_ARE_SHORT && !weft__cuda_is_empty(taken[0]);
    const enum wp_status status = weft__cuda_take_unseen(warp, packets, &slots, row.told,
                                                         row.progress, are_seen, taken, chunks);
    if (status != WP_STATUS_OK) {
        weft__cuda_note_taken(warp, row.progress, first);
        return status;
    }
    for (int32_t i = 0; i < row.num_dsts; i++) {
#pragma unroll
        for (int u = 0; u < NUM; u++)
            if (NUM == 1 || wanted >> u & 1u)
                weft__cuda_write_packet((void *)row.dsts[i], first + u * WP_WARP_SIZE, row.bytes,
                                        chunks[u]);
    }
    return WP_STATUS_OK;
}

/* Four of a lane at a time, the last ones too. */
WP_FN enum wp_status weft__cuda_receive_fours(struct wp_warp *warp,
                                              const struct wp_packets *packets,
                                              const struct weft__cuda_received &row)
{
    enum { AT_ONCE = 4 };
    const uint64_t num_packets = weft__cuda_num_packets(row.bytes);
    enum wp_status status = WP_STATUS_OK;
#pragma unroll 1
    for (uint64_t first = (uint64_t)wp_lane_idx(warp) + weft__cuda_num_taken(row.progress);
         first < num_packets && status == WP_STATUS_OK; first += AT_ONCE * WP_WARP_SIZE) {
        const uint64_t num_left = (num_packets - first + WP_WARP_SIZE - 1) / WP_WARP_SIZE;
        const uint32_t wanted = (1u << (num_left < AT_ONCE ? num_left : AT_ONCE)) - 1;
        status = weft__cuda_receive_some<AT_ONCE>(warp, packets, row, first, wanted);
    }
    return status;
}

WP_FN enum wp_status weft__cuda_receive_long(struct wp_warp *warp, const struct wp_packets *packets,
                                             const struct weft__cuda_received &row)
{
    enum { UNROLL = 4, ALL = (1u << UNROLL) - 1, LAST = (UNROLL - 1) * WP_WARP_SIZE };
    const uint64_t num_packets = weft__cuda_num_packets(row.bytes);
    uint64_t first = (uint64_t)wp_lane_idx(warp) + weft__cuda_num_taken(row.progress);
    enum wp_status status = WP_STATUS_OK;
#pragma unroll 1
    for (; first + LAST < num_packets && status == WP_STATUS_OK; first += UNROLL * WP_WARP_SIZE)
        status = weft__cuda_receive_some<UNROLL>(warp, packets, row, first, ALL);
#pragma unroll 1
    for (; first < num_packets && status == WP_STATUS_OK; first += WP_WARP_SIZE)
        status = weft__cuda_receive_some<1>(warp, packets, row, first, 1);
    return status;
}

WP_FN enum wp_status weft__cuda_receive(struct wp_warp *warp, const struct wp_packets *packets,
                                        const struct weft__cuda_received &row)
{
    const uint32_t lane = (uint32_t)wp_lane_idx(warp);
    enum wp_status status = WP_STATUS_OK;
    if (WEFT__CUDA_PACKETS_ARE_LONG)
        status = weft__cuda_receive_fours(warp, packets, row);
    else if (!WEFT__CUDA_PACKETS_ARE_SHORT)
        status = weft__cuda_receive_long(warp, packets, row);
    else if (lane + (uint32_t)weft__cuda_num_taken(row.progress) <
             (uint32_t)weft__cuda_num_packets(row.bytes))
        status = weft__cuda_receive_some<1>(warp, packets, row, lane, 1);
    if (status == WP_STATUS_OK)
        weft__cuda_note_taken(warp, row.progress, INT32_MAX); /* of a call that is repeated */
    return weft__cuda_same_status(status);
}

/* A row that a rank may send to this one. Where a lane has one packet of it, that is looked for. */
struct wp_expected_row {
    int32_t from;
    uint64_t slot, bytes;
    unsigned __int128 seen; /* weft__cuda_words_of */
};

WP_FN struct wp_expected_row wp_packets_expect(struct wp_warp *warp,
                                               const struct wp_packets *packets, int32_t from,
                                               uint64_t slot, uint64_t bytes)
{
    const uint32_t lane = (uint32_t)wp_lane_idx(warp);
    struct wp_expected_row row = {from, slot, bytes, 0};
    if (WEFT__CUDA_PACKETS_ARE_SHORT && lane < (uint32_t)weft__cuda_num_packets(bytes))
        row.seen = weft__cuda_load_whole(weft__cuda_slot(packets, packets->rank, slot + lane));
    return row;
}

WP_FN enum wp_status wp_packets_receive_each(struct wp_warp *warp, const struct wp_packets *packets,
                                             const struct wp_expected_row *row,
                                             const void *const *dsts, int32_t num_dsts,
                                             struct wp_packet_progress *progress)
{
    return weft__cuda_receive(warp, packets,
                              {row->from, row->slot, NULL, dsts, num_dsts, row->bytes,
                               weft__cuda_words_of(row->seen), progress});
}

WP_FN enum wp_status wp_packets_receive_told(struct wp_warp *warp, const struct wp_packets *packets,
                                             int32_t from, uint64_t slot,
                                             const struct wp_packet_told *told, void *dst,
                                             uint64_t bytes, struct wp_packet_progress *progress)
{
    const void *const dsts[] = {dst};
    return weft__cuda_receive(warp, packets,
                              {from, slot, told, dsts, 1, bytes, {{0, 0}}, progress});
}

WP_FN enum wp_status wp_packets_receive(struct wp_warp *warp, const struct wp_packets *packets,
                                        int32_t from, uint64_t slot, void *dst, uint64_t bytes,
                                        struct wp_packet_progress *progress)
{
    return wp_packets_receive_told(warp, packets, from, slot, NULL, dst, bytes, progress);
}

/* No value of the words is an escape. A lane for each target; WEFT_COLL_MAX_RANKS are as many as
 * lanes. */
WP_FN void wp_packets_send_words(struct wp_warp *warp, const struct wp_packets *packets,
                                 struct wp_packet_targets to, const uint64_t words[2])
{
    const int32_t rank = to.begin + wp_lane_idx(warp);
    if (rank < to.end && rank != packets->rank)
        weft__cuda_store_packet(weft__cuda_slot(packets, rank, to.slot),
                                {{words[0] ^ WP_PACKET_KEY(0), words[1] ^ WP_PACKET_KEY(1)}});
}

WP_FN enum wp_status wp_packets_take_words(struct wp_warp *warp, const struct wp_packets *packets,
                                           int32_t from, uint64_t slot, uint64_t words[2])
{
    const weft__cuda_slots slots = {slot, 0, from, 0, 1};
    struct weft__cuda_packet taken[1] = {};
    const enum wp_status status =
        weft__cuda_same_status(weft__cuda_await_packets(warp, packets, &slots, NULL, NULL, taken));
    if (wp_lane_idx(warp) == 0 && status == WP_STATUS_OK)
        weft__cuda_store_packet(weft__cuda_slot(packets, packets->rank, slot), {{0, 0}});
    words[0] = taken[0].words[0] ^ WP_PACKET_KEY(0);
    words[1] = taken[0].words[1] ^ WP_PACKET_KEY(1);
    return status;
}

WP_FN void wp_packets_clear(struct wp_warp *warp, const struct wp_packets *packets, uint64_t slot,
                            uint64_t num_slots)
{
    for (uint64_t i = slot + (uint64_t)wp_lane_idx(warp); i < slot + num_slots; i += WP_WARP_SIZE) {
        weft__cuda_store_packet(weft__cuda_slot(packets, packets->rank, i), {{0, 0}});
        *weft__cuda_escape_word(packets, packets->rank, i) = 0;
    }
}

WP_FN void wp_acquire_packets(struct wp_warp *warp)
{
    (void)warp;
    asm volatile("fence.acq_rel.sys;" : : : "memory");
}
