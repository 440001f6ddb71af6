/* SPDX-License-Identifier: MIT */
#include "net/shm_ring.h"

#include <string.h>

/* In place of a record: the next one is at the beginning of the ring. */
#define WRAP UINT64_MAX

static uint64_t record_bytes(uint64_t payload_bytes)
{
    return sizeof(struct weft__record) + (payload_bytes + 7) / 8 * 8;
}

int weft__ring_put(struct weft__ring *ring, uint64_t *own, const struct weft__net_header *header,
                   const void *payload)
{
    uint64_t needed = record_bytes(header->num_bytes), at = *own % WEFT__RING_BYTES;
    uint64_t skipped = at + needed > WEFT__RING_BYTES ? WEFT__RING_BYTES - at : 0;
    /* Acquire: the target has read what is overwritten. */
    uint64_t taken = atomic_load_explicit(&ring->taken, memory_order_acquire);
    if (*own + skipped + needed - taken > WEFT__RING_BYTES)
        return 0;
    if (skipped > 0) {
        const uint64_t wrap = WRAP;
        memcpy(ring->records + at, &wrap, sizeof(wrap));
        at = 0;
    }
    const struct weft__record record = {.payload_bytes = header->num_bytes, .header = *header};
    memcpy(ring->records + at, &record, sizeof(record));
    if (header->num_bytes > 0)
        memcpy(ring->records + at + sizeof(record), payload, header->num_bytes);
    *own += skipped + needed;
    atomic_store_explicit(&ring->published, *own, memory_order_release);
    return 1;
}

int weft__ring_is_empty(const struct weft__ring *ring, uint64_t own)
{
    return atomic_load_explicit(&ring->published, memory_order_acquire) == own;
}

enum weft__ring_result weft__ring_next(struct weft__ring *ring, uint64_t *own,
                                       const struct weft__record **record, size_t *payload_bytes)
{
    uint64_t published = atomic_load_explicit(&ring->published, memory_order_acquire);
    uint64_t at = *own % WEFT__RING_BYTES, available = published - *own, bytes;
    if (available == 0)
        return WEFT__RING_EMPTY;
    if (available > WEFT__RING_BYTES || available % 8 != 0)
        return WEFT__RING_BROKEN;
    memcpy(&bytes, ring->records + at, sizeof(bytes));
    if (bytes == WRAP) {
        if (at == 0 || available <= WEFT__RING_BYTES - at)
            return WEFT__RING_BROKEN;
        *own += WEFT__RING_BYTES - at;
        available -= WEFT__RING_BYTES - at;
        at = 0;
        memcpy(&bytes, ring->records, sizeof(bytes));
    }
    if (bytes > WEFT__RING_MAX_PAYLOAD_BYTES || record_bytes(bytes) > available ||
        record_bytes(bytes) > WEFT__RING_BYTES - at)
        return WEFT__RING_BROKEN;
    *record = (const struct weft__record *)(ring->records + at);
    *payload_bytes = bytes;
    return WEFT__RING_RECORD;
}

void weft__ring_take(struct weft__ring *ring, uint64_t *own, size_t payload_bytes)
{
    *own += record_bytes(payload_bytes);
    atomic_store_explicit(&ring->taken, *own, memory_order_release);
}
