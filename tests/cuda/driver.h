/* SPDX-License-Identifier: MIT */
/* CUDA as a user of weft has it beside weft: contexts, streams, graphs and memory of the driver,
 * which is looked up at run time so that the tests also start, and are skipped, where there is
 * none. */
#pragma once

#include <cuda.h>

#include "harness/ranks.h"

#define DRIVER_FUNCTIONS(X)                                                                        \
    X(init, cuInit)                                                                                \
    X(get_error_name, cuGetErrorName)                                                              \
    X(device_get_count, cuDeviceGetCount)                                                          \
    X(device_get, cuDeviceGet)                                                                     \
    X(primary_ctx_retain, cuDevicePrimaryCtxRetain)                                                \
    X(primary_ctx_release, cuDevicePrimaryCtxRelease)                                              \
    X(ctx_set_current, cuCtxSetCurrent)                                                            \
    X(stream_create, cuStreamCreate)                                                               \
    X(stream_destroy, cuStreamDestroy)                                                             \
    X(stream_begin_capture, cuStreamBeginCapture)                                                  \
    X(stream_end_capture, cuStreamEndCapture)                                                      \
    X(graph_instantiate, cuGraphInstantiateWithFlags)                                              \
    X(graph_upload, cuGraphUpload)                                                                 \
    X(graph_launch, cuGraphLaunch)                                                                 \
    X(graph_destroy, cuGraphDestroy)                                                               \
    X(graph_exec_destroy, cuGraphExecDestroy)                                                      \
    X(mem_host_alloc, cuMemHostAlloc)                                                              \
    X(mem_free_host, cuMemFreeHost)                                                                \
    X(mem_alloc_managed, cuMemAllocManaged)                                                        \
    X(mem_alloc, cuMemAlloc)                                                                       \
    X(mem_free, cuMemFree)                                                                         \
    X(mem_alloc_async, cuMemAllocAsync)                                                            \
    X(mem_free_async, cuMemFreeAsync)                                                              \
    X(memcpy_async, cuMemcpyAsync)                                                                 \
    X(mem_get_info, cuMemGetInfo)                                                                  \
    X(mem_get_allocation_granularity, cuMemGetAllocationGranularity)                               \
    X(mem_address_reserve, cuMemAddressReserve)                                                    \
    X(mem_address_free, cuMemAddressFree)                                                          \
    X(mem_create, cuMemCreate)                                                                     \
    X(mem_release, cuMemRelease)                                                                   \
    X(mem_map, cuMemMap)                                                                           \
    X(mem_unmap, cuMemUnmap)                                                                       \
    X(mem_set_access, cuMemSetAccess)                                                              \
    X(ctx_get_device, cuCtxGetDevice)                                                              \
    X(stream_synchronize, cuStreamSynchronize)                                                     \
    X(device_get_attribute, cuDeviceGetAttribute)                                                  \
    X(library_load_data, cuLibraryLoadData)                                                        \
    X(library_unload, cuLibraryUnload)                                                             \
    X(library_get_kernel, cuLibraryGetKernel)                                                      \
    X(kernel_get_function, cuKernelGetFunction)                                                    \
    X(launch_kernel_ex, cuLaunchKernelEx)                                                          \
    X(memset_d32, cuMemsetD32)

struct driver {
#define DRIVER_MEMBER(member, function) __typeof__(function) *member;
    DRIVER_FUNCTIONS(DRIVER_MEMBER)
#undef DRIVER_MEMBER
};

/* This process's, after driver_use_device. */
extern struct driver driver;

/* For main: ranks are on GPUs, or the test ends as skipped with the reason. */
void driver_require(void);

/* What a process does that uses one GPU: makes the context of device `device_idx`, modulo their
 * number, current for the calling thread, and with it the choice of communicators made by that
 * thread. */
int driver_use_device(int32_t device_idx);
/* The reverse. */
int driver_leave_device(int32_t device_idx);
int32_t driver_num_devices(void);

const char *driver_error_name(CUresult result);

#define DRIVER_CHECK(call)                                                                         \
    do {                                                                                           \
        const CUresult driver_result_ = (call);                                                    \
        CHECK(driver_result_ == CUDA_SUCCESS, "%s gave %s", #call,                                 \
              driver_error_name(driver_result_));                                                  \
    } while (0)
