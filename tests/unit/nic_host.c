/* SPDX-License-Identifier: MIT */
#include "nic_host.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "harness/cmocka.h"

void nic_host_ring(uint64_t *doorbell, uint64_t value)
{
    __atomic_store_n(doorbell, value, __ATOMIC_RELEASE);
    nic_hardware_hear();
}

enum wp_status nic_host_pause(void)
{
    return nic_hardware_step() ? WP_STATUS_OK : WP_STATUS_FAILED;
}

/* ---------------------------------------------------------------- memory */

/* Queues begin in the middle of the block, so that offsets in a dmabuf count. */
enum {
    SEND_PAGES = NIC_HOST_MAX_RANKS + 1, /* units of a queue need less than a page; the records */
    HEAP_OFFSET = NIC_HOST_PAGE_BYTES,
    SENDS_OFFSET = HEAP_OFFSET + NIC_HOST_HEAP_BYTES,
    SENDS_BYTES = SEND_PAGES * NIC_HOST_PAGE_BYTES,
    BLOCK_BYTES = SENDS_OFFSET + SENDS_BYTES
};

static struct weft__nic_memory part_of(const struct weft__nic_memory *block, uint64_t offset,
                                       uint64_t num_bytes)
{
    struct weft__nic_memory part = *block;
    part.address = (char *)block->address + offset;
    part.num_bytes = num_bytes;
    part.dmabuf_offset = offset;
    return part;
}

static void allocate(struct nic_rank *rank, enum nic_host_memory memory)
{
    const size_t completion_bytes = (size_t)NIC_HOST_MAX_RANKS * NIC_HOST_PAGE_BYTES;
    const int is_dmabuf = memory == NIC_HOST_OF_DMABUF;
    const int dmabuf = is_dmabuf ? memfd_create("memory of a GPU", 0) : WEFT__NIC_NO_DMABUF;
    if (is_dmabuf)
        assert_int_equal(ftruncate(dmabuf, BLOCK_BYTES), 0);
    void *block = mmap(NULL, BLOCK_BYTES, PROT_READ | PROT_WRITE,
                       is_dmabuf ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, dmabuf, 0);
    assert_ptr_not_equal(block, MAP_FAILED);
    rank->block = (struct weft__nic_memory){block, BLOCK_BYTES, dmabuf, 0};
    rank->heap = part_of(&rank->block, HEAP_OFFSET, NIC_HOST_HEAP_BYTES);
    rank->sends = part_of(&rank->block, SENDS_OFFSET, SENDS_BYTES);
    void *completions = aligned_alloc(NIC_HOST_PAGE_BYTES, completion_bytes);
    assert_non_null(completions);
    rank->completions =
        (struct weft__nic_memory){completions, completion_bytes, WEFT__NIC_NO_DMABUF, 0};
    memset(completions, 0, completion_bytes);
    for (int peer = 0; peer < NIC_HOST_MAX_RANKS; peer++)
        memset((char *)completions + (size_t)peer * NIC_HOST_PAGE_BYTES, 0xff,
               WEFT__NIC_UNIT_BYTES);
}

/* ---------------------------------------------------------------- what weft makes */

static weft_result make_qp(struct nic_rank *rank, int peer)
{
    const uint64_t records = (uint64_t)NIC_HOST_MAX_RANKS * NIC_HOST_PAGE_BYTES;
    const struct weft__nic_qp_config config = {.peer = peer,
                                               .depth = NIC_HOST_DEPTH,
                                               .batch = 1,
                                               .sends = &rank->send_umem,
                                               .units = (uint64_t)peer * NIC_HOST_PAGE_BYTES,
                                               .record = records +
                                                         (uint64_t)peer * WEFT__NIC_RECORD_BYTES,
                                               .completions = &rank->completion_umem,
                                               .entry = (uint64_t)peer * NIC_HOST_PAGE_BYTES};
    struct weft__nic_qp qp = {0};
    const weft_result result = weft__nic_qp_create(&rank->device, &config, &qp);
    if (result == WEFT_OK) /* else nothing is left of it */
        rank->qps[peer] = qp;
    return result;
}

static weft_result make(struct nic_host *host, int rank_idx, const struct weft__verbs *verbs)
{
    struct nic_rank *rank = &host->ranks[rank_idx];
    const struct weft__nic_memory sink = {&rank->sink, sizeof rank->sink, WEFT__NIC_NO_DMABUF, 0};
    char name[WEFT__NIC_NAME_BYTES];
    snprintf(name, sizeof name, "mlx5_%d", rank_idx);
    weft_result result = weft__nic_device_open(verbs, name, &rank->device);
    if (result == WEFT_OK)
        result = weft__nic_mr_create(&rank->device, "the heap", &rank->heap,
                                     WEFT__NIC_FOR_ALL_RANKS, &rank->heap_mr);
    if (result == WEFT_OK)
        result = weft__nic_mr_create(&rank->device, "the sink", &sink, WEFT__NIC_FOR_THIS_RANK,
                                     &rank->sink_mr);
    if (result == WEFT_OK)
        result = weft__nic_umem_create(&rank->device, "sends", &rank->sends, &rank->send_umem);
    if (result == WEFT_OK)
        result = weft__nic_umem_create(&rank->device, "completions", &rank->completions,
                                       &rank->completion_umem);
    for (int peer = 0; peer < host->num_ranks && result == WEFT_OK; peer++)
        if (peer != rank_idx)
            result = make_qp(rank, peer);
    return result;
}

/* Programs get the port. */
static void fill_port(struct nic_host *host, int rank_idx)
{
    struct nic_rank *rank = &host->ranks[rank_idx];
    rank->step = calloc(1, sizeof *rank->step + NIC_HOST_MAX_RANKS * sizeof rank->step->keys[0]);
    assert_non_null(rank->step);
    rank->step->end = NIC_HOST_HEAP_BYTES;
    for (int peer = 0; peer < host->num_ranks; peer++) {
        rank->step->keys[peer] =
            peer == rank_idx ? rank->heap_mr.local : host->ranks[peer].heap_mr.remote;
        if (peer != rank_idx)
            rank->channels[peer].queue = weft__nic_qp_queue(&rank->qps[peer]);
    }
    rank->port = (struct weft__nic_port){.rank = rank_idx,
                                         .channels = rank->channels,
                                         .sink = rank->sink_mr.local,
                                         .last_step = rank->step};
}

static weft_result connect_all(struct nic_host *host)
{
    for (int rank = 0; rank < host->num_ranks; rank++) {
        for (int peer = 0; peer < host->num_ranks; peer++) {
            if (peer == rank)
                continue;
            const weft_result result = weft__nic_qp_connect(&host->ranks[rank].qps[peer],
                                                            &host->ranks[peer].qps[rank].end);
            if (result != WEFT_OK)
                return result;
        }
        fill_port(host, rank);
    }
    return WEFT_OK;
}

weft_result nic_host_try(struct nic_host *host, int num_ranks, enum nic_host_memory memory,
                         const struct weft__verbs *verbs)
{
    memset(host, 0, sizeof *host);
    host->num_ranks = num_ranks;
    for (int rank = 0; rank < num_ranks; rank++)
        allocate(&host->ranks[rank], memory);
    for (int rank = 0; rank < num_ranks; rank++) {
        const weft_result result = make(host, rank, verbs);
        if (result != WEFT_OK)
            return result;
    }
    return connect_all(host);
}

static void unmake(struct nic_rank *rank)
{
    free(rank->step);
    for (int peer = 0; peer < NIC_HOST_MAX_RANKS; peer++)
        weft__nic_qp_destroy(&rank->qps[peer]);
    weft__nic_umem_destroy(&rank->completion_umem);
    weft__nic_umem_destroy(&rank->send_umem);
    weft__nic_mr_destroy(&rank->sink_mr);
    weft__nic_mr_destroy(&rank->heap_mr);
    if (rank->device.verbs != NULL)
        weft__nic_device_close(&rank->device);
    if (rank->block.dmabuf != WEFT__NIC_NO_DMABUF)
        assert_int_equal(close(rank->block.dmabuf), 0);
    assert_int_equal(munmap(rank->block.address, BLOCK_BYTES), 0);
    free(rank->completions.address);
    *rank = (struct nic_rank){0};
}

void nic_host_close(struct nic_host *host)
{
    for (int rank = 0; rank < host->num_ranks; rank++)
        unmake(&host->ranks[rank]);
    assert_int_equal(nic_hardware_num_open(), 0);
}

/* ---------------------------------------------------------------- use */

char *nic_host_heap(const struct nic_host *host, int rank)
{
    return host->ranks[rank].heap.address;
}

enum wp_status nic_host_post(struct nic_host *host, int rank, const struct wp_access *access,
                             uint64_t *index)
{
    struct wp_nic_wait wait = {0};
    return wp_nic_post(&host->ranks[rank].port, access, &wait, index);
}

enum wp_status nic_host_await(struct nic_host *host, int rank, int peer, uint64_t index)
{
    struct wp_nic_wait wait = {0};
    return wp_nic_await(&host->ranks[rank].channels[peer].queue, index, &wait);
}
