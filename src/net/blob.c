/* SPDX-License-Identifier: MIT */
/* The messages of ranks before they connect. They come from other hosts, so every length is
 * checked. */
#include <stdlib.h>
#include <string.h>

#include "comm/host/error.h"
#include "net/net_internal.h"

static const char blob_magic[] = "weftnet1";

struct blob_header {
    char magic[8];
    char engine[8];
    int32_t rank;
    uint32_t address_bytes; /* of the engine's address, which follows */
    struct {
        uint64_t num_bytes;
        uint64_t access; /* enum weft__net_access */
    } regions[WEFT__NET_MAX_REGIONS];
};

weft_result weft__net_blob_write(struct weft__net *net, struct weft__net_blob *blob)
{
    struct blob_header header = {.rank = net->config.rank};
    size_t address_bytes = WEFT__NET_MAX_ADDRESS_BYTES;
    free(net->address);
    net->address = calloc(1, sizeof(header) + address_bytes);
    WEFT__CHECK_MEMORY(net->address, "no memory for an address");
    weft_result result =
        net->engine->address(net->state, net->address + sizeof(header), &address_bytes);
    if (result != WEFT_OK)
        return result;
    memcpy(header.magic, blob_magic, sizeof(header.magic));
    memcpy(header.engine, net->engine->name, strlen(net->engine->name));
    header.address_bytes = (uint32_t)address_bytes;
    for (uint32_t region = 0; region < WEFT__NET_MAX_REGIONS; region++) {
        if (net->regions[region].kind >= WEFT__NET_REGISTERED)
            continue;
        header.regions[region].num_bytes = net->regions[region].num_bytes;
        header.regions[region].access = weft__net_access_of(net, region);
    }
    memcpy(net->address, &header, sizeof(header));
    *blob = (struct weft__net_blob){net->address, sizeof(header) + address_bytes};
    return WEFT_OK;
}

static int is_well_formed(const struct blob_header *header, size_t num_bytes)
{
    if (memcmp(header->magic, blob_magic, sizeof(header->magic)) != 0 ||
        header->address_bytes > WEFT__NET_MAX_ADDRESS_BYTES ||
        memchr(header->engine, '\0', sizeof(header->engine)) == NULL)
        return 0;
    for (uint32_t region = 0; region < WEFT__NET_MAX_REGIONS; region++)
        if (header->regions[region].access > WEFT__NET_BY_MESSAGES ||
            header->regions[region].num_bytes >> WP_PLACE_OFFSET_BITS != 0)
            return 0;
    return num_bytes == sizeof(*header) + header->address_bytes;
}

weft_result weft__net_blob_read(struct weft__net *net, int32_t rank,
                                const struct weft__net_blob *blob, struct weft__net_blob *address)
{
    struct blob_header header = {.rank = -1};
    struct weft__net_peer *peer = &net->peers[rank];
    if (blob->num_bytes >= sizeof(header))
        memcpy(&header, blob->bytes, sizeof(header));
    if (!is_well_formed(&header, blob->num_bytes) || header.rank != rank)
        return weft__error(WEFT_ERROR_MISMATCH,
                           "the network address of rank %d is not one (%zu bytes)", rank,
                           blob->num_bytes);
    if (strcmp(header.engine, net->engine->name) != 0)
        return weft__error(WEFT_ERROR_MISMATCH,
                           "ranks disagree: the network engine is %s on rank %d and %s on rank %d; "
                           "WEFT_NET chooses it",
                           net->engine->name, net->config.rank, header.engine, rank);
    *address = (struct weft__net_blob){(const unsigned char *)blob->bytes + sizeof(header),
                                       header.address_bytes};
    for (uint32_t region = 0; region < WEFT__NET_MAX_REGIONS; region++) {
        peer->region_bytes[region] = header.regions[region].num_bytes;
        peer->region_access[region] = (uint8_t)header.regions[region].access;
    }
    return WEFT_OK;
}
