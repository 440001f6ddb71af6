/* SPDX-License-Identifier: MIT */
/* The symmetric heap: memory of each rank, mapped by every rank of the node into a reserved address
 * range, so that growth never moves an address. Offset 0 holds the heap header. */
#pragma once

#include <stdatomic.h>

#include "comm/host/doorbell.h"
#include "weft.h"

struct weft__heap;

struct weft__heap_header {
    struct weft__doorbell
        bell; /* of the rank that owns this heap; unused if hosts cannot access it */
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
weft_result weft__heap_free(struct weft__heap *heap, void *ptr);
weft_result weft__heap_grow(weft_comm *comm, uint64_t bytes);
void weft__heap_query(struct weft__heap *heap, weft_heap_info *info);
void *weft__heap_peer(const struct weft__heap *heap, const void *ptr, int32_t rank);

static inline struct weft__doorbell *weft__heap_bell(char *base)
{
    return &((struct weft__heap_header *)(void *)base)->bell;
}
