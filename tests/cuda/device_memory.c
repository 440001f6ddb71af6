/* SPDX-License-Identifier: MIT */
#include "cuda/device_memory.h"

static const char *const names[MEMORY_NUM_KINDS] = {
    [MEMORY_PLAIN] = "plain memory",
    [MEMORY_SEGMENTS] = "segments",
    [MEMORY_SEGMENTS_WITHOUT_HANDLES] = "segments without handles",
    [MEMORY_OF_POOL] = "memory of a pool",
    [MEMORY_PINNED] = "pinned memory",
};

const char *device_memory_name(enum device_memory_kind kind)
{
    return names[kind];
}

int device_memory_is_shareable(enum device_memory_kind kind)
{
    return kind == MEMORY_PLAIN || kind == MEMORY_SEGMENTS;
}

static CUmemAllocationProp properties_of(CUdevice device, enum device_memory_kind kind)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = kind == MEMORY_SEGMENTS ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                                                        : CU_MEM_HANDLE_TYPE_NONE,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
}

static int add_segment(const CUmemAllocationProp *properties, CUdeviceptr address, size_t bytes)
{
    CUmemGenericAllocationHandle allocation;
    DRIVER_CHECK(driver.mem_create(&allocation, bytes, properties, 0));
    DRIVER_CHECK(driver.mem_map(address, bytes, 0, allocation, 0));
    DRIVER_CHECK(driver.mem_release(allocation)); /* it lives as long as it is mapped */
    return 0;
}

static int alloc_segments(struct device_memory *memory)
{
    CUdevice device;
    CUdeviceptr address;
    DRIVER_CHECK(driver.ctx_get_device(&device));
    const CUmemAllocationProp properties = properties_of(device, memory->kind);
    const CUmemAccessDesc access = {.location = properties.location,
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    DRIVER_CHECK(driver.mem_address_reserve(&address, memory->bytes, 0, 0, 0));
    for (int i = 0; i < MEMORY_NUM_SEGMENTS; i++)
        if (add_segment(&properties, address + (size_t)i * memory->segment_bytes,
                        memory->segment_bytes))
            return 1;
    DRIVER_CHECK(driver.mem_set_access(address, memory->bytes, &access, 1));
    memory->base = (char *)(uintptr_t)address;
    return 0;
}

static int choose_size(struct device_memory *memory)
{
    CUdevice device;
    DRIVER_CHECK(driver.ctx_get_device(&device));
    const CUmemAllocationProp properties = properties_of(device, MEMORY_SEGMENTS);
    DRIVER_CHECK(driver.mem_get_allocation_granularity(&memory->segment_bytes, &properties,
                                                       CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    memory->bytes = MEMORY_NUM_SEGMENTS * memory->segment_bytes;
    return 0;
}

int device_memory_alloc(enum device_memory_kind kind, struct device_memory *memory)
{
    CUdeviceptr address = 0;
    void *pinned;
    *memory = (struct device_memory){.kind = kind};
    if (choose_size(memory))
        return 1;
    switch (kind) {
    case MEMORY_PLAIN:
        DRIVER_CHECK(driver.mem_alloc(&address, memory->bytes));
        break;
    case MEMORY_OF_POOL:
        DRIVER_CHECK(driver.mem_alloc_async(&address, memory->bytes, NULL));
        DRIVER_CHECK(driver.stream_synchronize(NULL));
        break;
    case MEMORY_PINNED:
        DRIVER_CHECK(driver.mem_host_alloc(&pinned, memory->bytes, CU_MEMHOSTALLOC_DEVICEMAP));
        address = (CUdeviceptr)(uintptr_t)pinned;
        break;
    default:
        return alloc_segments(memory);
    }
    memory->base = (char *)(uintptr_t)address;
    return 0;
}

int device_memory_free(const struct device_memory *memory)
{
    const CUdeviceptr address = (CUdeviceptr)(uintptr_t)memory->base;
    switch (memory->kind) {
    case MEMORY_PLAIN:
        DRIVER_CHECK(driver.mem_free(address));
        break;
    case MEMORY_OF_POOL:
        DRIVER_CHECK(driver.mem_free_async(address, NULL));
        DRIVER_CHECK(driver.stream_synchronize(NULL));
        break;
    case MEMORY_PINNED:
        DRIVER_CHECK(driver.mem_free_host(memory->base));
        break;
    default:
        DRIVER_CHECK(driver.mem_unmap(address, memory->bytes));
        DRIVER_CHECK(driver.mem_address_free(address, memory->bytes));
    }
    return 0;
}

int device_memory_count_free(size_t *free_bytes)
{
    size_t total_bytes;
    DRIVER_CHECK(driver.mem_get_info(free_bytes, &total_bytes));
    return 0;
}
