/* SPDX-License-Identifier: MIT */
/* This machine's obstacles to RDMA that programs on GPUs start. */
#pragma once

#include "net/nic/device.h"
#include "net/sysfs.h"

enum { WEFT__NIC_LACKS_BYTES = 512 };

/* `lacks` gets all that is missing, separated by semicolons: a library, a device, the right to make
 * queues; a GPU, a way to its memory, a way from the GPU to doorbells. If nothing is missing,
 * `lacks` is "", and `device` has the device's name. */
void weft__nic_find_lacks(const struct weft__sysfs *system, char device[WEFT__NIC_NAME_BYTES],
                          char lacks[WEFT__NIC_LACKS_BYTES]);
