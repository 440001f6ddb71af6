/* SPDX-License-Identifier: MIT */
/* From a program to its kernel on a device. */
#include <string.h>

#include "machine/cuda/device.h"

/* A GPU runs code for an older one of its generation. From PTX the driver compiles for all that are
 * newer. */
int32_t weft__cuda_code_for(const int32_t *gpus, int32_t capability)
{
    int32_t code = 0;
    for (; *gpus != 0; gpus++)
        if (*gpus <= capability && (gpus[1] == 0 || *gpus / 10 == capability / 10))
            code = *gpus;
    return code;
}

/* A library is a module that is loaded. It belongs to all devices of the process; it is loaded once
 * and never unloaded. */
static weft_result load_library(int32_t module_idx, CUlibrary *library)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static CUlibrary libraries[WEFT__CUDA_MAX_PROGRAMS];
    const struct weft__cuda_module *module = &weft__cuda_modules[module_idx];
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&mutex);
    if (libraries[module_idx] == NULL)
        result = weft__cu.library_load_data(&libraries[module_idx], module->fatbin, NULL, NULL, 0,
                                            NULL, NULL, 0);
    *library = libraries[module_idx];
    pthread_mutex_unlock(&mutex);
    return result == CUDA_SUCCESS ? WEFT_OK
                                  : weft__cuda_error(result, "cannot load %s", module->name);
}

/* Allows the kernel all the shared memory that a block of this device can have. */
static weft_result load_kernel(struct weft__cuda *cuda, const struct weft__cuda_program *program,
                               struct weft__cuda_kernel *kernel)
{
    CUlibrary library = NULL;
    CUkernel handle;
    const char *symbol = program->symbol;
    kernel->name = program->name;
    WEFT__TRY(load_library(program->module_idx, &library));
    WEFT__CUDA_TRY(weft__cu.library_get_kernel(&handle, library, symbol), "cannot find %s", symbol);
    WEFT__CUDA_TRY(weft__cu.kernel_get_function(&kernel->function, handle), "cannot load %s",
                   symbol);
    WEFT__CUDA_TRY(weft__cu.func_set_attribute(kernel->function,
                                               CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                               weft__cuda_max_dynamic_bytes(cuda)),
                   "%s cannot have its shared memory", symbol);
    return WEFT_OK;
}

/* Reserves local memory for the kernel that needs most. Else the first launch of a kernel that
 * needs more than all before it waits for all kernels of the context, and keeps other threads out
 * of the driver meanwhile. */
static weft_result have_local_memory(const struct weft__cuda *cuda)
{
    size_t bytes = 0;
    int most_bytes = 0;
    for (int32_t i = 0; i < cuda->num_kernels; i++) {
        int of_kernel = 0;
        WEFT__CUDA_TRY(weft__cu.func_get_attribute(&of_kernel, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES,
                                                   cuda->kernels[i].function),
                       "cannot tell the memory of %s", cuda->kernels[i].name);
        most_bytes = of_kernel > most_bytes ? of_kernel : most_bytes;
    }
    WEFT__CUDA_TRY(weft__cu.ctx_get_limit(&bytes, CU_LIMIT_STACK_SIZE), "cannot tell a limit");
    if (bytes < (size_t)most_bytes)
        WEFT__CUDA_TRY(weft__cu.ctx_set_limit(CU_LIMIT_STACK_SIZE, (size_t)most_bytes),
                       "no local memory of %d bytes for each thread", most_bytes);
    return WEFT_OK;
}

weft_result weft__cuda_load_kernels(struct weft__cuda *cuda)
{
    for (int32_t i = 0; weft__cuda_programs[i].name != NULL; i++) {
        WEFT__TRY(load_kernel(cuda, &weft__cuda_programs[i], &cuda->kernels[i]));
        cuda->num_kernels = i + 1;
    }
    return have_local_memory(cuda);
}

weft_result weft__cuda_find_kernel(struct weft__cuda *cuda, const struct weft__launch *launch,
                                   int32_t *kernel_idx)
{
    const char *name = launch->program->name;
    int32_t i = 0;
    while (i < cuda->num_kernels && strcmp(cuda->kernels[i].name, name) != 0)
        i++;
    if (i == cuda->num_kernels)
        return weft__error(WEFT_ERROR_UNSUPPORTED, "this weft has no kernel for %s", name);
    *kernel_idx = i;
    pthread_mutex_lock(&cuda->mutex);
    cuda->kernels[i].on_failure = launch->on_failure;
    pthread_mutex_unlock(&cuda->mutex);
    return WEFT_OK;
}

/* Asking the driver takes as long as a launch, so the answer is kept. */
weft_result weft__cuda_blocks_per_sm(struct weft__cuda *cuda, int32_t kernel_idx, int32_t num_warps,
                                     uint32_t shared_bytes, int32_t *blocks_per_sm)
{
    struct weft__cuda_kernel *kernel = &cuda->kernels[kernel_idx];
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&cuda->mutex);
    if (kernel->num_warps != num_warps || kernel->shared_bytes != shared_bytes) {
        int blocks = 0;
        result = weft__cu.occupancy_max_active_blocks(
            &blocks, kernel->function, num_warps * WEFT__CUDA_WARP_THREADS, shared_bytes);
        kernel->blocks_per_sm = blocks;
        kernel->num_warps = result == CUDA_SUCCESS ? num_warps : 0;
        kernel->shared_bytes = shared_bytes;
    }
    *blocks_per_sm = kernel->blocks_per_sm;
    pthread_mutex_unlock(&cuda->mutex);
    return result == CUDA_SUCCESS
               ? WEFT_OK
               : weft__cuda_error(result, "cannot tell how many blocks of %s fit", kernel->name);
}
