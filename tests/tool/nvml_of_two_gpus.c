/* SPDX-License-Identifier: MIT */
/* In place of NVML: the GPUs of cuda_of_two_gpus.c, numbered the other way round. Each has 18
 * NVLinks to what NVML does not see. */
#include <string.h>

struct field {
    unsigned field_id, scope_id;
    long long timestamp, latency_us;
    int value_type, result;
    unsigned long long value;
};

int nvmlInit_v2(void);
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, const char **device);
int nvmlDeviceGetIndex(const char *device, unsigned *index);
int nvmlDeviceGetNvLinkCapability(const char *device, unsigned link, int capability,
                                  unsigned *value);
int nvmlDeviceGetNvLinkState(const char *device, unsigned link, int *is_active);
int nvmlDeviceGetNvLinkRemotePciInfo_v2(const char *device, unsigned link, void *remote);
int nvmlDeviceGetFieldValues(const char *device, int count, struct field *fields);

int nvmlInit_v2(void)
{
    return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, const char **device)
{
    *device = strcmp(bus_id, "0000:3b:00.0") == 0 ? "1" : "0";
    return 0;
}

int nvmlDeviceGetIndex(const char *device, unsigned *index)
{
    *index = (unsigned)(*device - '0');
    return 0;
}

int nvmlDeviceGetNvLinkCapability(const char *device, unsigned link, int capability,
                                  unsigned *value)
{
    (void)device, (void)link, (void)capability;
    *value = 1;
    return 0;
}

int nvmlDeviceGetNvLinkState(const char *device, unsigned link, int *is_active)
{
    (void)device, (void)link;
    *is_active = 1;
    return 0;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(const char *device, unsigned link, void *remote)
{
    (void)device, (void)link, (void)remote;
    return 0;
}

int nvmlDeviceGetFieldValues(const char *device, int count, struct field *fields)
{
    enum { NVLINK_STATE = 165 };
    (void)device, (void)count;
    fields->result = 0;
    fields->value = fields->field_id == NVLINK_STATE;
    return 0;
}
