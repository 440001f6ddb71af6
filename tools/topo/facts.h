/* SPDX-License-Identifier: MIT */
/* Facts about a machine's devices from elsewhere than its file: the driver's facts about GPUs
 * (topo/gpus.h), the system's about ports of the network. */
#pragma once

#include <stdint.h>

#include "net/ports.h"

enum { TOPO_MAX_NVLINKS = 18 };

/* NVLinks to one target. */
struct topo_nvlink {
    char target[WEFT__SYSFS_ID_BYTES]; /* a bus id; "": it is not visible here, hence an NVSwitch */
    char target_class[16]; /* "0x068000"; "": the system may know it, else an NVSwitch */
    int32_t count;
};

struct topo_gpu_facts {
    char bus_id[WEFT__SYSFS_ID_BYTES]; /* "0000:3b:00.0", in lower case */
    int32_t dev;                       /* NVML's number */
    int32_t rank;
    int32_t sm; /* 90 */
    int32_t has_gdr;
    int32_t num_nvlinks;
    struct topo_nvlink nvlinks[TOPO_MAX_NVLINKS];
    int32_t num_c2c, c2c_megabytes; /* links to the processor, and MB/s of each */
};

struct topo_facts {
    const struct topo_gpu_facts *gpus;
    int32_t num_gpus;
    const struct weft__net_port *nets;
    int32_t num_nets;
};
