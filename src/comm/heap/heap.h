/* SPDX-License-Identifier: MIT */
/* The symmetric heap: memory of each rank, mapped by every rank of the node into a reserved address
 * range, so that growth never moves an address. Offset 0 holds the heap header. */
#pragma once

#include <stdatomic.h>

#include "comm/host/doorbell.h"
#include "record/record_slots.h"
#include "weft.h"

struct weft__heap;

/* When a rank has come to an operation in which all meet. Only so do ranks know who came last: the
 * last one waits for nobody, and the others see what has come by the time that they look. */
struct weft__attendance {
    _Atomic uint64_t operation; /* its exchange and number; 0 while it changes */
    _Atomic int64_t came_ns;    /* by the monotonic clock of the host */
};
/* The last two of so many exchanges: nobody comes to the third before all have left the first. */
enum { WEFT__ATTENDED_EXCHANGES = 8, WEFT__ATTENDED_OPERATIONS = 2 };

/* It is the owner's. If hosts cannot access it, only the slots are used. */
struct weft__heap_header {
    struct weft__doorbell bell;
    _Alignas(64) struct weft__attendance
        attendances[WEFT__ATTENDED_EXCHANGES][WEFT__ATTENDED_OPERATIONS];
    _Alignas(64) struct weft__record_slot slots[WEFT__NUM_RECORD_SLOTS]; /* of devices */
};

/* [num_ranks] where each rank's heap is mapped here, NULL where it cannot be; stable until the heap
 * is destroyed. bases[own rank] is the own heap. */
char *const *weft__heap_bases(const struct weft__heap *heap);

/* How many bytes of this rank's heap are there, for those who reach it by the network. */
const _Atomic uint64_t *weft__heap_backed_bytes(const struct weft__heap *heap);

/* WEFT_OK and the offset, or INVALID_ARGUMENT naming `argument` unless [ptr, ptr + bytes) lies in
 * this rank's allocated part of the heap. ptr NULL with bytes 0 is legal: offset 0. */
/* 1 if the bytes lie in one allocation; the offset is then that of ptr. */
int weft__heap_contains(const struct weft__heap *heap, const void *ptr, uint64_t bytes,
                        uint64_t *offset);
weft_result weft__heap_offset(const struct weft__heap *heap, const void *ptr, uint64_t bytes,
                              const char *argument, uint64_t *offset);

/* Collective. Makes the heap of comm, whose ranks have met and whose kind of heap is known. */
weft_result weft__heap_create(weft_comm *comm, const weft_comm_config *config,
                              struct weft__heap **heap);
void weft__heap_destroy(struct weft__heap *heap);

/* The work behind weft_heap_ptr and its like. */
weft_result weft__heap_alloc(weft_comm *comm, uint64_t bytes, void **ptr);
/* As weft__heap_alloc, for a caller that needs zeroes. It must clear the first *dirty_bytes. The
 * bytes behind are zero, and a store to them would cost a page fault for each page. */
weft_result weft__heap_alloc_to_zero(weft_comm *comm, uint64_t bytes, void **ptr,
                                     uint64_t *dirty_bytes);
weft_result weft__heap_free(struct weft__heap *heap, void *ptr);
weft_result weft__heap_grow(weft_comm *comm, uint64_t bytes);
void weft__heap_query(struct weft__heap *heap, weft_heap_info *info);
void *weft__heap_peer(const struct weft__heap *heap, const void *ptr, int32_t rank);

static inline struct weft__doorbell *weft__heap_bell(char *base)
{
    return &((struct weft__heap_header *)(void *)base)->bell;
}
static inline struct weft__attendance *weft__heap_attendance(char *base, int32_t exchange,
                                                             uint64_t sequence)
{
    struct weft__heap_header *header = (struct weft__heap_header *)(void *)base;
    return &header->attendances[exchange % WEFT__ATTENDED_EXCHANGES]
                               [sequence % WEFT__ATTENDED_OPERATIONS];
}
static inline struct weft__record_slot *weft__heap_record_slots(char *base)
{
    return ((struct weft__heap_header *)(void *)base)->slots;
}
