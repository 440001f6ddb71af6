/* SPDX-License-Identifier: MIT */
#include "machine/cuda/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "comm/host/error.h"

enum { OLDEST_VERSION = 12000 };

struct weft__cuda_driver weft__cu;

/* The reason that keeps this process from using CUDA; "" for none. */
static char reason[256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

typedef CUresult get_proc_address_fn(const char *, void **, int, cuuint64_t,
                                     CUdriverProcAddressQueryResult *);

static get_proc_address_fn *get_proc_address;

/* 0: the driver has none of that name. */
static int look_up(const char *name, int version, void *function)
{
    CUdriverProcAddressQueryResult status;
    void *found = NULL;
    if (get_proc_address == NULL ||
        get_proc_address(name, &found, version, CU_GET_PROC_ADDRESS_DEFAULT, &status) !=
            CUDA_SUCCESS ||
        found == NULL)
        return 0;
    memcpy(function, &found, sizeof found);
    return 1;
}

static int look_up_needed(const char *name, void *function)
{
    if (look_up(name, OLDEST_VERSION, function))
        return 1;
    snprintf(reason, sizeof reason, "the driver has no %s: CUDA 12.0 or newer is needed", name);
    return 0;
}

static int look_up_all(void *library)
{
    void *symbol = dlsym(library, "cuGetProcAddress_v2");
    memcpy(&get_proc_address, &symbol, sizeof symbol);
    if (get_proc_address == NULL) {
        snprintf(reason, sizeof reason, "the driver is older than CUDA 12.0");
        return 0;
    }
#define LOOK_UP(member, function)                                                                  \
    if (!look_up_needed(#function, &weft__cu.member))                                              \
        return 0;
    WEFT__CUDA_FUNCTIONS(LOOK_UP)
#undef LOOK_UP
    return look_up_needed("cuStreamGetCaptureInfo", &weft__cu.stream_get_capture_info);
}

/* Kernels are compiled for compute capability 8.0 and newer. */
static int count_usable(int num_devices)
{
    int num_usable = 0;
    for (int ordinal = 0; ordinal < num_devices; ordinal++) {
        CUdevice device;
        int major = 0;
        if (weft__cu.device_get(&device, ordinal) == CUDA_SUCCESS &&
            weft__cu.device_get_attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                                          device) == CUDA_SUCCESS)
            num_usable += major >= 8;
    }
    return num_usable;
}

static void load(void)
{
    int num_devices = 0;
    /* Never closed: CUDA cannot be unloaded from a process. */
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (library == NULL) {
        snprintf(reason, sizeof reason, "there is no NVIDIA driver (libcuda.so.1)");
        return;
    }
    if (!look_up_all(library))
        return;
    CUresult result = weft__cu.init(0);
    if (result == CUDA_SUCCESS)
        result = weft__cu.device_get_count(&num_devices);
    if (result != CUDA_SUCCESS) {
        const char *text = NULL;
        (void)weft__cu.get_error_string(result, &text);
        snprintf(reason, sizeof reason, "the NVIDIA driver cannot be used: %s",
                 text != NULL ? text : "unknown error");
    } else if (num_devices == 0) {
        snprintf(reason, sizeof reason, "there is no GPU that this process may use");
    } else if (count_usable(num_devices) < num_devices) {
        snprintf(reason, sizeof reason,
                 "a GPU is older than compute capability 8.0; CUDA_VISIBLE_DEVICES can hide it");
    }
}

const struct weft__cuda_driver *weft__cuda_load(void)
{
    pthread_once(&once, load);
    if (reason[0] == '\0')
        return &weft__cu;
    weft__error(WEFT_ERROR_UNSUPPORTED, "%s", reason);
    return NULL;
}

weft_result weft__cuda_error(CUresult result, const char *format, ...)
{
    char what[256];
    const char *name = NULL, *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    (void)weft__cu.get_error_name(result, &name);
    (void)weft__cu.get_error_string(result, &text);
    return weft__error(result == CUDA_ERROR_OUT_OF_MEMORY ? WEFT_ERROR_OUT_OF_MEMORY
                                                          : WEFT_ERROR_SYSTEM,
                       "%s: %s, %s", what, name != NULL ? name : "?", text != NULL ? text : "?");
}
