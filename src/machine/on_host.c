/* SPDX-License-Identifier: MIT */
#include "machine/on_host.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "comm/heap/heap_kind.h"
#include "comm/heap/host_memory.h"

enum { ALIGNMENT = 256 };                /* of weft_memory_alloc */
enum { LEAST_COMPARED_BYTES = 1 << 20 }; /* reading the available memory takes 0.1 ms */

weft_result weft__on_host_attach(weft_comm *comm)
{
    comm->heap_kind = &weft__heap_of_host;
    return WEFT_OK;
}

weft_result weft__on_host_start(weft_comm *comm)
{
    (void)comm;
    return WEFT_OK;
}

void weft__on_host_do_nothing(weft_comm *comm)
{
    (void)comm;
}

/* "model name : NAME" of the first processor; without it the kind of processor. */
static void read_processor_name(char *name, size_t name_bytes)
{
    struct utsname system;
    char line[256];
    int length = 0;
    FILE *processors = fopen("/proc/cpuinfo", "r");
    snprintf(name, name_bytes, "%s", uname(&system) == 0 ? system.machine : "");
    while (processors != NULL && length == 0 && fgets(line, sizeof line, processors) != NULL)
        if (strncmp(line, "model name", 10) == 0 && strchr(line, ':') != NULL)
            length = snprintf(name, name_bytes, "%.*s", (int)strcspn(strchr(line, ':') + 2, "\n"),
                              strchr(line, ':') + 2);
    if (processors != NULL)
        fclose(processors);
}

void weft__on_host_describe(weft_machine_info *info)
{
    info->num_devices = 1;
}

weft_result weft__on_host_describe_device(int32_t device_idx, weft_device_info *host)
{
    (void)device_idx;
    read_processor_name(host->name, sizeof host->name);
    host->memory_bytes = weft__host_memory_total_bytes();
    host->available_bytes = weft__host_memory_available_bytes();
    host->num_processors = (int32_t)sysconf(_SC_NPROCESSORS_ONLN);
    return WEFT_OK;
}

int32_t weft__on_host_device_of(const weft_comm *comm)
{
    (void)comm;
    return 0;
}

weft_result weft__on_host_describe_no_network(const weft_comm *comm, weft_net_info *info)
{
    (void)comm;
    snprintf(info->reason, sizeof info->reason, "the network is simulated");
    return WEFT_OK;
}

weft_result weft__on_host_alloc(weft_comm *comm, uint64_t bytes, void **memory)
{
    (void)comm;
    /* The system promises memory that it does not have, and kills a process that touches it. */
    const uint64_t available_bytes =
        bytes < LEAST_COMPARED_BYTES ? UINT64_MAX : weft__host_memory_available_bytes();
    if (bytes > available_bytes)
        return weft__no_memory("no memory for %" PRIu64 " bytes: this process can have %" PRIu64,
                               bytes, available_bytes);
    if (posix_memalign(memory, ALIGNMENT, bytes > 0 ? bytes : 1) != 0)
        return weft__no_memory("no memory for %" PRIu64 " bytes", bytes);
    memset(*memory, 0, bytes);
    return WEFT_OK;
}

void weft__on_host_free(weft_comm *comm, void *memory)
{
    (void)comm;
    free(memory);
}

/* The heap, which the network has as its region 0. */
weft_result weft__on_host_network_alloc(weft_comm *comm, uint64_t bytes, void **memory,
                                        uint64_t *place)
{
    uint64_t dirty_bytes;
    void *allocated;
    WEFT__TRY(weft__heap_alloc_to_zero(comm, bytes, &allocated, &dirty_bytes));
    weft_result result = weft__heap_offset(comm->heap, allocated, bytes, "memory", place);
    if (result == WEFT_OK)
        result = weft__machine_zero(comm, allocated, dirty_bytes);
    /* Nobody may send before everybody has zeroed. */
    result = weft__comm_agree(comm, result, "have memory for the network");
    if (result == WEFT_OK)
        *memory = allocated;
    else
        weft__on_host_network_free(comm, allocated);
    return result;
}

void weft__on_host_network_free(weft_comm *comm, void *memory)
{
    if (memory != NULL)
        (void)weft__heap_free(comm->heap, memory);
}

weft_result weft__on_host_copy(weft_comm *comm, void *dst, const void *src, uint64_t bytes)
{
    (void)comm;
    if (bytes > 0)
        memcpy(dst, src, bytes);
    return WEFT_OK;
}

weft_result weft__on_host_check_pointer(weft_comm *comm, const void *ptr, const char *argument)
{
    (void)comm;
    (void)ptr;
    (void)argument;
    return WEFT_OK;
}

weft_result weft__on_host_find_block(weft_comm *comm, const void *ptr, uint64_t bytes,
                                     struct weft__block *block)
{
    (void)comm;
    *block = (struct weft__block){(char *)(uintptr_t)ptr, bytes, 1, 0};
    return WEFT_OK;
}

/* Memory of a process is that of all ranks in it, and of no others. */
weft_result weft__on_host_share_block(weft_comm *comm, const struct weft__block *own,
                                      struct weft__block *blocks)
{
    WEFT__TRY(weft__comm_all_gather(comm, own, sizeof *own, blocks));
    for (int32_t rank = 0; rank < comm->num_ranks; rank++) {
        if (blocks[rank].base == NULL || weft__comm_is_in_process(comm, rank))
            continue;
        weft__error(WEFT_ERROR_UNSUPPORTED,
                    "memory of rank %d outside the heap cannot be accessed by rank %d, which is "
                    "another process",
                    rank, comm->rank);
        blocks[rank] = (struct weft__block){0};
    }
    return WEFT_OK;
}

void weft__on_host_close_block(weft_comm *comm, const struct weft__block *block)
{
    (void)comm;
    (void)block;
}

/* One thread runs all warps of a rank, so more of them do not make it faster. */
struct weft__grid weft__on_host_choose_grid(const weft_comm *comm, const struct weft__work *work)
{
    (void)comm;
    (void)work;
    return (struct weft__grid){.num_blocks = 1, .num_warps = 1};
}

int weft__on_host_stream_is_capturing(weft_stream *stream)
{
    (void)stream;
    return 0;
}

void weft__on_host_end_awaited_words(const struct weft__grid *grid)
{
    for (int32_t i = 0; grid->awaited_words != NULL && i < grid->num_awaited_words; i++)
        __atomic_store_n(&grid->awaited_words[i], UINT64_MAX, __ATOMIC_RELEASE);
}
