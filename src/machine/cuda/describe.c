/* SPDX-License-Identifier: MIT */

#include "machine/cuda/device.h"
#include "machine/cuda/network.h"
#include "net/attach.h"

weft_result weft__cuda_describe_device(int32_t device_idx, weft_device_info *info)
{
    CUdevice device;
    size_t memory_bytes = 0;
    int num_sms = 0;
    if (weft__cu.device_get(&device, device_idx) != CUDA_SUCCESS)
        return weft__error(WEFT_ERROR_SYSTEM, "CUDA tells nothing of device %d", device_idx);
    if (weft__cu.device_get_name(info->name, sizeof info->name, device) != CUDA_SUCCESS)
        info->name[0] = '\0';
    (void)weft__cu.device_total_mem(&memory_bytes, device);
    (void)weft__cu.device_get_attribute(&num_sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
    info->memory_bytes = memory_bytes;
    info->available_bytes = UINT64_MAX;
    info->num_processors = num_sms;
    return WEFT_OK;
}

int32_t weft__cuda_device_of(const weft_comm *comm)
{
    return weft__cuda_of(comm)->ordinal;
}

int32_t weft__cuda_build_version(void)
{
    return CUDA_VERSION;
}

void weft__cuda_describe(weft_machine_info *info)
{
    int driver_version = 0, num_devices = 0;
    (void)weft__cu.driver_get_version(&driver_version);
    (void)weft__cu.device_get_count(&num_devices);
    info->driver_version = driver_version;
    info->num_devices = num_devices;
}

weft_result weft__cuda_describe_network(const weft_comm *comm, weft_net_info *info)
{
    WEFT__TRY(weft__net_describe(comm, info));
    if (comm->network != NULL)
        weft__cuda_gpudirect_describe(comm, weft__cuda_network_gpudirect(weft__cuda_of(comm)),
                                      info->gpu_memory, sizeof info->gpu_memory);
    return WEFT_OK;
}
