/* SPDX-License-Identifier: MIT */
/*
 * A weft_ll within another takes the next pieces of that one's memory. All of it is zero on all
 * ranks from the beginning, so a rank needs no other to make one. A rank that has made it may write
 * to this rank's piece before this rank makes it. No piece is taken twice before all ranks that
 * take part have begun anew together, with no message on its way (weft__ll_unmask).
 */
#include "ep/low_latency.h"

enum { PIECE_ALIGNMENT = 256 };

static uint64_t piece_bytes(uint64_t bytes)
{
    return (bytes + PIECE_ALIGNMENT - 1) / PIECE_ALIGNMENT * PIECE_ALIGNMENT;
}

weft_result weft__ll_agree(const weft_ll *ll, weft_result mine, const char *what)
{
    return ll->within != NULL ? mine : weft__comm_agree(ll->ep->comm, mine, what);
}

static weft_result check_room(const struct weft__ll_pieces *pieces, uint64_t bytes,
                              const char *name)
{
    const uint64_t left_bytes = pieces->bytes - pieces->taken_bytes;
    return piece_bytes(bytes) <= left_bytes
               ? WEFT_OK
               : weft__no_memory(
                     "within: of its %s of %llu bytes %llu are left, and the weft_ll needs %llu",
                     name, (unsigned long long)pieces->bytes, (unsigned long long)left_bytes,
                     (unsigned long long)piece_bytes(bytes));
}

static uint64_t heap_bytes(const weft_ll *ll)
{
    const int32_t num_ranks = ll->ep->comm->num_ranks;
    return wp_mailbox_bytes(num_ranks, ll->grid.num_blocks) +
           wp_ll_offsets_of(&ll->device.plan, num_ranks).end;
}

weft_result weft__ll_check_room_within(const weft_ll *within, uint64_t heap_bytes,
                                       uint64_t network_bytes)
{
    WEFT__TRY(check_room(&within->heap_pieces, heap_bytes, "bytes_within"));
    return network_bytes == 0
               ? WEFT_OK
               : check_room(&within->network_pieces, network_bytes, "network_bytes_within");
}

weft_result weft__ll_exchange_within(weft_ll *ll)
{
    const struct weft__ll_pieces *pieces = &ll->within->heap_pieces;
    WEFT__TRY(weft__exchange_create_at(ll->ep->comm, ll->grid.num_blocks,
                                       pieces->memory + pieces->taken_bytes, &ll->exchange));
    ll->device.masks.mask = ll->within->device.masks.mask;
    return WEFT_OK;
}

void weft__ll_network_within(weft_ll *ll)
{
    const struct weft__ll_pieces *pieces = &ll->within->network_pieces;
    const struct wp_ll_network *whole = &ll->within->device.network;
    struct wp_ll_network *network = &ll->device.network;
    network->memory = pieces->memory + pieces->taken_bytes;
    network->place = whole->place + (uint64_t)(network->memory - whole->memory);
}

void weft__ll_take_pieces(weft_ll *ll, uint64_t network_bytes)
{
    ll->within->heap_pieces.taken_bytes += piece_bytes(heap_bytes(ll));
    if (ll->device.plan.has_nodes)
        ll->within->network_pieces.taken_bytes += piece_bytes(network_bytes);
    ll->within->num_within++;
    ll->is_within_taken = 1;
}

weft_result weft__ll_renew_pieces(weft_ll *ll)
{
    struct weft__ll_pieces *const all[] = {&ll->heap_pieces, &ll->network_pieces};
    for (int i = 0; i < 2; i++) {
        /* Zeroes all of it: other ranks may have taken more pieces, and written to them here. */
        if (all[i]->bytes > 0)
            WEFT__TRY(weft__machine_zero(ll->ep->comm, all[i]->memory, all[i]->bytes));
        all[i]->taken_bytes = 0;
    }
    return WEFT_OK;
}
