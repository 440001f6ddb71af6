/* SPDX-License-Identifier: MIT */
/* The NVIDIA driver, looked up at run time, so that a library with CUDA also runs where there is
 * none. */
#pragma once

#include <cuda.h>

#include "weft.h"

/* Signatures are those of CUDA 12.0, the oldest driver that will do. */
#define WEFT__CUDA_FUNCTIONS(X)                                                                    \
    X(init, cuInit)                                                                                \
    X(driver_get_version, cuDriverGetVersion)                                                      \
    X(get_error_name, cuGetErrorName)                                                              \
    X(get_error_string, cuGetErrorString)                                                          \
    X(device_get_count, cuDeviceGetCount)                                                          \
    X(device_get, cuDeviceGet)                                                                     \
    X(device_get_name, cuDeviceGetName)                                                            \
    X(device_get_uuid, cuDeviceGetUuid)                                                            \
    X(device_get_attribute, cuDeviceGetAttribute)                                                  \
    X(device_total_mem, cuDeviceTotalMem)                                                          \
    X(device_primary_ctx_retain, cuDevicePrimaryCtxRetain)                                         \
    X(ctx_get_current, cuCtxGetCurrent)                                                            \
    X(ctx_enable_peer_access, cuCtxEnablePeerAccess)                                               \
    X(ctx_get_device, cuCtxGetDevice)                                                              \
    X(ctx_get_limit, cuCtxGetLimit)                                                                \
    X(ctx_set_limit, cuCtxSetLimit)                                                                \
    X(ctx_push_current, cuCtxPushCurrent)                                                          \
    X(ctx_pop_current, cuCtxPopCurrent)                                                            \
    X(ctx_get_stream_priority_range, cuCtxGetStreamPriorityRange)                                  \
    X(mem_get_info, cuMemGetInfo)                                                                  \
    X(mem_alloc, cuMemAlloc)                                                                       \
    X(mem_alloc_async, cuMemAllocAsync)                                                            \
    X(mem_free_async, cuMemFreeAsync)                                                              \
    X(mem_free, cuMemFree)                                                                         \
    X(mem_host_alloc, cuMemHostAlloc)                                                              \
    X(mem_host_get_device_pointer, cuMemHostGetDevicePointer)                                      \
    X(mem_free_host, cuMemFreeHost)                                                                \
    X(mem_host_register, cuMemHostRegister)                                                        \
    X(mem_host_unregister, cuMemHostUnregister)                                                    \
    X(memset_d8_async, cuMemsetD8Async)                                                            \
    X(memcpy_async, cuMemcpyAsync)                                                                 \
    X(pointer_get_attribute, cuPointerGetAttribute)                                                \
    X(mem_get_allocation_granularity, cuMemGetAllocationGranularity)                               \
    X(mem_address_reserve, cuMemAddressReserve)                                                    \
    X(mem_address_free, cuMemAddressFree)                                                          \
    X(mem_create, cuMemCreate)                                                                     \
    X(mem_release, cuMemRelease)                                                                   \
    X(mem_map, cuMemMap)                                                                           \
    X(mem_unmap, cuMemUnmap)                                                                       \
    X(mem_set_access, cuMemSetAccess)                                                              \
    X(mem_get_address_range, cuMemGetAddressRange)                                                 \
    X(mem_retain_allocation_handle, cuMemRetainAllocationHandle)                                   \
    X(mem_export_to_shareable_handle, cuMemExportToShareableHandle)                                \
    X(mem_import_from_shareable_handle, cuMemImportFromShareableHandle)                            \
    X(ipc_get_mem_handle, cuIpcGetMemHandle)                                                       \
    X(ipc_open_mem_handle, cuIpcOpenMemHandle)                                                     \
    X(ipc_close_mem_handle, cuIpcCloseMemHandle)                                                   \
    X(library_load_data, cuLibraryLoadData)                                                        \
    X(library_get_kernel, cuLibraryGetKernel)                                                      \
    X(kernel_get_function, cuKernelGetFunction)                                                    \
    X(func_get_attribute, cuFuncGetAttribute)                                                      \
    X(func_set_attribute, cuFuncSetAttribute)                                                      \
    X(occupancy_max_active_blocks, cuOccupancyMaxActiveBlocksPerMultiprocessor)                    \
    X(launch_kernel_ex, cuLaunchKernelEx)                                                          \
    X(launch_host_func, cuLaunchHostFunc)                                                          \
    X(stream_create_with_priority, cuStreamCreateWithPriority)                                     \
    X(stream_destroy, cuStreamDestroy)                                                             \
    X(stream_synchronize, cuStreamSynchronize)                                                     \
    X(stream_get_ctx, cuStreamGetCtx)                                                              \
    X(stream_is_capturing, cuStreamIsCapturing)                                                    \
    X(stream_begin_capture, cuStreamBeginCapture)                                                  \
    X(thread_exchange_stream_capture_mode, cuThreadExchangeStreamCaptureMode)                      \
    X(stream_end_capture, cuStreamEndCapture)                                                      \
    X(stream_wait_event, cuStreamWaitEvent)                                                        \
    X(graph_instantiate, cuGraphInstantiateWithFlags)                                              \
    X(graph_upload, cuGraphUpload)                                                                 \
    X(graph_launch, cuGraphLaunch)                                                                 \
    X(graph_destroy, cuGraphDestroy)                                                               \
    X(graph_exec_destroy, cuGraphExecDestroy)                                                      \
    X(event_create, cuEventCreate)                                                                 \
    X(event_destroy, cuEventDestroy)                                                               \
    X(event_record, cuEventRecord)                                                                 \
    X(event_synchronize, cuEventSynchronize)                                                       \
    X(event_elapsed_time, cuEventElapsedTime)

/* cuda.h of CUDA 13 has this one with another signature only. */
typedef CUresult weft__cuda_get_capture_info(CUstream stream, CUstreamCaptureStatus *status,
                                             cuuint64_t *id, CUgraph *graph,
                                             const CUgraphNode **dependencies,
                                             size_t *num_dependencies);

struct weft__cuda_driver {
#define WEFT__CUDA_MEMBER(member, function) __typeof__(function) *member;
    WEFT__CUDA_FUNCTIONS(WEFT__CUDA_MEMBER)
#undef WEFT__CUDA_MEMBER
    weft__cuda_get_capture_info *stream_get_capture_info;
};

/* The driver, initialised; NULL, with the reason as the thread's last error, if there is none or it
 * has no device. The answer is the same for the whole life of the process. */
const struct weft__cuda_driver *weft__cuda_load(void);
/* The driver, where it is known to be there. */
extern struct weft__cuda_driver weft__cu;

/* The error of a driver's call as ours: "<what>: <CUDA's name>, <CUDA's description>". */
weft_result weft__cuda_error(CUresult result, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Returns from the calling function with an error unless the driver's call succeeds. */
#define WEFT__CUDA_TRY(call, ...)                                                                  \
    do {                                                                                           \
        const CUresult result_of_cuda = (call);                                                    \
        if (result_of_cuda != CUDA_SUCCESS)                                                        \
            return weft__cuda_error(result_of_cuda, __VA_ARGS__);                                  \
    } while (0)
