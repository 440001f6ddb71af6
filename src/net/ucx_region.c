/* SPDX-License-Identifier: MIT */
/* Memory that the engine on UCX knows, here and at peers. */
#include <string.h>

#include "comm/host/error.h"
#include "net/ucx_internal.h"

/* In front of UCX's own in a region's key. */
struct key_header {
    uint64_t base;
};

/* Fits into key_bytes, which is the room for it before. */
static weft_result write_key(const struct weft__ucx_engine *engine, uint32_t region,
                             const void *memory, void *key, uint32_t *key_bytes)
{
    const struct weft__ucx *ucx = engine->ucx;
    const struct key_header header = {.base = (uint64_t)(uintptr_t)memory};
    void *packed = NULL;
    size_t packed_bytes = 0;
    const ucs_status_t status =
        ucx->ucp_rkey_pack(engine->context, engine->memory[region], &packed, &packed_bytes);
    if (status != UCS_OK)
        return weft__ucx_failed(engine, "tell a key of registered memory", status);
    const int fits = sizeof(header) + packed_bytes <= WEFT__NET_MAX_KEY_BYTES;
    if (fits) {
        memcpy(key, &header, sizeof(header));
        memcpy((unsigned char *)key + sizeof(header), packed, packed_bytes);
        *key_bytes = (uint32_t)(sizeof(header) + packed_bytes);
    }
    ucx->ucp_rkey_buffer_release(packed);
    return fits ? WEFT_OK
                : weft__error(WEFT_ERROR_CAPACITY, "UCX's key of a region has %zu bytes",
                              packed_bytes);
}

/* It tells memory of the host and of GPUs apart by itself. */
weft_result weft__ucx_reg(void *state, uint32_t region, void *memory, size_t num_bytes, void *key,
                          uint32_t *key_bytes)
{
    struct weft__ucx_engine *engine = state;
    const ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                                                       UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                         .address = memory,
                                         .length = num_bytes};
    *key_bytes = 0;
    if (num_bytes == 0)
        return WEFT_OK;
    const ucs_status_t status =
        engine->ucx->ucp_mem_map(engine->context, &params, &engine->memory[region]);
    if (status != UCS_OK)
        return weft__ucx_failed(engine, "register memory", status);
    const weft_result result = write_key(engine, region, memory, key, key_bytes);
    if (result != WEFT_OK)
        weft__ucx_unreg(engine, region);
    return result;
}

weft_result weft__ucx_learn(void *state, int32_t rank, uint32_t region, const void *key,
                            uint32_t key_bytes)
{
    struct weft__ucx_engine *engine = state;
    struct weft__ucx_peer *peer = &engine->peers[rank];
    struct key_header header;
    if (key_bytes == 0 || peer->endpoint == NULL)
        return WEFT_OK;
    if (key_bytes <= sizeof(header))
        return weft__error(WEFT_ERROR_MISMATCH, "the key of region %u of rank %d is not one",
                           region, rank);
    memcpy(&header, key, sizeof(header));
    peer->bases[region] = header.base;
    const ucs_status_t status = engine->ucx->ucp_ep_rkey_unpack(
        peer->endpoint, (const unsigned char *)key + sizeof(header), &peer->keys[region]);
    return status == UCS_OK ? WEFT_OK : weft__ucx_failed(engine, "use a peer's key", status);
}

void weft__ucx_unreg(void *state, uint32_t region)
{
    struct weft__ucx_engine *engine = state;
    const struct weft__ucx *ucx = engine->ucx;
    for (int32_t rank = 0; rank < engine->num_ranks; rank++) {
        if (engine->peers[rank].keys[region] != NULL)
            ucx->ucp_rkey_destroy(engine->peers[rank].keys[region]);
        engine->peers[rank].keys[region] = NULL;
    }
    if (engine->memory[region] != NULL)
        ucx->ucp_mem_unmap(engine->context, engine->memory[region]);
    engine->memory[region] = NULL;
}
