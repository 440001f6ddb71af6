/* SPDX-License-Identifier: MIT */
#include "cuda/driver.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "harness/machine.h"

enum { DRIVER_VERSION = 12000 }; /* whose signatures cuda.h's types are taken for */

struct driver driver;

typedef CUresult get_proc_address_fn(const char *, void **, int, cuuint64_t,
                                     CUdriverProcAddressQueryResult *);

void driver_require(void)
{
    setenv("WEFT_MACHINE", "cuda", 1);
    unsetenv("WEFT_CUDA_DEVICE"); /* which would outweigh driver_use_device */
    tests_choose_machine();
}

const char *driver_error_name(CUresult result)
{
    const char *name = NULL;
    if (driver.get_error_name == NULL || driver.get_error_name(result, &name) != CUDA_SUCCESS)
        return "an error without a name";
    return name;
}

static int look_up(get_proc_address_fn *get, const char *name, void *function)
{
    CUdriverProcAddressQueryResult status;
    void *found = NULL;
    DRIVER_CHECK(get(name, &found, DRIVER_VERSION, CU_GET_PROC_ADDRESS_DEFAULT, &status));
    CHECK(found != NULL, "the driver has no %s", name);
    memcpy(function, &found, sizeof found);
    return 0;
}

static int load(void)
{
    get_proc_address_fn *get;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    CHECK(library != NULL, "%s", dlerror());
    void *symbol = dlsym(library, "cuGetProcAddress_v2");
    CHECK(symbol != NULL, "%s", dlerror());
    memcpy(&get, &symbol, sizeof symbol);
#define LOOK_UP(member, function)                                                                  \
    if (look_up(get, #function, &driver.member))                                                   \
        return 1;
    DRIVER_FUNCTIONS(LOOK_UP)
#undef LOOK_UP
    DRIVER_CHECK(driver.init(0));
    return 0;
}

int32_t driver_num_devices(void)
{
    int num_devices = 0;
    return driver.device_get_count(&num_devices) == CUDA_SUCCESS ? num_devices : 0;
}

static int get_device(int32_t device_idx, CUdevice *device)
{
    const int32_t num_devices = driver_num_devices();
    CHECK(num_devices > 0, "there is no GPU");
    DRIVER_CHECK(driver.device_get(device, device_idx % num_devices));
    return 0;
}

int driver_use_device(int32_t device_idx)
{
    CUdevice device;
    CUcontext of_device;
    if (load() || get_device(device_idx, &device))
        return 1;
    DRIVER_CHECK(driver.primary_ctx_retain(&of_device, device));
    DRIVER_CHECK(driver.ctx_set_current(of_device));
    return 0;
}

int driver_leave_device(int32_t device_idx)
{
    CUdevice device;
    if (get_device(device_idx, &device))
        return 1;
    DRIVER_CHECK(driver.ctx_set_current(NULL));
    DRIVER_CHECK(driver.primary_ctx_release(device));
    return 0;
}
