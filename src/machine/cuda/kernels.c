/* SPDX-License-Identifier: MIT */
/* From a program to its kernel on a device. */
#include <stdio.h>
#include <string.h>

#include "machine/cuda/device.h"
#include "machine/cuda/fatbins.h"

static const void *find_fatbin(const char *program)
{
    for (const struct weft__cuda_fatbin *fatbin = weft__cuda_fatbins; fatbin->program != NULL;
         fatbin++) {
        if (strcmp(fatbin->program, program) == 0)
            return fatbin->bytes;
    }
    return NULL;
}

/* A library belongs to all devices of the process and is loaded once; it is never unloaded. */
static weft_result load_library(const char *program, CUlibrary *library)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static struct {
        const void *fatbin;
        CUlibrary library;
    } loaded[WEFT__CUDA_MAX_PROGRAMS];
    static int32_t num_loaded;
    const void *fatbin = find_fatbin(program);
    if (fatbin == NULL)
        return weft__error(WEFT_ERROR_UNSUPPORTED, "this weft has no kernel for %s", program);
    pthread_mutex_lock(&mutex);
    int32_t i = 0;
    while (i < num_loaded && loaded[i].fatbin != fatbin)
        i++;
    CUresult result = CUDA_SUCCESS;
    if (i == num_loaded) {
        result =
            weft__cu.library_load_data(&loaded[i].library, fatbin, NULL, NULL, 0, NULL, NULL, 0);
        loaded[i].fatbin = fatbin;
        num_loaded += result == CUDA_SUCCESS;
    }
    *library = loaded[i].library;
    pthread_mutex_unlock(&mutex);
    return result == CUDA_SUCCESS ? WEFT_OK : weft__cuda_error(result, "cannot load %s", program);
}

/* Allows the kernel all the shared memory that a block of this device can have. */
static weft_result load_kernel(const struct weft__cuda *cuda, struct weft__cuda_kernel *kernel)
{
    CUlibrary library = NULL;
    CUkernel handle;
    char symbol[128];
    const char *program = kernel->program->name;
    WEFT__TRY(load_library(program, &library));
    snprintf(symbol, sizeof symbol, "weft__cuda_%s", program);
    WEFT__CUDA_TRY(weft__cu.library_get_kernel(&handle, library, symbol), "cannot find %s", symbol);
    WEFT__CUDA_TRY(weft__cu.kernel_get_function(&kernel->function, handle), "cannot load %s",
                   symbol);
    WEFT__CUDA_TRY(weft__cu.func_set_attribute(kernel->function,
                                               CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                               weft__cuda_max_dynamic_bytes(cuda)),
                   "%s cannot have its shared memory", symbol);
    return WEFT_OK;
}

static weft_result find_or_load(struct weft__cuda *cuda, const struct weft__launch *launch,
                                int32_t *kernel_idx)
{
    int32_t i = 0;
    while (i < cuda->num_kernels && cuda->kernels[i].program != launch->program)
        i++;
    *kernel_idx = i;
    if (i < cuda->num_kernels)
        return WEFT_OK;
    if (i == WEFT__CUDA_MAX_PROGRAMS)
        return weft__error(WEFT_ERROR_UNSUPPORTED, "more than %d programs", i);
    cuda->kernels[i] =
        (struct weft__cuda_kernel){.program = launch->program, .on_failure = launch->on_failure};
    WEFT__TRY(load_kernel(cuda, &cuda->kernels[i]));
    cuda->num_kernels++;
    return WEFT_OK;
}

weft_result weft__cuda_find_kernel(struct weft__cuda *cuda, const struct weft__launch *launch,
                                   int32_t *kernel_idx)
{
    pthread_mutex_lock(&cuda->mutex);
    const weft_result result = find_or_load(cuda, launch, kernel_idx);
    pthread_mutex_unlock(&cuda->mutex);
    return result;
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
               : weft__cuda_error(result, "cannot tell how many blocks of %s fit",
                                  kernel->program->name);
}
