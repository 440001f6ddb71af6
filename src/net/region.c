/* SPDX-License-Identifier: MIT */
/* Memory of this rank that the net reaches: as it is, by the functions of its owner, or through the
 * engine alone. */
#include <stdlib.h>
#include <string.h>

#include "comm/host/error.h"
#include "net/net_internal.h"

uint64_t weft__net_region_bytes(const struct weft__net *net, uint32_t region)
{
    if (region >= WEFT__NET_MAX_REGIONS)
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

int weft__net_is_accessible(const struct weft__net *net, uint64_t place, uint64_t num_bytes)
{
    return weft__net_is_registered(net, place, num_bytes) &&
           net->regions[weft__net_region_of(place)].kind != WEFT__NET_REGISTERED_DEVICE;
}

unsigned char *weft__net_address_of(const struct weft__net *net, uint64_t place)
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

/* ---------------------------------------------------------------- registering */

static weft_result check_new(const struct weft__net *net, uint32_t region, const void *memory)
{
    if (region >= WEFT__NET_MAX_REGIONS || net->regions[region].kind != WEFT__NET_NO_REGION)
        return weft__invalid("region is %u; it must be below %d, and not be there", region,
                             WEFT__NET_MAX_REGIONS);
    if ((uintptr_t)memory % sizeof(uint64_t) != 0)
        return weft__invalid("memory is %p; a region must be aligned to 8", memory);
    return WEFT_OK;
}

weft_result weft__net_reg_growing(struct weft__net *net, uint32_t region, void *memory,
                                  uint64_t max_bytes, const _Atomic uint64_t *num_bytes)
{
    WEFT__TRY(check_new(net, region, memory));
    net->regions[region] = (struct weft__net_region){.kind = WEFT__NET_GROWING,
                                                     .memory = memory,
                                                     .num_bytes = max_bytes,
                                                     .num_there = num_bytes};
    return WEFT_OK;
}

weft_result weft__net_reg_accessed(struct weft__net *net, uint32_t region,
                                   const struct weft__net_accessor *accessor, uint64_t max_bytes,
                                   const _Atomic uint64_t *num_bytes)
{
    WEFT__TRY(check_new(net, region, NULL));
    net->regions[region] = (struct weft__net_region){.kind = WEFT__NET_ACCESSED,
                                                     .accessor = *accessor,
                                                     .num_bytes = max_bytes,
                                                     .num_there = num_bytes};
    return WEFT_OK;
}

/* Tells the engine; keeps the key for the peers. */
static weft_result make_known(struct weft__net *net, uint32_t region, void *memory,
                              size_t num_bytes)
{
    struct weft__net_region *known = &net->regions[region];
    known->key = malloc(WEFT__NET_MAX_KEY_BYTES);
    WEFT__CHECK_MEMORY(known->key, "no memory for a region");
    const weft_result result =
        net->engine->reg(net->state, region, memory, num_bytes, known->key, &known->key_bytes);
    if (result != WEFT_OK) {
        free(known->key);
        known->key = NULL;
    }
    return result;
}

weft_result weft__net_reg(struct weft__net *net, uint32_t region, void *memory, size_t num_bytes,
                          enum weft__net_memory_kind kind)
{
    WEFT__TRY(check_new(net, region, memory));
    if (kind == WEFT__NET_DEVICE_MEMORY && net->min_write_bytes == SIZE_MAX)
        return weft__error(WEFT_ERROR_UNSUPPORTED, "the network engine %s writes no memory here",
                           net->engine->name);
    if (net->engine->reg != NULL)
        WEFT__TRY(make_known(net, region, memory, num_bytes));
    net->regions[region].kind =
        kind == WEFT__NET_DEVICE_MEMORY ? WEFT__NET_REGISTERED_DEVICE : WEFT__NET_REGISTERED;
    net->regions[region].memory = memory;
    net->regions[region].num_bytes = num_bytes;
    return WEFT_OK;
}

weft_result weft__net_reg_step(struct weft__net *net, uint32_t number, uint64_t place,
                               size_t num_bytes)
{
    const struct weft__net_region *grown = &net->regions[weft__net_region_of(place)];
    if (number < WEFT__NET_MAX_REGIONS || number >= WEFT__NET_MAX_NUMBERS ||
        net->regions[number].kind != WEFT__NET_NO_REGION)
        return weft__invalid("number is %u; it must be from %d to %d, and not be there", number,
                             WEFT__NET_MAX_REGIONS, WEFT__NET_MAX_NUMBERS - 1);
    if (!weft__net_is_registered(net, place, num_bytes) || grown->kind != WEFT__NET_GROWING)
        return weft__invalid("place is byte %llu of region %u, %zu bytes; they must be there, in a "
                             "region that grows",
                             (unsigned long long)weft__net_offset_of(place),
                             weft__net_region_of(place), num_bytes);
    unsigned char *memory = weft__net_address_of(net, place);
    if (net->engine->reg != NULL)
        WEFT__TRY(make_known(net, number, memory, num_bytes));
    net->regions[number].kind = WEFT__NET_REGISTERED;
    net->regions[number].memory = memory;
    net->regions[number].num_bytes = num_bytes;
    net->regions[number].place = place;
    return WEFT_OK;
}

uint64_t weft__net_step_of(const struct weft__net *net, uint64_t place, uint64_t *num_bytes)
{
    for (uint32_t number = WEFT__NET_MAX_REGIONS;
         number < WEFT__NET_MAX_NUMBERS && net->regions[number].kind != WEFT__NET_NO_REGION;
         number++) {
        const struct weft__net_region *step = &net->regions[number];
        /* Differences of places in other regions, or in the other order, are huge. */
        const uint64_t offset = place - step->place;
        const int is_inside = offset < step->num_bytes;
        const uint64_t num_left = is_inside ? step->num_bytes - offset : step->place - place;
        if (*num_bytes > num_left)
            *num_bytes = num_left;
        if (is_inside)
            return weft__net_place(number, offset);
    }
    return place;
}

void weft__net_unreg(struct weft__net *net, uint32_t region)
{
    if (net->engine->unreg != NULL)
        net->engine->unreg(net->state, region);
    free(net->regions[region].key);
    net->regions[region] = (struct weft__net_region){.kind = WEFT__NET_NO_REGION};
    for (int32_t rank = 0; rank < net->config.num_ranks; rank++) {
        net->peers[rank].region_access[region] = WEFT__NET_NOT_THERE;
        net->peers[rank].region_bytes[region] = 0;
    }
}

uint32_t weft__net_find_region(const struct weft__net *net, const void *memory)
{
    uint32_t region = 0;
    while (region < WEFT__NET_MAX_REGIONS && (net->regions[region].kind < WEFT__NET_REGISTERED ||
                                              net->regions[region].memory != memory))
        region++;
    return region;
}

uint32_t weft__net_free_regions(const struct weft__net *net)
{
    uint32_t numbers = 0;
    for (uint32_t region = 0; region < WEFT__NET_MAX_REGIONS; region++)
        if (net->regions[region].kind == WEFT__NET_NO_REGION)
            numbers |= UINT32_C(1) << region;
    return numbers;
}

/* ---------------------------------------------------------------- what peers know */

enum weft__net_access weft__net_access_of(const struct weft__net *net, uint32_t region)
{
    switch (net->regions[region].kind) {
    case WEFT__NET_GROWING:
    case WEFT__NET_ACCESSED:
        return WEFT__NET_BY_MESSAGES;
    case WEFT__NET_REGISTERED:
        return net->engine->reg != NULL ? WEFT__NET_BY_BOTH : WEFT__NET_BY_MESSAGES;
    case WEFT__NET_REGISTERED_DEVICE:
        return WEFT__NET_BY_WRITES;
    default:
        return WEFT__NET_NOT_THERE;
    }
}

void weft__net_tell_region(const struct weft__net *net, uint32_t region,
                           struct weft__net_region_card *card)
{
    const struct weft__net_region *own = &net->regions[region];
    *card = (struct weft__net_region_card){.num_bytes = own->num_bytes,
                                           .access = weft__net_access_of(net, region),
                                           .key_bytes = own->key_bytes};
    if (own->key_bytes > 0)
        memcpy(card->key, own->key, own->key_bytes);
}

/* It comes from another host. */
weft_result weft__net_learn_region(struct weft__net *net, int32_t rank, uint32_t region,
                                   const struct weft__net_region_card *card)
{
    if (card->key_bytes > WEFT__NET_MAX_KEY_BYTES || card->access < WEFT__NET_BY_MESSAGES ||
        card->access > WEFT__NET_BY_WRITES || card->num_bytes >> WP_PLACE_OFFSET_BITS != 0 ||
        (card->access != WEFT__NET_BY_MESSAGES && net->engine->learn == NULL))
        return weft__error(WEFT_ERROR_MISMATCH, "what rank %d tells of region %u makes no sense",
                           rank, region);
    if (region >= WEFT__NET_MAX_REGIONS && card->num_bytes != net->regions[region].num_bytes)
        return weft__error(
            WEFT_ERROR_MISMATCH, "step %u has %llu bytes on rank %d and %llu on rank %d",
            region - WEFT__NET_MAX_REGIONS, (unsigned long long)net->regions[region].num_bytes,
            net->config.rank, (unsigned long long)card->num_bytes, rank);
    if (card->access != WEFT__NET_BY_MESSAGES)
        WEFT__TRY(net->engine->learn(net->state, rank, region, card->key, card->key_bytes));
    net->peers[rank].region_bytes[region] = card->num_bytes;
    net->peers[rank].region_access[region] = (uint8_t)card->access;
    return WEFT_OK;
}

/* ---------------------------------------------------------------- what peers do */

weft_result weft__net_write(struct weft__net *net, int32_t rank, uint64_t place, const void *bytes,
                            uint64_t num_bytes)
{
    unsigned char *address = weft__net_address_of(net, place);
    const struct weft__net_accessor *accessor = accessor_of(net, place);
    if (address == NULL)
        return accessed(
            net, rank,
            accessor->write(accessor->context, weft__net_offset_of(place), bytes, num_bytes));
    memcpy(address, bytes, num_bytes);
    return WEFT_OK;
}

/* Release: whoever waits for the word has the bytes that were copied before. An addition, since
 * ranks of the host may add to the word too. */
static weft_result add(struct weft__net *net, int32_t rank, uint64_t word, uint64_t summand,
                       uint64_t *before)
{
    _Atomic uint64_t *counter = (_Atomic uint64_t *)(void *)weft__net_address_of(net, word);
    const struct weft__net_accessor *accessor = accessor_of(net, word);
    if (counter == NULL)
        return accessed(
            net, rank,
            accessor->add(accessor->context, weft__net_offset_of(word), summand, before));
    *before = atomic_fetch_add_explicit(counter, summand, memory_order_acq_rel);
    return WEFT_OK;
}

void weft__net_note_added(struct weft__net *net, uint64_t word)
{
    const uint64_t begin = word;
    const uint64_t end = word != WEFT__ANY_WORD ? begin + sizeof(uint64_t) : UINT64_MAX;
    if (net->added_end == 0 || begin < net->added_begin)
        net->added_begin = begin;
    if (end > net->added_end)
        net->added_end = end;
}

weft_result weft__net_add_to_word(struct weft__net *net, int32_t rank, uint64_t word,
                                  uint64_t summand, uint64_t *before)
{
    const weft_result result = add(net, rank, word, summand, before);
    /* Words of other regions are any word. */
    if (result == WEFT_OK)
        weft__net_note_added(net, weft__net_region_of(word) == 0 ? weft__net_offset_of(word)
                                                                 : WEFT__ANY_WORD);
    return result;
}

void weft__net_ring(struct weft__net *net)
{
    if (net->added_end != 0 && net->config.bell != NULL)
        weft__doorbell_ring_words(net->config.bell, net->added_begin, net->added_end);
    net->added_end = 0;
}

/* ---------------------------------------------------------------- what is sent */

void weft__net_set_payload(struct weft__net_operation *operation, uint64_t source,
                           uint64_t num_bytes)
{
    operation->source = source;
    operation->payload = num_bytes > 0 ? weft__net_address_of(operation->net, source) : NULL;
    operation->header.num_bytes = num_bytes;
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
    if (operation->header.kind != WEFT__NET_PACKET)
        operation->net->peers[operation->peer].num_staged--;
}
