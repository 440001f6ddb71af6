/* SPDX-License-Identifier: MIT */
/* Memory of this rank that the net reaches: as it is, or by the functions of its owner. */
#include <stdlib.h>
#include <string.h>

#include "comm/error.h"
#include "net/net_internal.h"

uint64_t weft__net_region_bytes(const struct weft__net *net, uint32_t region)
{
    if (region >= net->num_regions)
        return 0;
    const _Atomic uint64_t *num_there = net->regions[region].num_there;
    return num_there != NULL ? atomic_load_explicit(num_there, memory_order_acquire)
                             : net->regions[region].num_bytes;
}

int weft__net_is_registered(const struct weft__net *net, uint64_t place, uint64_t num_bytes)
{
    const uint64_t region_bytes = weft__net_region_bytes(net, weft__net_region_of(place));
    return num_bytes <= region_bytes && weft__net_offset_of(place) <= region_bytes - num_bytes;
}

/* Of a region that is memory of this process; else NULL. */
static unsigned char *address_of(const struct weft__net *net, uint64_t place)
{
    unsigned char *memory = net->regions[weft__net_region_of(place)].memory;
    return memory != NULL ? memory + weft__net_offset_of(place) : NULL;
}

static const struct weft__net_accessor *accessor_of(const struct weft__net *net, uint64_t place)
{
    return &net->regions[weft__net_region_of(place)].accessor;
}

/* The peer waits for what this rank cannot do. */
static weft_result accessed(struct weft__net *net, int32_t rank, weft_result result)
{
    if (result != WEFT_OK)
        weft__net_fail_peer(net, rank, "rank %d cannot access its memory for rank %d: %s",
                            net->config.rank, rank, weft__last_error());
    return result;
}

/* ---------------------------------------------------------------- what peers do */

weft_result weft__net_write(struct weft__net *net, int32_t rank, uint64_t place, const void *bytes,
                            uint64_t num_bytes)
{
    unsigned char *address = address_of(net, place);
    const struct weft__net_accessor *accessor = accessor_of(net, place);
    if (address == NULL)
        return accessed(
            net, rank,
            accessor->write(accessor->context, weft__net_offset_of(place), bytes, num_bytes));
    memcpy(address, bytes, num_bytes);
    return WEFT_OK;
}

/* Release: whoever waits for the word has the bytes that were copied before. An addition, since ranks of the host may
 * add to the word too. */
static weft_result add(struct weft__net *net, int32_t rank, uint64_t word, uint64_t summand,
                       uint64_t *before)
{
    _Atomic uint64_t *counter = (_Atomic uint64_t *)(void *)address_of(net, word);
    const struct weft__net_accessor *accessor = accessor_of(net, word);
    if (counter == NULL)
        return accessed(
            net, rank,
            accessor->add(accessor->context, weft__net_offset_of(word), summand, before));
    *before = atomic_fetch_add_explicit(counter, summand, memory_order_acq_rel);
    return WEFT_OK;
}

weft_result weft__net_add_to_word(struct weft__net *net, int32_t rank, uint64_t word,
                                  uint64_t summand, uint64_t *before)
{
    const weft_result result = add(net, rank, word, summand, before);
    if (result == WEFT_OK && net->config.bell != NULL)
        weft__doorbell_ring(net->config.bell, weft__net_region_of(word) == 0
                                                  ? weft__net_offset_of(word)
                                                  : WEFT__ANY_WORD);
    return result;
}

/* ---------------------------------------------------------------- what is sent */

void weft__net_set_payload(struct weft__net_operation *operation, uint64_t source,
                           uint64_t num_bytes)
{
    operation->source = source;
    operation->payload = num_bytes > 0 ? address_of(operation->net, source) : NULL;
    operation->header.num_bytes = num_bytes;
}

int weft__net_can_be_written_from(const struct weft__net *net, uint64_t source)
{
    return address_of(net, source) != NULL;
}

static weft_result read_into(struct weft__net_operation *operation, void *staged)
{
    struct weft__net *net = operation->net;
    const struct weft__net_accessor *accessor = accessor_of(net, operation->source);
    return accessed(net, operation->peer,
                    accessor->read(accessor->context, staged,
                                   weft__net_offset_of(operation->source),
                                   operation->header.num_bytes));
}

enum weft__net_start weft__net_stage(struct weft__net_operation *operation)
{
    struct weft__net_peer *peer = &operation->net->peers[operation->peer];
    if (operation->payload != NULL || operation->header.num_bytes == 0)
        return WEFT__NET_DONE;
    if (peer->num_staged == WEFT__NET_MAX_STAGED)
        return WEFT__NET_FULL;
    void *staged = malloc(operation->header.num_bytes);
    if (staged == NULL)
        weft__net_lose_memory(operation->net, operation->peer);
    if (staged == NULL || read_into(operation, staged) != WEFT_OK) {
        free(staged);
        return WEFT__NET_LOST;
    }
    peer->num_staged++;
    operation->payload = operation->staged = staged;
    return WEFT__NET_DONE;
}

void weft__net_unstage(struct weft__net_operation *operation)
{
    if (operation->staged == NULL)
        return;
    free(operation->staged);
    operation->staged = NULL;
    operation->net->peers[operation->peer].num_staged--;
}
