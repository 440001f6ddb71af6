/* SPDX-License-Identifier: MIT */
#include "planted_packets.h"
#include "planted.h"

WP_FN int is_chain(const struct packet_args *args)
{
    return args->form == PACKETS_CHAIN || args->form == PACKETS_CHAIN_EARLY;
}

WP_FN uint64_t buffer_of(const struct packet_args *args)
{
    if (args->form == PACKETS_ONE_BUFFER || args->form == PACKETS_SIGNALLED)
        return 0;
    /* Nobody answers in a chain, so no slot can be used again. */
    return args->sequence % (is_chain(args) ? PACKET_BUFFERS : 2);
}

WP_FN struct wp_packets packets_of(const struct packet_args *args, char *const *areas)
{
    const uint64_t buffer_offset =
        buffer_of(args) * sizeof(uint64_t) * PACKET_RANKS * PACKET_ROW_SLOTS;
    return (struct wp_packets){.rank = args->rank,
                               .num_ranks = PACKET_RANKS,
                               .areas = areas,
                               .slots_offset = offsetof(struct packet_area, slots) + buffer_offset,
                               .escapes_offset =
                                   offsetof(struct packet_area, escapes) + buffer_offset,
                               .sequence = args->sequence,
                               .exchange = 1};
}

WP_FN struct wp_packet_targets targets_of(const struct packet_args *args, uint64_t slot)
{
    const struct wp_packet_targets all = {0, PACKET_RANKS, slot, WP_PACKETS_TO_OTHERS, 0};
    const int32_t next = args->rank + 1;
    const struct wp_packet_targets next_in_chain = {next, next < PACKET_RANKS ? next + 1 : next,
                                                    slot, WP_PACKETS_TO_OTHERS, 0};
    return is_chain(args) ? next_in_chain : all;
}

WP_FN int receives_from(const struct packet_args *args, int32_t sender)
{
    const int is_last = args->sequence == args->num_launches;
    if (is_last && (args->form == PACKETS_UNTAKEN || args->form == PACKETS_UNTAKEN_LEFT))
        return 0;
    return is_chain(args) ? sender == args->rank - 1 : sender != args->rank;
}

/* The first slot of the sender's row. */
WP_FN uint64_t slot_of(const struct packet_args *args, int32_t sender)
{
    return args->form == PACKETS_ONE_ROW ? 0 : (uint64_t)sender * PACKET_ROW_SLOTS;
}

WP_FN enum wp_status receive_all(struct wp_warp *warp, const struct packet_args *args,
                                 const struct wp_packets *packets)
{
    const uint64_t row_bytes =
        args->form == PACKETS_HALF_TAKEN ? 2 * WP_PACKET_BYTES : PACKET_ROW_BYTES;
    for (int32_t sender = 0; sender < PACKET_RANKS; sender++) {
        if (!receives_from(args, sender))
            continue;
        const int32_t other = PACKET_RANKS - args->rank - sender;
        const int32_t awaited = args->form == PACKETS_OTHER_SENDER ? other : sender;
        const enum wp_status status =
            wp_packets_receive(warp, packets, awaited, slot_of(args, sender),
                               args->rows + (int64_t)sender * PACKET_ROW_BYTES, row_bytes, NULL);
        if (status != WP_STATUS_OK)
            return status;
    }
    return WP_STATUS_OK;
}

WP_FN enum wp_status reduce_all(struct wp_warp *warp, const struct packet_args *args,
                                const struct wp_packets *packets)
{
    unsigned char *own = args->rows + (int64_t)args->rank * PACKET_ROW_BYTES;
    const struct wp_packet_sources sources = {0, PACKET_ROW_SLOTS, own};
    const struct wp_reduction sum = {WEFT_FP32, WP_REDUCTION_SUM, 0};
    return wp_packets_reduce(warp, packets, &sources, own, sum, PACKET_ROW_BYTES / sizeof(float));
}

WP_FN enum wp_status take_all(struct wp_warp *warp, const struct packet_args *args,
                              const struct wp_packets *packets)
{
    const enum wp_status status = args->form == PACKETS_REDUCED ? reduce_all(warp, args, packets)
                                                                : receive_all(warp, args, packets);
    const uint32_t failed = wp_ballot(warp, status != WP_STATUS_OK);
    if (failed != 0 && wp_popcount(failed) != WP_WARP_SIZE)
        wp_add_relaxed(args->num_wrong, 1); /* all lanes must have the same */
    return status;
}

WP_FN void write_data(struct wp_warp *warp, const struct packet_args *args)
{
    for (int32_t rank = wp_lane_idx(warp); rank < PACKET_RANKS; rank += WP_WARP_SIZE)
        args->areas[rank]->data[args->rank][args->sequence] = args->sequence;
}

WP_FN void read_datum(const struct packet_args *args, int32_t sender, uint64_t launch)
{
    if (args->areas[args->rank]->data[sender][launch] != launch)
        wp_add_relaxed(args->num_wrong, 1);
}

/* What the others wrote `lag` launches ago. */
WP_FN void read_data(struct wp_warp *warp, const struct packet_args *args, uint64_t lag)
{
    if (args->sequence <= lag || wp_lane_idx(warp) != 0)
        return;
    for (int32_t sender = 0; sender < PACKET_RANKS && !is_chain(args); sender++)
        read_datum(args, sender, args->sequence - lag);
    if (is_chain(args) && args->rank == PACKET_RANKS - 1)
        read_datum(args, 0, args->sequence - lag);
}

/* When data is read: so many launches after the one that wrote it. */
WP_FN void read_as(struct wp_warp *warp, const struct packet_args *args)
{
    if (args->form == PACKETS_READ_AT_ONCE)
        read_data(warp, args, 0);
    else if (args->form == PACKETS_READ_TOO_EARLY)
        read_data(warp, args, 1);
    else if (args->form == PACKETS_READ_LATER || args->form == PACKETS_CHAIN_EARLY)
        read_data(warp, args, 2);
    else if (args->form == PACKETS_CHAIN)
        read_data(warp, args, 3);
}

WP_FN enum wp_status tell_all(struct wp_warp *warp, const struct packet_args *args)
{
    wp_warp_sync(warp); /* every lane has taken its packets */
    for (int32_t rank = 0; rank < PACKET_RANKS && wp_lane_idx(warp) == 0; rank++)
        wp_signal(warp, rank, &args->areas[rank]->taken[args->rank], args->sequence);
    enum wp_status status = WP_STATUS_OK;
    for (int32_t rank = 0; rank < PACKET_RANKS && wp_lane_idx(warp) == 0; rank++) {
        const struct wp_wait_site site = {WP_PHASE_FINISH, rank, args->sequence, 1, 0};
        if (status == WP_STATUS_OK)
            status = wp_wait(warp, &args->areas[args->rank]->taken[rank], args->sequence, &site);
    }
    return wp_ballot(warp, status != WP_STATUS_OK) != 0 ? WP_STATUS_FAILED : WP_STATUS_OK;
}

WP_PROGRAM(planted_packets, warp, args)
{
    char *areas[PACKET_RANKS];
    for (int32_t rank = 0; rank < PACKET_RANKS; rank++)
        areas[rank] = (char *)args->areas[rank];
    const struct wp_packets packets = packets_of(args, areas);
    const struct wp_packet_targets to = targets_of(args, slot_of(args, args->rank));
    if (wp_warp_idx(warp) > 0)
        return take_all(warp, args, &packets);
    write_data(warp, args);
    const struct wp_packet_row row = wp_packets_load(warp, args->own, PACKET_ROW_BYTES);
    wp_packets_send(warp, &packets, to, &row);
    enum wp_status status = take_all(warp, args, &packets);
    if (args->form == PACKETS_SENT_TWICE && status == WP_STATUS_OK) {
        wp_packets_send(warp, &packets, to, &row);
        status = take_all(warp, args, &packets);
    }
    if (status != WP_STATUS_OK)
        return status;
    read_as(warp, args);
    return args->form == PACKETS_SIGNALLED ? tell_all(warp, args) : WP_STATUS_OK;
}

/* Rank 0 sends two packets, the first one first, to where rank 1 looks. */
JOB_PROGRAM(late_packets, warp, args)
{
    char *const areas[JOB_RANKS] = {(char *)args->own, (char *)args->other};
    const struct wp_packets packets = {.num_ranks = JOB_RANKS,
                                       .areas = areas,
                                       .slots_offset = offsetof(struct job_area, slots),
                                       .sequence = args->sequence,
                                       .exchange = 1};
    for (uint64_t i = 0; i < JOB_SLOTS && args->rank == 0; i++) {
        const struct wp_packet_targets to = {0, JOB_RANKS, i * JOB_SLOT_WORDS, WP_PACKETS_TO_OTHERS,
                                             0};
        const struct wp_packet_row row =
            wp_packets_load(warp, args->own->slots[0], WP_PACKET_BYTES);
        wp_packets_send(warp, &packets, to, &row);
    }
    for (int32_t i = 0; i < JOB_LOOKS; i++)
        job_look(warp, args, i);
    return WP_STATUS_OK;
}
