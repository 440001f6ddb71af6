/* SPDX-License-Identifier: MIT */
/*
 * Memory of the user that other ranks map: allocations of cudaMalloc by name, and those of virtual
 * memory management by descriptors. Of the latter, several may be mapped side by side, as PyTorch's
 * expandable segments are; so they appear side by side at the other ranks too.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "machine/cuda/sharing.h"

enum block_kind {
    NOT_SHARED,
    BY_DESCRIPTOR,
    BY_NAME,
    IN_PLACE /* BY_NAME, of a rank of this process */
};

static CUdeviceptr address_of(const struct weft__block *block)
{
    return (CUdeviceptr)(uintptr_t)block->base;
}

/* ---------------------------------------------------------------- what can be shared */

/* 0 if the driver does not say. All attributes that are asked for here have 8 bytes or fewer. */
static uint64_t attribute(CUdeviceptr address, CUpointer_attribute which)
{
    uint64_t value = 0;
    return weft__cu.pointer_get_attribute(&value, which, address) == CUDA_SUCCESS ? value : 0;
}

static enum block_kind kind_of(const weft_comm *comm, CUdeviceptr allocation)
{
    if (attribute(allocation, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE) != 0)
        return NOT_SHARED;
    if (attribute(allocation, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE) != 0)
        return BY_NAME;
    const uint64_t handle_types = attribute(allocation, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES);
    return (handle_types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0 &&
                   comm->heap_kind == &weft__heap_of_device
               ? BY_DESCRIPTOR
               : NOT_SHARED;
}

static weft_result check_device(const struct weft__cuda *cuda, CUdeviceptr address)
{
    if (attribute(address, CU_POINTER_ATTRIBUTE_MEMORY_TYPE) != CU_MEMORYTYPE_DEVICE ||
        attribute(address, CU_POINTER_ATTRIBUTE_IS_MANAGED) != 0)
        return weft__error(WEFT_ERROR_UNSUPPORTED, "0x%" PRIx64 " is not memory of a device",
                           (uint64_t)address);
    const uint64_t ordinal = attribute(address, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
    if (ordinal == (uint64_t)cuda->ordinal)
        return WEFT_OK;
    return weft__error(WEFT_ERROR_UNSUPPORTED,
                       "0x%" PRIx64 " is memory of CUDA device %d, the rank is on CUDA device %d",
                       (uint64_t)address, (int)ordinal, cuda->ordinal);
}

/* Adds the allocation around `address` to the block. */
static weft_result add_allocation(weft_comm *comm, CUdeviceptr address, struct weft__block *block)
{
    CUdeviceptr begin = 0;
    size_t bytes = 0;
    WEFT__CUDA_TRY(weft__cu.mem_get_address_range(&begin, &bytes, address),
                   "cannot find the allocation of 0x%" PRIx64, (uint64_t)address);
    const enum block_kind kind = kind_of(comm, begin);
    const int is_first = block->num_allocations == 0;
    if (kind == NOT_SHARED ||
        (!is_first && (kind != BY_DESCRIPTOR || block->kind != BY_DESCRIPTOR)))
        return weft__error(WEFT_ERROR_UNSUPPORTED,
                           "memory at 0x%" PRIx64 " is of a kind that CUDA does not share with "
                           "other processes",
                           (uint64_t)address);
    if (begin + bytes <= address || (!is_first && begin != address))
        return weft__error(WEFT_ERROR_UNSUPPORTED,
                           "CUDA does not tell the allocation of 0x%" PRIx64, (uint64_t)address);
    if (is_first)
        block->base = (char *)(uintptr_t)begin;
    block->kind = kind;
    block->bytes += bytes;
    block->num_allocations++;
    return WEFT_OK;
}

static weft_result find_allocations(weft_comm *comm, CUdeviceptr begin, uint64_t bytes,
                                    struct weft__block *block)
{
    struct weft__block found = {0};
    WEFT__TRY(check_device(weft__cuda_of(comm), begin));
    for (CUdeviceptr next = begin; next < begin + bytes; next = address_of(&found) + found.bytes)
        WEFT__TRY(add_allocation(comm, next, &found));
    *block = found;
    return WEFT_OK;
}

weft_result weft__cuda_find_block(weft_comm *comm, const void *ptr, uint64_t bytes,
                                  struct weft__block *block)
{
    WEFT__TRY(weft__cuda_enter(weft__cuda_of(comm)));
    const weft_result result = find_allocations(comm, (CUdeviceptr)(uintptr_t)ptr, bytes, block);
    weft__cuda_leave();
    return result;
}

/* ---------------------------------------------------------------- by name */

/* A rank's message about its block to the others. */
struct offer {
    struct weft__block block;
    struct weft__cuda_name name; /* BY_NAME */
    int32_t result;              /* a weft_result: whether it could be named */
    int32_t unused;
};

static struct offer make_offer(const struct weft__cuda *cuda, const struct weft__block *own)
{
    struct offer offer = {.block = *own, .result = WEFT_OK};
    if (own->kind == BY_NAME)
        offer.result = weft__cuda_name(cuda, address_of(own), &offer.name);
    return offer;
}

static void open_name(weft_comm *comm, int32_t rank, const struct offer *offer,
                      struct weft__block *block)
{
    CUdeviceptr address;
    if (weft__cuda_open_name(comm, rank, &offer->name, &address) != WEFT_OK)
        return;
    *block = offer->block;
    block->base = (char *)(uintptr_t)address;
    block->kind = weft__comm_is_in_process(comm, rank) ? IN_PLACE : BY_NAME;
}

/* ---------------------------------------------------------------- by descriptors */

/* The part of the own block from `offset` on that is one allocation. */
struct part {
    uint64_t bytes; /* 0: there is none, or it cannot be exported */
    int fd;
};

static struct part export_part(const struct weft__block *own, uint64_t offset)
{
    struct part part = {0, -1};
    CUmemGenericAllocationHandle allocation;
    const CUdeviceptr address = address_of(own) + offset;
    size_t bytes = 0;
    if (own->kind != BY_DESCRIPTOR || offset >= own->bytes ||
        weft__cu.mem_get_address_range(NULL, &bytes, address) != CUDA_SUCCESS)
        return part;
    const CUresult retained =
        weft__cu.mem_retain_allocation_handle(&allocation, (void *)(uintptr_t)address);
    if (retained != CUDA_SUCCESS) {
        weft__cuda_error(retained, "cannot share device memory");
        return part;
    }
    if (weft__cuda_export(allocation, &part.fd) == WEFT_OK)
        part.bytes = bytes;
    (void)weft__cu.mem_release(allocation);
    return part;
}

/* The part that comes next of a block, which is mapped here up to block->bytes. */
static void import_part(const struct weft__cuda *cuda, int32_t rank, struct part part,
                        struct weft__block *block)
{
    if (part.fd < 0)
        weft__error(WEFT_ERROR_UNSUPPORTED, "rank %d cannot share its memory", rank);
    else if (weft__cuda_import(cuda, rank, part.fd, address_of(block) + block->bytes, part.bytes) ==
             WEFT_OK) {
        block->bytes += part.bytes;
        block->num_allocations++;
    }
}

static void import_parts(weft_comm *comm, const struct offer *offers, int32_t part_idx,
                         const uint64_t *bytes, const int *fds, struct weft__block *blocks)
{
    for (int32_t rank = 0; rank < comm->num_ranks; rank++) {
        const struct part part = {bytes[rank], fds[rank]};
        /* A block that lacks a part gets no others. */
        if (blocks[rank].kind == BY_DESCRIPTOR && blocks[rank].num_allocations == part_idx &&
            part_idx < offers[rank].block.num_allocations)
            import_part(weft__cuda_of(comm), rank, part, &blocks[rank]);
        if (part.fd >= 0)
            close(part.fd);
    }
}

/* Collective: part number part_idx of every block that has so many goes to all other ranks. */
static weft_result share_part(weft_comm *comm, struct part own, const struct offer *offers,
                              int32_t part_idx, struct weft__block *blocks)
{
    int *fds = calloc((size_t)comm->num_ranks, sizeof *fds);
    weft_result result = WEFT_OK;
    if (fds == NULL)
        result = weft__no_memory("no memory for %d ranks", comm->num_ranks);
    uint64_t *bytes = weft__comm_gather_new(comm, result, &own.bytes, sizeof own.bytes, &result);
    if (bytes != NULL && fds != NULL) {
        result = weft__comm_exchange_fd(comm, own.fd, fds);
        if (result == WEFT_OK)
            import_parts(comm, offers, part_idx, bytes, fds, blocks);
    }
    free(bytes);
    free(fds);
    return result;
}

static weft_result share_parts(weft_comm *comm, const struct offer *offers, int32_t num_parts,
                               struct weft__block *blocks)
{
    const struct weft__block *own = &offers[comm->rank].block;
    uint64_t exported_bytes = 0;
    weft_result result = WEFT_OK;
    for (int32_t i = 0; i < num_parts && result == WEFT_OK; i++) {
        const struct part part = export_part(own, exported_bytes);
        exported_bytes += part.bytes;
        result = share_part(comm, part, offers, i, blocks);
        if (part.fd >= 0)
            close(part.fd);
    }
    if (own->kind == BY_NAME || exported_bytes == own->bytes)
        blocks[comm->rank] = *own;
    return result;
}

static void reserve_addresses(const struct offer *offer, struct weft__block *block)
{
    CUdeviceptr address;
    const CUresult result = weft__cu.mem_address_reserve(&address, offer->block.bytes, 0, 0, 0);
    if (result == CUDA_SUCCESS)
        *block = (struct weft__block){.base = (char *)(uintptr_t)address, .kind = BY_DESCRIPTOR};
    else
        weft__cuda_error(result, "cannot reserve %" PRIu64 " bytes of addresses",
                         offer->block.bytes);
}

static void free_addresses(const struct weft__block *block, uint64_t reserved_bytes)
{
    if (block->bytes > 0)
        (void)weft__cu.mem_unmap(address_of(block), block->bytes);
    (void)weft__cu.mem_address_free(address_of(block), reserved_bytes);
}

/* ---------------------------------------------------------------- both */

static int32_t begin_blocks(weft_comm *comm, const struct offer *offers, struct weft__block *blocks)
{
    int32_t num_parts = 0;
    for (int32_t rank = 0; rank < comm->num_ranks; rank++) {
        const struct offer *offer = &offers[rank];
        blocks[rank] = (struct weft__block){0};
        if (offer->block.kind == BY_DESCRIPTOR && offer->block.num_allocations > num_parts)
            num_parts = offer->block.num_allocations;
        if (rank == comm->rank)
            continue;
        if (offer->result != WEFT_OK)
            weft__error(WEFT_ERROR_UNSUPPORTED, "rank %d cannot share its memory", rank);
        else if (offer->block.kind == BY_NAME)
            open_name(comm, rank, offer, &blocks[rank]);
        else if (offer->block.kind == BY_DESCRIPTOR)
            reserve_addresses(offer, &blocks[rank]);
    }
    return num_parts;
}

/* Keeps a block only if all of it was given and mapped; after a failure keeps none. */
static void end_blocks(weft_comm *comm, const struct offer *offers, weft_result result,
                       struct weft__block *blocks)
{
    for (int32_t rank = 0; rank < comm->num_ranks; rank++) {
        struct weft__block *block = &blocks[rank];
        const uint64_t bytes = offers[rank].block.bytes;
        if (block->base == NULL || rank == comm->rank ||
            (result == WEFT_OK && block->bytes == bytes))
            continue;
        if (block->kind == BY_DESCRIPTOR)
            free_addresses(block, bytes);
        else if (block->kind == BY_NAME)
            weft__cuda_close_name(comm, address_of(block));
        *block = (struct weft__block){0};
    }
}

static weft_result share(weft_comm *comm, const struct offer *offers, struct weft__block *blocks)
{
    const int32_t num_parts = begin_blocks(comm, offers, blocks);
    const weft_result result = share_parts(comm, offers, num_parts, blocks);
    end_blocks(comm, offers, result, blocks);
    if (offers[comm->rank].result != WEFT_OK)
        blocks[comm->rank] = (struct weft__block){0};
    return result;
}

weft_result weft__cuda_share_block(weft_comm *comm, const struct weft__block *own,
                                   struct weft__block *blocks)
{
    struct offer offer = {.result = WEFT_OK};
    const weft_result entered = weft__cuda_enter(weft__cuda_of(comm));
    weft_result result;
    if (entered == WEFT_OK)
        offer = make_offer(weft__cuda_of(comm), own);
    struct offer *offers = weft__comm_gather_new(comm, entered, &offer, sizeof offer, &result);
    if (offers != NULL)
        result = share(comm, offers, blocks);
    if (entered == WEFT_OK)
        weft__cuda_leave();
    free(offers);
    return result;
}

void weft__cuda_close_block(weft_comm *comm, const struct weft__block *block)
{
    if (block->kind == BY_NAME)
        weft__cuda_close_name(comm, address_of(block));
    if (block->kind != BY_DESCRIPTOR || weft__cuda_enter(weft__cuda_of(comm)) != WEFT_OK)
        return;
    free_addresses(block, block->bytes);
    weft__cuda_leave();
}
