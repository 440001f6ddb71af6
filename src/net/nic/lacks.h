/* SPDX-License-Identifier: MIT */
/* Whether programs on GPUs could start RDMA on this machine. */
#pragma once

#include "net/nic/device.h"
#include "net/sysfs.h"

enum { WEFT__NIC_LACKS_BYTES = 512 };

/* All that is missing, one behind the other: a library, a device, the right to make queues; a GPU,
 * a way to its memory, a way from it to doorbells. "" if nothing is, and the device's name. */
void weft__nic_find_lacks(const struct weft__sysfs *system, char device[WEFT__NIC_NAME_BYTES],
                          char lacks[WEFT__NIC_LACKS_BYTES]);
