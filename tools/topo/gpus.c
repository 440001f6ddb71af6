/* SPDX-License-Identifier: MIT */
/* Both the driver and NVML are looked up at run time. Their types are declared here: no header of
 * theirs is needed to build this. */
#include "topo/gpus.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "comm/host/log.h"

/* ------------------------------------------------------------------ libraries */

/* Attributes of a device, as CUDA numbers them. */
enum cuda_attribute {
    CUDA_PCI_BUS_ID = 33,
    CUDA_PCI_DEVICE_ID = 34,
    CUDA_PCI_DOMAIN_ID = 50,
    CUDA_CAPABILITY_MAJOR = 75,
    CUDA_CAPABILITY_MINOR = 76,
    CUDA_GPUDIRECT_RDMA = 116
};

enum { CUDA_OK = 0 };

static struct {
    int (*init)(unsigned flags);
    int (*device_count)(int *count);
    int (*device)(int *device, int ordinal);
    int (*device_attribute)(int *value, enum cuda_attribute attribute, int device);
    int is_there;
} cuda;

typedef struct nvml_device *nvml_device;

struct nvml_pci {
    char bus_id_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};

struct nvml_field {
    unsigned field_id, scope_id;
    long long timestamp, latency_us;
    int value_type, result;
    union {
        double real;
        unsigned number;
        unsigned long long large;
    } value;
};

enum {
    NVML_OK = 0,
    NVML_P2P_CAPABILITY = 0,
    NVML_FIELD_NVLINK_STATE = 165,
    NVML_FIELD_C2C_COUNT = 170,
    NVML_FIELD_C2C_STATUS = 171,
    NVML_FIELD_C2C_MAX_BW = 172
};

static struct {
    int (*init)(void);
    int (*device_by_bus_id)(const char *bus_id, nvml_device *device);
    int (*device_index)(nvml_device device, unsigned *index);
    int (*link_capability)(nvml_device device, unsigned link, int capability, unsigned *value);
    int (*link_state)(nvml_device device, unsigned link, int *is_active);
    int (*link_remote)(nvml_device device, unsigned link, struct nvml_pci *remote);
    int (*field_values)(nvml_device device, int count, struct nvml_field *fields);
    int is_there;
} nvml;

struct function {
    const char *name;
    void *pointer;
};

/* Whether the library is there with all functions. */
static int look_up(const char *library_name, const struct function *functions, size_t count)
{
    void *library = dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; library != NULL && i < count; i++) {
        void *symbol = dlsym(library, functions[i].name);
        if (symbol == NULL) {
            weft__log(WEFT__LOG_WARN, WEFT__LOG_NO_RANK, "%s has no %s", library_name,
                      functions[i].name);
            return 0;
        }
        memcpy(functions[i].pointer, &symbol, sizeof symbol);
    }
    return library != NULL;
}

static void load_cuda(void)
{
    const struct function functions[] = {{"cuInit", &cuda.init},
                                         {"cuDeviceGetCount", &cuda.device_count},
                                         {"cuDeviceGet", &cuda.device},
                                         {"cuDeviceGetAttribute", &cuda.device_attribute}};
    cuda.is_there = look_up("libcuda.so.1", functions, sizeof functions / sizeof functions[0]) &&
                    cuda.init(0) == CUDA_OK;
}

static void load_nvml(void)
{
    const struct function functions[] = {
        {"nvmlInit_v2", &nvml.init},
        {"nvmlDeviceGetHandleByPciBusId_v2", &nvml.device_by_bus_id},
        {"nvmlDeviceGetIndex", &nvml.device_index},
        {"nvmlDeviceGetNvLinkCapability", &nvml.link_capability},
        {"nvmlDeviceGetNvLinkState", &nvml.link_state},
        {"nvmlDeviceGetNvLinkRemotePciInfo_v2", &nvml.link_remote},
        {"nvmlDeviceGetFieldValues", &nvml.field_values}};
    nvml.is_there =
        look_up("libnvidia-ml.so.1", functions, sizeof functions / sizeof functions[0]) &&
        nvml.init() == NVML_OK;
    if (!nvml.is_there)
        weft__log(WEFT__LOG_WARN, WEFT__LOG_NO_RANK,
                  "no NVML (libnvidia-ml.so.1): NVLinks are not known");
}

/* Whether the field has a number. */
static int read_field(nvml_device device, unsigned field_id, unsigned scope_id, unsigned *number)
{
    struct nvml_field field = {.field_id = field_id, .scope_id = scope_id};
    if (nvml.field_values(device, 1, &field) != NVML_OK || field.result != NVML_OK)
        return 0;
    *number = field.value.number;
    return 1;
}

/* ------------------------------------------------------------------ links */

static int is_active(nvml_device device, unsigned link, int32_t sm)
{
    unsigned can_p2p = 0, state = 0;
    int is_on = 0;
    if (nvml.link_capability(device, link, NVML_P2P_CAPABILITY, &can_p2p) != NVML_OK || !can_p2p)
        return 0;
    if (sm >= 90)
        return read_field(device, NVML_FIELD_NVLINK_STATE, link, &state) && state == 1;
    return nvml.link_state(device, link, &is_on) == NVML_OK && is_on == 1;
}

/* In lower case; "" where NVML gives what is no text: it does not see the target. */
static void copy_target(char target[WEFT__SYSFS_ID_BYTES], const struct nvml_pci *remote)
{
    size_t length = 0;
    for (; length < WEFT__SYSFS_ID_BYTES - 1 && remote->bus_id[length] != '\0'; length++) {
        const unsigned char c = (unsigned char)remote->bus_id[length];
        if (!isprint(c)) {
            length = 0;
            break;
        }
        target[length] = (char)tolower(c);
    }
    target[length] = '\0';
    /* NVML's domain has 8 digits, the system's 4. */
    if (length == 16 && strncmp(target, "0000", 4) == 0)
        memmove(target, target + 4, length - 3);
}

static void add_link(struct topo_gpu_facts *gpu, const char *target)
{
    for (int32_t i = 0; i < gpu->num_nvlinks; i++)
        if (strcmp(gpu->nvlinks[i].target, target) == 0) {
            gpu->nvlinks[i].count++;
            return;
        }
    struct topo_nvlink *link = &gpu->nvlinks[gpu->num_nvlinks++];
    snprintf(link->target, sizeof link->target, "%s", target);
    link->count = 1;
}

static int32_t most_links(int32_t sm)
{
    if (sm < 60)
        return 0;
    if (sm < 70)
        return 4;
    if (sm < 80)
        return 6;
    return sm < 90 ? 12 : TOPO_MAX_NVLINKS;
}

static void find_nvlinks(nvml_device device, struct topo_gpu_facts *gpu)
{
    for (int32_t link = 0; link < most_links(gpu->sm); link++) {
        struct nvml_pci remote = {.bus_id = ""};
        char target[WEFT__SYSFS_ID_BYTES];
        if (!is_active(device, (unsigned)link, gpu->sm) ||
            nvml.link_remote(device, (unsigned)link, &remote) != NVML_OK)
            continue;
        copy_target(target, &remote);
        add_link(gpu, target);
    }
}

static void find_c2c(nvml_device device, struct topo_gpu_facts *gpu)
{
    unsigned count = 0, status, megabytes;
    if (gpu->sm < 90 || !read_field(device, NVML_FIELD_C2C_COUNT, 0, &count))
        return;
    for (unsigned link = 0; link < count; link++) {
        if (!read_field(device, NVML_FIELD_C2C_STATUS, link, &status) || status != 1 ||
            !read_field(device, NVML_FIELD_C2C_MAX_BW, link, &megabytes))
            continue;
        gpu->c2c_megabytes = (int32_t)megabytes;
        gpu->num_c2c++;
    }
}

/* ------------------------------------------------------------------ GPUs */

static int attribute_of(int device, enum cuda_attribute attribute)
{
    int value = 0;
    (void)cuda.device_attribute(&value, attribute, device);
    return value;
}

static void describe(int device, int32_t ordinal, struct topo_gpu_facts *gpu)
{
    nvml_device handle;
    unsigned index = 0;
    snprintf(gpu->bus_id, sizeof gpu->bus_id, "%04x:%02x:%02x.0",
             (unsigned)attribute_of(device, CUDA_PCI_DOMAIN_ID) & 0xffff,
             (unsigned)attribute_of(device, CUDA_PCI_BUS_ID) & 0xff,
             (unsigned)attribute_of(device, CUDA_PCI_DEVICE_ID) & 0xff);
    gpu->dev = gpu->rank = ordinal;
    gpu->sm = 10 * attribute_of(device, CUDA_CAPABILITY_MAJOR) +
              attribute_of(device, CUDA_CAPABILITY_MINOR);
    gpu->has_gdr = attribute_of(device, CUDA_GPUDIRECT_RDMA) != 0;
    if (!nvml.is_there || nvml.device_by_bus_id(gpu->bus_id, &handle) != NVML_OK)
        return;
    if (nvml.device_index(handle, &index) == NVML_OK)
        gpu->dev = (int32_t)index;
    find_nvlinks(handle, gpu);
    find_c2c(handle, gpu);
}

int32_t topo_find_gpus(struct topo_gpu_facts *gpus, int32_t most)
{
    int32_t count = 0;
    int num_devices = 0;
    load_cuda();
    if (!cuda.is_there || cuda.device_count(&num_devices) != CUDA_OK)
        return 0;
    load_nvml();
    for (int32_t i = 0; i < num_devices && count < most; i++) {
        int device;
        if (cuda.device(&device, i) != CUDA_OK)
            continue;
        gpus[count] = (struct topo_gpu_facts){.num_nvlinks = 0};
        describe(device, i, &gpus[count++]);
    }
    return count;
}
