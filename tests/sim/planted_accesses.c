/* SPDX-License-Identifier: MIT */
#include "planted_accesses.h"

WP_FN uint64_t place_of(const struct access_args *args, const void *address)
{
    return args->area_offset + (uint64_t)((const char *)address - (const char *)args->area);
}

WP_FN void write_letter(struct wp_warp *warp, unsigned char *letter, int32_t from)
{
    for (int32_t i = wp_lane_idx(warp); i < ACCESS_LETTER_BYTES; i += WP_WARP_SIZE)
        letter[i] = (unsigned char)(1 + 50 * from + i);
}

/* Each lane reads what another one may have written. */
WP_FN void check_letter(struct wp_warp *warp, const struct access_args *args,
                        const unsigned char *letter, int32_t from)
{
    for (int32_t i = 0; i < ACCESS_LETTER_BYTES; i++)
        args->num_wrong[wp_lane_idx(warp)] += letter[i] != (unsigned char)(1 + 50 * from + i);
}

WP_FN enum wp_status await_word(struct wp_warp *warp, const uint64_t *word, int32_t from)
{
    const struct wp_wait_site site = {WP_PHASE_DATA, from, 1, 1, 0};
    return (enum wp_status)wp_max_u32(warp, (uint32_t)wp_wait(warp, word, 1, &site));
}

/* Ranks of the word's node add to it by their processors. */
WP_FN enum wp_access_adders adders_of(const struct access_args *args)
{
    return args->form == ACCESSES_BY_ALL ? WP_ACCESS_ADDED_BY_NETWORK : WP_ACCESS_ADDED_BY_ALL;
}

/* A put or a get of what is in the areas. */
WP_FN enum wp_status copy_letter(struct wp_warp *warp, const struct access_args *args,
                                 enum wp_access_operation operation, int32_t rank,
                                 const unsigned char *source, const unsigned char *target)
{
    const struct wp_access access = {.operation = operation,
                                     .rank = rank,
                                     .source = place_of(args, source),
                                     .target = place_of(args, target),
                                     .num_bytes = ACCESS_LETTER_BYTES};
    return wp_access_heap(warp, &args->heaps, &access);
}

/* The draft is written over as soon as it may be. */
WP_FN enum wp_status send_letter(struct wp_warp *warp, const struct access_args *args, int32_t to)
{
    struct access_area *area = args->area;
    const int32_t own = args->heaps.rank;
    const struct wp_access access = {.operation = WP_ACCESS_PUT_SIGNAL,
                                     .rank = to,
                                     .source = place_of(args, area->drafts[to]),
                                     .target = place_of(args, area->letters[own]),
                                     .num_bytes = ACCESS_LETTER_BYTES,
                                     .word = place_of(args, &area->has_written[own]),
                                     .add = 1,
                                     .adders = WP_ACCESS_ADDED_BY_ALL};
    write_letter(warp, area->drafts[to], own);
    const enum wp_status status = wp_access_heap(warp, &args->heaps, &access);
    for (int32_t i = 0; i < ACCESS_LETTER_BYTES && status == WP_STATUS_OK; i++)
        if (i % WP_WARP_SIZE != wp_lane_idx(warp))
            area->drafts[to][i] = 0;
    return status;
}

/* And its poster, which it had written before it sent the letter. */
WP_FN enum wp_status read_letter(struct wp_warp *warp, const struct access_args *args, int32_t from)
{
    struct access_area *area = args->area;
    enum wp_status status = WP_STATUS_OK;
    if (args->form != ACCESSES_NOT_AWAITED)
        status = await_word(warp, &area->has_written[from], from);
    if (status != WP_STATUS_OK)
        return status;
    check_letter(warp, args, area->letters[from], from);
    status = copy_letter(warp, args, WP_ACCESS_GET, from, area->own_poster, area->posters[from]);
    if (status == WP_STATUS_OK)
        check_letter(warp, args, area->posters[from], from);
    return status;
}

WP_FN enum wp_status take_ticket(struct wp_warp *warp, const struct access_args *args)
{
    const struct wp_access fetch = {.operation = WP_ACCESS_FETCH_ADD,
                                    .target = place_of(args, &args->area->ticket),
                                    .word = place_of(args, &args->area->num_tickets),
                                    .add = 1,
                                    .adders = adders_of(args)};
    const enum wp_status status = wp_access_heap(warp, &args->heaps, &fetch);
    if (status == WP_STATUS_OK && wp_lane_idx(warp) == WP_WARP_SIZE - 1)
        *args->ticket = args->area->ticket;
    return status;
}

/* Rank 0 leaves a note at the last rank, and tells rank 1 when it is there. */
WP_FN enum wp_status leave_note(struct wp_warp *warp, const struct access_args *args)
{
    struct access_area *area = args->area;
    const int32_t last = args->heaps.num_ranks - 1;
    const struct wp_access tell = {.operation = WP_ACCESS_PUT_SIGNAL,
                                   .rank = 1,
                                   .word = place_of(args, &area->is_told),
                                   .add = 1,
                                   .adders = WP_ACCESS_ADDED_BY_ALL};
    write_letter(warp, area->note_draft, 0);
    enum wp_status status =
        copy_letter(warp, args, WP_ACCESS_PUT, last, area->note_draft, area->note);
    if (status == WP_STATUS_OK && args->form != ACCESSES_NOT_QUIET)
        status = wp_quiet(warp, &args->heaps);
    return status == WP_STATUS_OK ? wp_access_heap(warp, &args->heaps, &tell) : status;
}

WP_FN enum wp_status read_note(struct wp_warp *warp, const struct access_args *args)
{
    struct access_area *area = args->area;
    const int32_t last = args->heaps.num_ranks - 1;
    enum wp_status status = await_word(warp, &area->is_told, 0);
    if (status == WP_STATUS_OK)
        status = copy_letter(warp, args, WP_ACCESS_GET, last, area->note, area->fetched);
    if (status == WP_STATUS_OK)
        check_letter(warp, args, area->fetched, 0);
    return status;
}

WP_PROGRAM(planted_accesses, warp, args)
{
    const int32_t own = args->heaps.rank, num_ranks = args->heaps.num_ranks;
    enum wp_status status = WP_STATUS_OK;
    write_letter(warp, args->area->own_poster, own);
    for (int32_t i = 1; i < num_ranks && status == WP_STATUS_OK; i++)
        status = send_letter(warp, args, (own + i) % num_ranks);
    for (int32_t i = 1; i < num_ranks && status == WP_STATUS_OK; i++)
        status = read_letter(warp, args, (own + i) % num_ranks);
    if (status == WP_STATUS_OK)
        status = take_ticket(warp, args);
    if (status == WP_STATUS_OK && own == 0)
        status = leave_note(warp, args);
    if (status == WP_STATUS_OK && own == 1)
        status = read_note(warp, args);
    return status;
}
